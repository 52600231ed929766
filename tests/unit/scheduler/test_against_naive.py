"""The vectorised scheduler decides like a naive one that checks each node and Pod."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from effort import tries
from naive_scheduler import PREFERRED, REQUIRED, Naive
from scheduler_objects import HOSTNAME, ZONE, a_node, a_pod

from setpoint.meta.objects import Obj
from setpoint.scheduler.cluster_events import QueueingHints
from setpoint.scheduler.config import Configuration
from setpoint.scheduler.engine import Engine
from setpoint.scheduler.framework import Cycle, FitError
from setpoint.scheduler.listers import Listers
from setpoint.scheduler.nominations import Nominations

NAMESPACES = {"default": {"team": "a"}, "other": {"team": "b"}}
RACK = "rack"


class RandomCluster(Random):
    def sometimes(self, likely: float = 0.15) -> bool:
        return self.random() < likely

    def some(self, make: Any, most: int = 2) -> list[Any]:
        return [make() for _ in range(self.randint(1, most))]

    # -- nodes --------------------------------------------------------------------------------------------------------

    def node(self, name: str) -> Any:
        labels = {ZONE: self.choice(["z0", "z1", "z2"]), RACK: self.choice(["r0", "r1"]), "size": self.choice("135x")}
        return a_node(
            name,
            labels={key: value for key, value in labels.items() if not self.sometimes()},
            cpu=self.choice(["1", "2", "4", "4"]),
            memory=self.choice(["1Gi", "2Gi", "4Gi"]),
            pods=self.choice([3, 6, 10]),
            more={"example.com/gpu": "2"} if self.sometimes(0.4) else {},
            taints=[self.taint()] if self.sometimes(0.3) else [],
            unschedulable=self.sometimes(0.08),
        )

    def taint(self) -> Any:
        effect = self.choice(["NoSchedule", "NoExecute", "PreferNoSchedule", "PreferNoSchedule"])
        return {"key": self.choice("kl"), "value": self.choice(["", "v"]), "effect": effect}

    # -- Pods ---------------------------------------------------------------------------------------------------------

    def pod(self, number: int) -> Any:
        affinity: Obj = {}
        if self.sometimes():
            terms = [{"matchExpressions": self.some(self.expression)} for _ in range(self.randint(1, 2))]
            affinity.setdefault("nodeAffinity", {})[REQUIRED] = {"nodeSelectorTerms": terms}
        if self.sometimes(0.3):
            affinity.setdefault("nodeAffinity", {})[PREFERRED] = self.some(
                lambda: {"weight": self.randint(1, 9), "preference": {"matchExpressions": [self.expression()]}}
            )
        for side, likely in (("podAffinity", 0.12), ("podAntiAffinity", 0.2)):
            if self.sometimes(likely):
                affinity.setdefault(side, {})[REQUIRED] = self.some(self.term)
            if self.sometimes(0.25):
                affinity.setdefault(side, {})[PREFERRED] = self.some(
                    lambda: {"weight": self.randint(1, 9), "podAffinityTerm": self.term()}
                )
        spread = self.some(self.constraint) if self.sometimes(0.4) else []
        extra: dict[str, Any] = {"affinity": affinity} if affinity else {}
        if spread:
            extra["topologySpreadConstraints"] = spread
        pod = a_pod(
            f"p{number}",
            namespace=self.choice(["default", "default", "default", "other"]),
            labels={"app": self.choice("xyz")},
            cpu=self.choice(["", "100m", "300m", "600m"]),
            memory=self.choice(["", "100Mi", "400Mi"]),
            more={"example.com/gpu": "1"} if self.sometimes(0.1) else {},
            schedulerName="default-scheduler",
            tolerations=self.some(self.toleration) if self.sometimes(0.4) else [],
            nodeSelector={ZONE: "z0"} if self.sometimes(0.1) else {},
            **extra,
        )
        pod["metadata"]["uid"] = str(number)
        if self.sometimes(0.1):
            more = self.choice([{}, {"hostIP": "10.0.0.1"}, {"hostIP": "10.0.0.2"}, {"protocol": "UDP"}])
            pod["spec"]["containers"][0]["ports"] = [{"hostPort": 80, "containerPort": 80, **more}]
        return pod

    def expression(self) -> Any:
        kind = self.randrange(3)
        if kind == 0:
            values = self.sample(["z0", "z1", "z2"], self.randint(1, 2))
            return {"key": ZONE, "operator": self.choice(["In", "NotIn"]), "values": values}
        if kind == 1:
            return {"key": RACK, "operator": self.choice(["Exists", "Exists", "DoesNotExist"])}
        return {"key": "size", "operator": self.choice(["Gt", "Lt"]), "values": [str(self.randint(1, 4))]}

    def toleration(self) -> Any:
        return self.choice(
            [
                {"key": "k", "operator": "Exists"},
                {"key": "l", "operator": "Exists", "effect": "NoSchedule"},
                {"key": "k", "value": "v", "effect": "NoSchedule"},
                {"operator": "Exists", "effect": "PreferNoSchedule"},
            ]
        )

    def selector(self) -> Any:
        return self.choice(
            [
                {"matchLabels": {"app": self.choice("xyz")}},
                {"matchLabels": {"app": self.choice("xyz")}},
                {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": self.sample("xyz", 2)}]},
                {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
                {},
            ]
        )

    def term(self) -> Any:
        more: Obj = self.choice(
            [
                {},
                {},
                {},
                {"namespaces": ["other"]},
                {"namespaceSelector": {}},
                {"namespaceSelector": {"matchLabels": {"team": "b"}}},
            ]
        )
        return {"labelSelector": self.selector(), "topologyKey": self.choice([HOSTNAME, HOSTNAME, ZONE, RACK]), **more}

    def constraint(self) -> Any:
        action = self.choice(["DoNotSchedule", "ScheduleAnyway"])
        made = {
            "maxSkew": self.randint(1, 3),
            "topologyKey": self.choice([HOSTNAME, ZONE, RACK]),
            "whenUnsatisfiable": action,
            "labelSelector": self.selector(),
        }
        if action == "DoNotSchedule" and self.sometimes():
            made["minDomains"] = self.randint(1, 4)
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if self.sometimes(0.3):
                made[policy] = self.choice(["Honor", "Ignore"])
        return made

    def below(self, limit: int) -> int:
        return self.randrange(limit)


class Namespaces:
    items = {name: {"metadata": {"name": name, "labels": labels}} for name, labels in NAMESPACES.items()}

    def get(self, key: str) -> Any:
        return self.items.get(key)

    def add_index(self, name: str, values_of: Any) -> None: ...

    def by_index(self, name: str, value: str) -> list[Any]:
        return []


@pytest.mark.parametrize("seed", range(tries(20, 100)))
def test_decisions_scores_and_reasons(seed: int) -> None:
    chance = RandomCluster(seed)
    nodes = [chance.node(f"n{number}") for number in range(chance.choice([2, 8, 20]))]
    naive = Naive(nodes, NAMESPACES)
    listers = Listers(namespaces=Namespaces())
    engine = Engine(Configuration(), listers, Nominations(lambda key: None), chance, QueueingHints())  # type: ignore[arg-type]
    for node in nodes:
        engine.snapshot.put_node(node)
    placed: list[Any] = []
    for number in range(60):
        pod = chance.pod(number)
        expected = naive.scores(pod)
        try:
            cycle, choice = engine.decide(pod)
        except FitError as fit_error:
            assert expected == {}
            expected_reasons = Counter(reason for node in naive.nodes for reason in naive.reasons(pod, node))
            assert fit_error.diagnosis.reasons == expected_reasons
        else:
            assert choice.feasible == len(expected)
            assert expected[choice.node] == max(expected.values())
            assert_same_scores(engine, cycle, expected)
            engine.assume(cycle, choice.node)
            naive.place(pod, choice.node)
            placed.append(pod)
        if placed and chance.sometimes(0.3):  # remove some Pods again
            gone = placed.pop(chance.randrange(len(placed)))
            assert engine.forget(gone) is not None
            next(node for node in naive.nodes if gone in node.pods).pods.remove(gone)


def assert_same_scores(engine: Engine, cycle: Cycle, expected: dict[str, int]) -> None:
    """Compare scores, apart from an offset that all nodes have in common and that decides nothing."""
    table = engine.snapshot.table
    feasible = table.valid & False
    for name in expected:
        feasible[table.slots[name]] = True
    totals = engine.profiles["default-scheduler"]._scores(Cycle(cycle.pod, cycle.demand, engine.snapshot), feasible)
    got = {name: 0 if totals is None else int(totals[table.slots[name]]) for name in expected}
    assert len({got[name] - score for name, score in expected.items()}) == 1, (got, expected)
