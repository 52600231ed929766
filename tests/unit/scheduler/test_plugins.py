"""Single plugins, as far as the comparison with the naive scheduler does not cover them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from scheduler_objects import HOSTNAME, ZONE, a_node, a_pod

from setpoint.meta.objects import Obj
from setpoint.scheduler.cluster_events import Action, QueueingHints, node_changes, pod_changes
from setpoint.scheduler.config import Configuration
from setpoint.scheduler.engine import Engine
from setpoint.scheduler.framework import Cycle, FitError, Handle, ScorePlugin
from setpoint.scheduler.listers import Listers
from setpoint.scheduler.nominations import Nominations
from setpoint.scheduler.plugins.image_locality import ImageLocality
from setpoint.scheduler.plugins.inter_pod_affinity import InterPodAffinity
from setpoint.scheduler.plugins.node_affinity import NodeAffinity
from setpoint.scheduler.plugins.node_ports import NodePorts
from setpoint.scheduler.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from setpoint.scheduler.plugins.node_resources_fit import NodeResourcesFit
from setpoint.scheduler.plugins.node_unschedulable import NodeUnschedulable
from setpoint.scheduler.plugins.pod_topology_spread import PodTopologySpread
from setpoint.scheduler.plugins.taint_toleration import TaintToleration
from setpoint.scheduler.snapshot import Snapshot
from setpoint.system import RandomIds

MEBIBYTE = 1024 * 1024


class FixedLister:
    """A lister with fixed objects."""

    def __init__(self, *objects: Any) -> None:
        self.items: Mapping[str, Any] = {
            "/".join(filter(None, (obj["metadata"].get("namespace"), obj["metadata"]["name"]))): obj for obj in objects
        }

    def get(self, key: str) -> Any:
        return self.items.get(key)

    def add_index(self, name: str, values_of: Any) -> None:
        self._values_of = values_of

    def by_index(self, name: str, value: str) -> list[Any]:
        return [obj for obj in self.items.values() if value in self._values_of(obj)]


def snapshot(*nodes: Any, pods: tuple[Any, ...] = ()) -> Snapshot:
    made = Snapshot()
    for node in nodes:
        made.put_node(node)
    for pod in pods:
        made.put(pod, pod["spec"]["nodeName"])
    return made


def scores(plugin: ScorePlugin, pod: Any, found: Snapshot) -> dict[str, int] | None:
    cycle = Cycle(pod, found.demands.of(pod), found)
    by_slot = plugin.score(cycle, found.table.valid)
    return None if by_slot is None else {name: int(by_slot[slot]) for name, slot in found.table.slots.items()}


def reasons(found: Snapshot, pod: Any, listers: Listers | None = None) -> str:
    engine = Engine(Configuration(), listers or Listers(), Nominations(lambda key: None), RandomIds(1), QueueingHints())
    for node in found.table.nodes:
        if node is not None:
            engine.snapshot.put_node(node)
            for placed in found.pods_on(node["metadata"]["name"]):
                engine.snapshot.put(placed.pod, placed.node)
    pod["spec"]["schedulerName"] = "default-scheduler"
    try:
        engine.decide(pod)
    except FitError as fit_error:
        return str(fit_error)
    return ""


# -- resources --------------------------------------------------------------------------------------------------------


def test_init_containers_sidecars_and_overhead_are_requested() -> None:
    def container(name: str, cpu: str, **more: Any) -> Any:
        return {"name": name, "image": "i", "resources": {"requests": {"cpu": cpu}}, **more}

    pod = a_pod("p", overhead={"cpu": "100m"})
    pod["spec"]["containers"] = [container("a", "1"), container("b", "500m")]
    pod["spec"]["initContainers"] = [
        container("sidecar", "300m", restartPolicy="Always"),
        container("setup", "1700m"),
    ]
    # The init container needs 2 with the sidecar, the main containers 1.8, and there is overhead.
    assert snapshot().demands.of(pod).requests == {"cpu": 2100}
    assert reasons(snapshot(a_node("n", cpu="2100m")), pod) == ""
    assert reasons(snapshot(a_node("n", cpu="2099m")), pod) == "0/1 nodes are available: 1 Insufficient cpu."


def test_pod_level_requests() -> None:
    pod = a_pod("p", cpu="100m", resources={"requests": {"cpu": "2", "memory": "1Gi"}})
    assert snapshot().demands.of(pod).requests == {"cpu": 2000, "memory": 1024 * MEBIBYTE}


@pytest.mark.parametrize(
    ("strategy", "shape", "expected"),
    [
        ("LeastAllocated", (), {"empty": 87, "half": 37, "none": 0}),
        ("MostAllocated", (), {"empty": 12, "half": 62, "none": 0}),
        ("RequestedToCapacityRatio", ((0, 0), (100, 10)), {"empty": 12, "half": 62, "none": 0}),
        ("RequestedToCapacityRatio", ((0, 10), (50, 0), (100, 10)), {"empty": 76, "half": 24, "none": 0}),
    ],
)
def test_scoring_strategies(strategy: str, shape: Any, expected: dict[str, int]) -> None:
    nodes = (
        a_node("empty", cpu="8", memory="8Gi"),
        a_node("half", cpu="8", memory="8Gi"),
        a_node("none", cpu="0", memory="0"),
    )
    found = snapshot(*nodes, pods=(a_pod("q", "half", cpu="4", memory="4Gi"),))
    pod = a_pod("p", cpu="1", memory="1Gi")
    plugin = NodeResourcesFit(strategy, shape=shape)
    assert scores(plugin, pod, found) == expected
    # The result is the same when only the changed node is recomputed.
    found.put(a_pod("r", "empty", cpu="4", memory="4Gi"), "empty")
    again = scores(plugin, pod, found)
    assert again is not None and again["empty"] == expected["half"]


def test_extended_resources_count_only_if_requested() -> None:
    found = snapshot(a_node("gpu", more={"example.com/gpu": "4"}), a_node("plain"))
    plugin = NodeResourcesFit(resources=(("example.com/gpu", 1),))
    assert scores(plugin, a_pod("p", more={"example.com/gpu": "1"}), found) == {"gpu": 75, "plain": 0}
    assert scores(plugin, a_pod("p"), found) == {"gpu": 0, "plain": 0}


def test_ignored_resources() -> None:
    found = snapshot(a_node("n"))
    pod = a_pod("p", more={"example.com/gpu": "1", "other.com/x": "1"})
    cycle = Cycle(pod, found.demands.of(pod), found)
    plugin = NodeResourcesFit(ignored_resources=["example.com/gpu"], ignored_groups=["other.com"])
    assert not any(refusal.where[found.table.slots["n"]] for refusal in plugin.refusals(cycle))


def test_balanced_allocation() -> None:
    found = snapshot(a_node("even"), a_node("lean"), pods=(a_pod("q", "lean", cpu="2"),))
    plugin = NodeResourcesBalancedAllocation()
    # The Pod balances one node and unbalances the other.
    assert scores(plugin, a_pod("p", memory="4Gi"), found) == {"even": 62, "lean": 87}
    assert scores(plugin, a_pod("p"), found) is None


def test_image_locality() -> None:
    def image(name: str, size: int) -> Any:
        return {"names": [name], "sizeBytes": size * MEBIBYTE}

    found = snapshot(
        a_node("has", images=[image("big:latest", 1000), image("small:1", 20)]),
        a_node("has-too", images=[image("big:latest", 1000)]),
        a_node("has-not"),
        a_node("neither"),
    )
    pod = a_pod("p")
    pod["spec"]["containers"][0]["image"] = "big"
    # Half of the nodes have the image, so half of its size counts.
    assert scores(ImageLocality(), pod, found) == {"has": 48, "has-too": 48, "has-not": 0, "neither": 0}
    pod["spec"]["containers"][0]["image"] = "small:1"
    assert scores(ImageLocality(), dict(pod), snapshot(a_node("n"))) is None


# -- spreading by default ---------------------------------------------------------------------------------------------


def test_default_spread_of_services_and_owners() -> None:
    labels = {"app": "web"}
    service = {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": labels}}
    owner = {"metadata": {"name": "rs", "namespace": "default"}, "spec": {"selector": {"matchLabels": {"app": "db"}}}}
    listers = Listers(services=FixedLister(service), replica_sets=FixedLister(owner))
    found = snapshot(
        a_node("a", labels={ZONE: "z"}),
        a_node("b", labels={ZONE: "z"}),
        a_node("c"),
        pods=(a_pod("p1", "a", labels=labels), a_pod("p2", "b", labels={"app": "db"})),
    )
    plugin = PodTopologySpread(Handle(found, listers))
    served = scores(plugin, a_pod("new", labels=labels), found)
    assert served is not None and served["a"] < served["b"] < served["c"]
    owned = a_pod("new", labels={"app": "db"})
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "1", "controller": True}
    ]
    ours = scores(plugin, owned, found)
    assert ours is not None and ours["b"] < ours["a"] < ours["c"]
    assert scores(plugin, a_pod("loner", labels={"app": "x"}), found) is None


def test_match_label_keys() -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": HOSTNAME,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "matchLabelKeys": ["version", "absent"],
    }
    found = snapshot(
        a_node("a"), a_node("b", cpu="0"), pods=(a_pod("old", "a", labels={"app": "web", "version": "1"}),)
    )
    new = a_pod("new", cpu="1", labels={"app": "web", "version": "2"}, topologySpreadConstraints=[constraint])
    assert reasons(found, new) == ""
    same = a_pod("same", cpu="1", labels={"app": "web", "version": "1"}, topologySpreadConstraints=[constraint])
    assert "1 node(s) didn't match pod topology spread constraints." in reasons(found, same)


# -- names ------------------------------------------------------------------------------------------------------------


def by_name(*names: str, operator: str = "In") -> Any:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": operator, "values": [name]}]} for name in names]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def test_node_affinity_by_name() -> None:
    found = snapshot(a_node("a"), a_node("b"), a_node("c"))
    assert reasons(found, a_pod("p", affinity=by_name("a", "b"))) == ""
    assert reasons(found, a_pod("p", affinity=by_name("b", operator="NotIn"))) == ""
    both = by_name("a")
    term = both["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0]
    term["matchFields"].append({"key": "metadata.name", "operator": "In", "values": ["b"]})
    assert reasons(found, a_pod("p", affinity=both)) == "0/3 nodes are available: pod affinity terms conflict."
    assert reasons(
        found,
        a_pod(
            "p",
            affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}},
        ),
    ) == ("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.")


def test_nodes_are_added_and_removed_with_their_pods() -> None:
    found = Snapshot()
    found.put(a_pod("early", "later", cpu="1"), "later")
    for number in range(40):
        found.put_node(a_node(f"n{number}"))
    found.put_node(a_node("later"))
    table = found.table
    assert table.requested[table.rows["cpu"], table.slots["later"]] == 1000
    found.remove_node("later")
    found.put_node(a_node("another"))
    assert table.requested[table.rows["cpu"], table.slots["another"]] == 0
    found.put_node(a_node("later"))
    assert table.requested[table.rows["cpu"], table.slots["later"]] == 1000
    assert found.remove("default/early") is not None
    assert table.free[table.rows["pods"], table.slots["later"]] == 110


# -- hints ------------------------------------------------------------------------------------------------------------


def test_actions_of_node_changes() -> None:
    node = a_node("n")
    newer: Any = {**node, "metadata": {**node["metadata"], "resourceVersion": "2"}}
    assert node_changes(node, newer) == []
    assert node_changes(node, a_node("n", cpu="8")) == [Action.NODE_ALLOCATABLE]
    assert node_changes(node, a_node("n", labels={"a": "b"})) == [Action.NODE_LABEL]
    assert node_changes(a_node("n", unschedulable=True), node) == [Action.NODE_TAINT]
    assert node_changes(node, a_node("n", unschedulable=True)) == []
    assert node_changes(node, a_node("n", taints=[{"key": "k", "effect": "NoSchedule"}])) == [Action.NODE_TAINT]


def test_actions_of_pod_changes() -> None:
    pod = a_pod("p", cpu="1")
    assert pod_changes(pod, a_pod("p", cpu="1", labels={"a": "b"})) == [Action.POD_LABEL]
    assert pod_changes(pod, a_pod("p", cpu="500m")) == [Action.POD_SCALE_DOWN]
    assert pod_changes(pod, a_pod("p", cpu="2")) == [Action.POD_SCALE_UP]
    assert pod_changes(a_pod("p", cpu="1", schedulingGates=[{"name": "g"}]), pod) == [Action.POD_GATES_ELIMINATED]
    assert pod_changes(pod, a_pod("p", cpu="1", tolerations=[{}])) == [Action.POD_TOLERATION]
    pending: Any = {**pod, "status": {"phase": "Pending"}}
    assert pod_changes(pod, pending) == [Action.OTHER]


def hint(plugin: Any, resource: str, action: Action, pod: Any, old: Any, new: Any) -> bool:
    asked = [
        interest.hint is None or interest.hint(pod, old, new)
        for interest in plugin.interests()
        if interest.event.resource == resource and interest.event.action & action
    ]
    return any(asked)


TAINTED = a_node("n", taints=[{"key": "k", "effect": "NoSchedule"}])
LABELLED = a_node("n", labels={"disk": "ssd"})
PLAIN = a_node("n")
ON_SSD = a_pod("p", nodeSelector={"disk": "ssd"})
WITH_PORT = a_pod("p")
WITH_PORT["spec"]["containers"][0]["ports"] = [{"hostPort": 80, "containerPort": 80}]
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": HOSTNAME}
        ]
    }
}
TOGETHER = {"podAffinity": APART["podAntiAffinity"]}
SPREAD = [
    {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }
]
NOBODY = Handle(Snapshot(), Listers(services=FixedLister()))
SPREADING = a_pod("p", topologySpreadConstraints=SPREAD)
X, Y = a_pod("q", "n", labels={"app": "x"}), a_pod("q", "n", labels={"app": "y"})


@pytest.mark.parametrize(
    ("plugin", "resource", "action", "pod", "old", "new", "helps"),
    [
        (TaintToleration(), "Node", Action.ADD, a_pod("p"), None, TAINTED, False),
        (TaintToleration(), "Node", Action.ADD, a_pod("p"), None, PLAIN, True),
        (TaintToleration(), "Node", Action.NODE_TAINT, a_pod("p"), TAINTED, PLAIN, True),
        (TaintToleration(), "Node", Action.NODE_TAINT, a_pod("p"), PLAIN, PLAIN, False),
        (TaintToleration(), "Node", Action.NODE_LABEL, a_pod("p"), TAINTED, PLAIN, False),
        (NodeUnschedulable(), "Node", Action.NODE_TAINT, a_pod("p"), a_node("n", unschedulable=True), PLAIN, True),
        (NodeUnschedulable(), "Node", Action.ADD, a_pod("p"), None, a_node("n", unschedulable=True), False),
        (NodeAffinity(), "Node", Action.NODE_LABEL, ON_SSD, PLAIN, LABELLED, True),
        (NodeAffinity(), "Node", Action.NODE_LABEL, ON_SSD, LABELLED, LABELLED, False),
        (NodeAffinity(), "Node", Action.ADD, ON_SSD, None, PLAIN, False),
        (NodeResourcesFit(), "Node", Action.ADD, a_pod("p", cpu="2"), None, a_node("n", cpu="1"), False),
        (NodeResourcesFit(), "Node", Action.ADD, a_pod("p", cpu="2"), None, a_node("n", cpu="2"), True),
        (
            NodeResourcesFit(),
            "Node",
            Action.NODE_ALLOCATABLE,
            a_pod("p", cpu="2"),
            PLAIN,
            a_node("n", memory="9Gi"),
            False,
        ),
        (NodeResourcesFit(), "Node", Action.NODE_ALLOCATABLE, a_pod("p", cpu="2"), PLAIN, a_node("n", cpu="5"), True),
        (NodeResourcesFit(), "AssignedPod", Action.DELETE, a_pod("p", cpu="2"), X, None, True),
        (NodeResourcesFit(), "AssignedPod", Action.ADD, a_pod("p", cpu="2"), None, X, False),
        (
            NodeResourcesFit(),
            "AssignedPod",
            Action.POD_SCALE_DOWN,
            a_pod("p", cpu="2"),
            a_pod("q", "n", cpu="2"),
            a_pod("q", "n", cpu="1"),
            True,
        ),
        (
            NodeResourcesFit(),
            "AssignedPod",
            Action.POD_SCALE_DOWN,
            a_pod("p", memory="1Gi"),
            a_pod("q", "n", cpu="2"),
            a_pod("q", "n", cpu="1"),
            False,
        ),
        (NodePorts(), "AssignedPod", Action.DELETE, WITH_PORT, {**WITH_PORT}, None, True),
        (NodePorts(), "AssignedPod", Action.DELETE, WITH_PORT, X, None, False),
        (InterPodAffinity(NOBODY), "AssignedPod", Action.DELETE, a_pod("p", affinity=APART), X, None, True),
        (InterPodAffinity(NOBODY), "AssignedPod", Action.DELETE, a_pod("p", affinity=APART), Y, None, False),
        (
            InterPodAffinity(NOBODY),
            "AssignedPod",
            Action.DELETE,
            a_pod("p", labels={"app": "x"}),
            a_pod("q", "n", affinity=APART),
            None,
            True,
        ),
        (InterPodAffinity(NOBODY), "AssignedPod", Action.ADD, a_pod("p", affinity=TOGETHER), None, X, True),
        (InterPodAffinity(NOBODY), "AssignedPod", Action.ADD, a_pod("p", affinity=TOGETHER), None, Y, False),
        (InterPodAffinity(NOBODY), "AssignedPod", Action.POD_LABEL, a_pod("p", affinity=APART), X, Y, True),
        (InterPodAffinity(NOBODY), "Node", Action.ADD, a_pod("p", affinity=APART), None, PLAIN, True),
        (InterPodAffinity(NOBODY), "Node", Action.NODE_LABEL, a_pod("p", affinity=TOGETHER), PLAIN, LABELLED, False),
        (PodTopologySpread(NOBODY), "AssignedPod", Action.ADD, SPREADING, None, X, True),
        (PodTopologySpread(NOBODY), "AssignedPod", Action.ADD, SPREADING, None, Y, False),
        (PodTopologySpread(NOBODY), "Node", Action.ADD, SPREADING, None, PLAIN, False),
        (PodTopologySpread(NOBODY), "Node", Action.ADD, SPREADING, None, a_node("n", labels={ZONE: "z"}), True),
        (PodTopologySpread(NOBODY), "Node", Action.DELETE, SPREADING, a_node("n", labels={ZONE: "z"}), None, True),
    ],
)
def test_queueing_hints(
    plugin: Any, resource: str, action: Action, pod: Obj, old: Obj | None, new: Obj | None, helps: bool
) -> None:
    assert hint(plugin, resource, action, pod, old, new) is helps
