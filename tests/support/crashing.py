"""Scenarios that are run once in peace and then again with something going wrong: they must come to the same.

By default some of the points at which something can go wrong are tried; all of them, which takes many minutes, with
`SETPOINT_THOROUGH=1` in the environment.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from effort import tries

from setpoint.testing.exploring import Exploration
from setpoint.testing.trial import Scenario

SEEDS = range(tries(1, 10))


class Crashing:
    def __init__(self, scenarios: Iterable[Scenario], *components: str, **options: Any) -> None:
        """`components` are those to be disturbed, `options` those of the cluster."""
        of = components or ("controllers", "scheduler")
        self._scenarios = {
            getattr(each, "__name__", ""): Exploration(None, each, component=of, **{"nodes": 3, **options})
            for each in scenarios
        }
        self.names = list(self._scenarios)

    def __getitem__(self, name: str) -> Exploration:
        return self._scenarios[name]

    def crash(self, name: str, some: int, fault: str = "crash-after") -> None:
        """After some of its writes, spread over all of them."""
        self._scenarios[name].explore(faults=(fault,), limit=tries(some, 10**6))

    def noise(self, name: str, seed: int) -> None:
        self._scenarios[name].explore(only=f"noise:{seed}")
