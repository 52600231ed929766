"""Programs in place of systemd's: `busctl` and `systemd-inhibit`, which answer from files in a directory."""

from __future__ import annotations

import json
import os
from pathlib import Path

_BUSCTL = """#!/bin/sh
case "$*" in
*InhibitDelayMaxUSec) echo "t $(cat {state}/delay)" ;;
*PreparingForShutdown) echo "b $(cat {state}/preparing)" ;;
*KillUnit*) echo "$*" >> {state}/reloads; cp {state}/next-delay {state}/delay ;;
*monitor) exec tail -n +1 -f {state}/signals ;;
*) echo "unknown request: $*" >&2; exit 1 ;;
esac
"""
_INHIBIT = """#!/bin/sh
echo "$*" > {state}/inhibitor
while [ "${{1#--}}" != "$1" ]; do shift; done
"$@"
rm {state}/inhibitor
"""


class FakeLogind:
    """The logind of a test. It permits delays of `delay` seconds, and of `next_delay` after its configuration changed."""

    def __init__(self, directory: Path, delay: float = 3600.0, next_delay: float = 3600.0) -> None:
        self._state = directory / "logind"
        self._programs = directory / "programs"
        for each in (self._state, self._programs):
            each.mkdir(parents=True)
        for name, text in (
            ("delay", f"{delay * 1_000_000:.0f}"),
            ("next-delay", f"{next_delay * 1_000_000:.0f}"),
            ("preparing", "false"),
            ("signals", ""),
        ):
            (self._state / name).write_text(text)
        for name, text in (("busctl", _BUSCTL), ("systemd-inhibit", _INHIBIT)):
            program = self._programs / name
            program.write_text(text.format(state=self._state))
            program.chmod(0o755)

    @property
    def search_path(self) -> str:
        return f"{self._programs}{os.pathsep}{os.environ['PATH']}"

    @property
    def is_inhibited(self) -> bool:
        return (self._state / "inhibitor").exists()

    @property
    def inhibitor(self) -> str:
        """The arguments of the program that holds the inhibitor."""
        return (self._state / "inhibitor").read_text()

    @property
    def reloads(self) -> list[str]:
        """The requests to read the configuration again."""
        path = self._state / "reloads"
        return path.read_text().splitlines() if path.exists() else []

    def announce(self, active: bool) -> None:
        """Announce a shutdown, or that it was cancelled."""
        self.set_preparing(active)
        with (self._state / "signals").open("a") as file:
            for member, data in (("SessionNew", "c1"), ("PrepareForShutdown", active)):
                print(json.dumps({"type": "signal", "member": member, "payload": {"data": [data]}}), file=file)

    def set_preparing(self, active: bool) -> None:
        (self._state / "preparing").write_text("true" if active else "false")
