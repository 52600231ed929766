"""Rules by which a Pod fits a node: taints and node selectors."""

from __future__ import annotations

import pytest

from setpoint.meta.node_fit import required_nodes, tolerates, untolerated
from setpoint.meta.objects import Obj

TAINT = {"key": "team", "value": "blue", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"key": "team", "value": "blue"}, True),
        ({"key": "team", "operator": "Equal", "value": "blue", "effect": "NoSchedule"}, True),
        ({"key": "team", "operator": "Equal", "value": "red"}, False),
        ({"key": "team", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "team", "operator": "Gt", "value": "1"}, False),
    ],
)
def test_tolerations(toleration: Obj, expected: bool) -> None:
    assert tolerates(toleration, TAINT) is expected


def test_first_untolerated_taint() -> None:
    soft = {"key": "soft", "effect": "PreferNoSchedule"}
    hard = {"key": "hard", "effect": "NoExecute"}
    assert untolerated([soft, TAINT, hard], [{"key": "team", "operator": "Exists"}]) is hard
    assert untolerated([soft, TAINT], [], ("NoExecute",)) is None
    assert untolerated([soft], []) is None


def node(name: str = "n", **labels: str) -> Obj:
    return {"metadata": {"name": name, "labels": labels}}


def affinity(*terms: Obj) -> Obj:
    required = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def expression(key: str, operator: str, *values: str) -> Obj:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("spec", "labels", "expected"),
    [
        ({}, {}, True),
        ({"nodeSelector": {"a": "b"}}, {"a": "b", "c": "d"}, True),
        ({"nodeSelector": {"a": "b"}}, {}, False),
        (affinity(), {}, False),
        (affinity({}), {}, False),
        (affinity({"matchExpressions": [expression("a", "In", "x", "y")]}), {"a": "y"}, True),
        (affinity({"matchExpressions": [expression("a", "In", "x", "y")]}), {}, False),
        (affinity({"matchExpressions": [expression("a", "NotIn", "x")]}), {}, True),
        (affinity({"matchExpressions": [expression("a", "NotIn", "x")]}), {"a": "x"}, False),
        (affinity({"matchExpressions": [expression("a", "Exists")]}), {"a": ""}, True),
        (affinity({"matchExpressions": [expression("a", "DoesNotExist")]}), {"a": ""}, False),
        (affinity({"matchExpressions": [expression("a", "Gt", "5")]}), {"a": "6"}, True),
        (affinity({"matchExpressions": [expression("a", "Gt", "5")]}), {"a": "5"}, False),
        (affinity({"matchExpressions": [expression("a", "Lt", "5")]}), {"a": "-1"}, True),
        (affinity({"matchExpressions": [expression("a", "Lt", "5")]}), {"a": "four"}, False),
        (affinity({"matchFields": [expression("metadata.name", "In", "n")]}), {}, True),
        (affinity({"matchFields": [expression("metadata.name", "NotIn", "n")]}), {}, False),
        (affinity({"matchFields": [expression("metadata.name", "In", "n", "m")]}), {}, False),
        (affinity({"matchFields": [expression("metadata.uid", "In", "n")]}), {}, False),
        (
            affinity(
                {"matchExpressions": [expression("a", "Exists")]},
                {"matchExpressions": [expression("b", "Exists"), expression("c", "Exists")]},
            ),
            {"b": "", "c": ""},
            True,
        ),
        (
            {"nodeSelector": {"a": "b"}, **affinity({"matchExpressions": [expression("c", "Exists")]})},
            {"a": "b"},
            False,
        ),
    ],
)
def test_node_constraints_of_a_pod(spec: Obj, labels: dict[str, str], expected: bool) -> None:
    assert required_nodes(spec)(node(**labels)) is expected
