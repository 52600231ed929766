"""`/healthz`, `/livez`, `/readyz`: what must hold for the server to be of use, each check by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from setpoint.apiserver.http.message import Response

Check = Callable[[], str]
"""Returns what is wrong; empty: nothing is."""

_TEXT = [("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff")]


class Health:
    def __init__(self, checks: Mapping[str, Mapping[str, Check]]) -> None:
        """Checks by name, for each of `healthz`, `livez` and `readyz`."""
        self._checks = checks

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
        lines, failed = [], False
        for check_name, check in checks.items():
            if check_name in excluded:
                lines.append(f"[+]{check_name} excluded: ok\n")
                continue
            wrong = check()
            failed = failed or bool(wrong)
            lines.append(f"[-]{check_name} failed: {wrong}\n" if wrong else f"[+]{check_name} ok\n")
        for unknown in sorted(excluded - set(checks)):
            lines.append(f'warn: some health checks cannot be excluded: no matches for "{unknown}"\n')
        if failed:
            return Response(500, ("".join(lines) + f"{root} check failed\n").encode(), list(_TEXT))
        if "verbose" in query:
            return Response(200, ("".join(lines) + f"{root} check passed\n").encode(), list(_TEXT))
        return Response(200, b"ok", list(_TEXT))
