"""Victims computed from resource sums equal those found by trial."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from scheduler_objects import a_node, a_pod

from setpoint.meta.objects import Obj
from setpoint.scheduler.cluster_events import QueueingHints
from setpoint.scheduler.config import Configuration
from setpoint.scheduler.engine import Engine
from setpoint.scheduler.framework import FitError
from setpoint.scheduler.listers import Listers
from setpoint.scheduler.nominations import Nominations
from setpoint.scheduler.preemption import Preemption, Victims, pick
from setpoint.scheduler.snapshot import PlacedPod, Snapshot


class Budgets:
    def __init__(self, chance: Random) -> None:
        self.items = {
            app: {
                "metadata": {"name": app, "namespace": "default"},
                "spec": {"selector": {"matchLabels": {"app": app}}},
                "status": {"disruptionsAllowed": chance.randrange(3)},
            }
            for app in "xy"
        }

    def get(self, key: str) -> Obj | None:
        return self.items.get(key)

    def add_index(self, name: str, values_of: Any) -> None: ...

    def by_index(self, name: str, value: str) -> list[Obj]:
        return []


@pytest.mark.parametrize("seed", range(40))
def test_sums_and_trials_agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = Random(seed)
    listers = Listers(disruption_budgets=Budgets(chance))

    class Ids:
        @staticmethod
        def below(limit: int) -> int:
            return 0

    engine = Engine(Configuration(), listers, Nominations(lambda key: None), Ids(), QueueingHints())  # type: ignore[arg-type]
    for number in range(6):
        taints = [{"key": "k", "effect": "NoSchedule"}] if chance.random() < 0.2 else []
        engine.snapshot.put_node(a_node(f"n{number}", cpu="4", memory="4Gi", pods=chance.choice([3, 9]), taints=taints))
    for number in range(60):
        node, priority = f"n{chance.randrange(6)}", chance.choice([-5, 0, 3, 20])
        pod = a_pod(
            f"p{number}",
            node,
            labels={"app": chance.choice("xyz")},
            priority=priority,
            cpu=chance.choice(["100m", "1", "2"]),
            memory=chance.choice(["", "1Gi"]),
        )
        pod["metadata"]["uid"] = str(number)
        pod["status"] = {"startTime": f"2026-01-01T00:{chance.randrange(60):02}:00Z"}
        engine.snapshot.put(pod, node)
    pod = a_pod("new", cpu="2500m", memory="2Gi", priority=10, schedulerName="default-scheduler")
    pod["metadata"]["uid"] = "new"

    def outcome() -> tuple[Victims | None, str]:
        with pytest.raises(FitError) as caught:
            engine.decide(pod)
        diagnosis = caught.value.diagnosis
        return engine.preempt(pod, diagnosis), diagnosis.message()

    quick = outcome()
    monkeypatch.setattr(Preemption, "_resource_needs", lambda self, cycle: None)
    assert outcome() == quick


def placed(name: str, priority: int, started: str = "") -> PlacedPod:
    pod = a_pod(name, "n", priority=priority)
    if started:
        pod["status"] = {"startTime": started}
    return PlacedPod(pod, Snapshot().demands.of(pod), "n", False)


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        (Victims("a", (placed("p", 0),), 1), Victims("b", (placed("p", 5), placed("q", 5)), 0)),
        (Victims("a", (placed("p", 5),), 0), Victims("b", (placed("p", 4), placed("q", 4)), 0)),
        (Victims("a", (placed("p", 5), placed("q", 4)), 0), Victims("b", (placed("p", 5), placed("q", 3)), 0)),
        (Victims("a", (placed("p", 5), placed("q", -9)), 0), Victims("b", (placed("p", 5),), 0)),
        (
            Victims("a", (placed("p", 5, "2026-01-01T00:00:00Z"),), 0),
            Victims("b", (placed("p", 5, "2026-01-01T01:00:00Z"),), 0),
        ),
    ],
)
def test_choice_of_the_node(worse: Victims, better: Victims) -> None:
    assert pick([worse, better]) is better
    assert pick([better, worse]) is better
