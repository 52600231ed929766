"""Scenarios that are run once in peace and then again with something going wrong: they must come to the same.

By default some of the points at which something can go wrong are tried; all of them, which takes many minutes, with
`SETPOINT_THOROUGH=1` in the environment.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from setpoint.testing import VirtualCluster, run_virtual
from setpoint.testing.end_state import differences
from setpoint.testing.faults import Fault, Scenario, counts, crash_after, disturbed, noise
from setpoint.testing.link import Write

THOROUGH = bool(os.environ.get("SETPOINT_THOROUGH"))
SEEDS = range(10 if THOROUGH else 1)


class Crashing:
    def __init__(self, scenarios: Iterable[Scenario], *components: str, **options: Any) -> None:
        """`components` are those to be disturbed with noise, `options` those of the cluster."""
        self._scenarios: dict[str, Scenario] = {getattr(each, "__name__", ""): each for each in scenarios}
        self._components = components
        self._options = options
        self._peaceful: dict[str, tuple[Counter[str], int]] = {}
        self.names = list(self._scenarios)

    def peaceful(self, name: str) -> tuple[Counter[str], int]:
        """What it comes to, and after how many writes of controllers."""
        found = self._peaceful.get(name)
        if found is None:
            seen: list[Write] = []

            async def count(cluster: VirtualCluster) -> None:
                async def after(write: Write) -> None:
                    if counts(write):
                        seen.append(write)

                cluster.links["controllers"].after_write = after

            ended = run_virtual(disturbed, self._scenarios[name], count, **self._options)
            found = self._peaceful[name] = (ended, len(seen))
        return found

    def crash(self, name: str, some: int, *, stale: bool = False) -> None:
        """After some of its writes, spread over all of them."""
        _, count = self.peaceful(name)
        step = 1 if THOROUGH else max(1, count // some)
        for nth in range(1 + len(name) % step, count + 1, step):
            self._check(name, crash_after(nth, stale=stale), f"crash after write {nth}")

    def noise(self, name: str, seed: int) -> None:
        self._check(name, noise(seed, *self._components), f"noise {seed}")

    def differences(self, name: str, other: Callable[[VirtualCluster], Any]) -> str:
        return differences(self.peaceful(name)[0], run_virtual(disturbed, other, **self._options))

    def _check(self, name: str, fault: Fault, what: str) -> None:
        ended = run_virtual(disturbed, self._scenarios[name], fault, **self._options)
        found = differences(self.peaceful(name)[0], ended)
        assert not found, f"{name}, {what}:\n{found}"
