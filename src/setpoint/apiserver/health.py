"""`/healthz`, `/livez`, `/readyz`: what must hold for the server to be of use, each check by name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from setpoint.apiserver.http.message import Response
from setpoint.meta.exposition import Family, counter, gauge
from setpoint.meta.goformat import quote

log = logging.getLogger("setpoint.apiserver")

Check = Callable[[], str]
"""Returns what is wrong; empty: nothing is."""

_TEXT = [("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff")]


@dataclass(slots=True)
class _Results:
    """How a check came out, each time it was made as one of all."""

    healthy: bool = True
    """The last time."""
    successes: int = 0
    failures: int = 0

    def add(self, healthy: bool) -> None:
        self.healthy = healthy
        self.successes += healthy
        self.failures += not healthy


class Health:
    def __init__(self, checks: Mapping[str, Mapping[str, Check]]) -> None:
        """Checks by name, for each of `healthz`, `livez` and `readyz`."""
        self._checks = {root: dict(named) for root, named in checks.items()}
        self._results: dict[tuple[str, str], _Results] = {}
        """Results of the checks, by (name of the check, root)."""

    def add(self, root: str, name: str, check: Check) -> None:
        """Make one more check for `healthz`, `livez` or `readyz`."""
        self._checks.setdefault(root, {})[name] = check

    def paths(self) -> list[str]:
        return [
            path for root, checks in self._checks.items() for path in (f"/{root}", *(f"/{root}/{c}" for c in checks))
        ]

    def answer(self, path: str, query: dict[str, list[str]]) -> Response | None:
        root, more, name = path[1:].partition("/")
        checks = self._checks.get(root)
        if checks is None:
            return None
        if more:
            check = checks.get(name)
            if check is None:
                return Response(404, b"404 page not found\n", list(_TEXT))
            wrong = check()
            if wrong:
                return Response(500, f"internal server error: {wrong}\n".encode(), list(_TEXT))
            return Response(200, b"ok", list(_TEXT))
        excluded = set(query.get("exclude", []))
        lines: list[str] = []
        failures: list[str] = []
        for check_name, check in checks.items():
            if check_name in excluded:
                lines.append(f"[+]{check_name} excluded: ok\n")
                continue
            wrong = check()
            results = self._results.setdefault((check_name, root), _Results())
            results.add(not wrong)
            if wrong:
                # Anybody may ask for this summary; the reason is for the log and for those who may see the check.
                failures.append(f"{check_name}: {wrong}")
                lines.append(f"[-]{check_name} failed: reason withheld\n")
            else:
                lines.append(f"[+]{check_name} ok\n")
        if unknown := sorted(excluded.difference(checks)):
            names = ",".join(map(quote, unknown))
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}\n")
        if failures:
            log.debug("%s check failed: %s", root, "; ".join(failures))
            return Response(500, ("".join(lines) + f"{root} check failed\n").encode(), list(_TEXT))
        if "verbose" in query:
            return Response(200, ("".join(lines) + f"{root} check passed\n").encode(), list(_TEXT))
        return Response(200, b"ok", list(_TEXT))

    def families(self) -> list[Family]:
        """Service level indicators, as `/metrics/slis` shows them."""
        last = [({"name": name, "type": root}, float(made.healthy)) for (name, root), made in self._results.items()]
        counts = [
            ({"name": name, "type": root, "status": status}, float(count))
            for (name, root), made in self._results.items()
            for status, count in (("error", made.failures), ("success", made.successes))
            if count
        ]
        return [
            gauge("kubernetes_healthcheck", "Whether a health check passed, the last time.", last),
            counter("kubernetes_healthchecks_total", "How health checks came out.", counts),
        ]
