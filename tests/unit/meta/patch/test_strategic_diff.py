"""Generation of strategic merge patches."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from effort import tries
from hypothesis import given, settings
from hypothesis import strategies as st

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.meta.patch import (
    PatchRefused,
    apply_merge_patch,
    apply_strategic,
    merge_patch_between,
    three_way_merge,
    three_way_strategic,
    two_way_strategic,
)

POD = builtin("pods").type
SERVICE = builtin("services").type
DEPLOYMENT = builtin("deployments", "apps").type


def pod(*containers: Obj, **spec: Any) -> Obj:
    return {"spec": {"containers": list(containers), **spec}}


@pytest.mark.parametrize(
    ("before", "wanted", "now", "patch"),
    [
        # nothing to do
        ({"data": {}}, {"data": {}}, {"data": {}, "x": 1}, {}),
        # a container goes, another stays, and the order is told
        (
            pod({"name": "a", "image": "1"}, {"name": "b", "image": "1"}),
            pod({"name": "a", "image": "1"}),
            pod({"name": "a", "image": "1"}, {"name": "b", "image": "1"}),
            {
                "spec": {
                    "$setElementOrder/containers": [{"name": "a"}],
                    "containers": [{"$patch": "delete", "name": "b"}],
                }
            },
        ),
        # an image changes
        (
            pod({"name": "a", "image": "1"}),
            pod({"name": "a", "image": "2"}),
            pod({"name": "a", "image": "1", "tty": True}),
            {"spec": {"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "a", "image": "2"}]}},
        ),
        # scalars that merge
        (
            {"metadata": {"finalizers": ["a", "b"]}},
            {"metadata": {"finalizers": ["b", "c"]}},
            {"metadata": {"finalizers": ["a", "b", "d"]}},
            {
                "metadata": {
                    "$deleteFromPrimitiveList/finalizers": ["a"],
                    "$setElementOrder/finalizers": ["b", "c"],
                    "finalizers": ["c"],
                }
            },
        ),
        # a field that is no longer wanted, one that others took away, one that others added
        (
            {"metadata": {"labels": {"a": "1", "b": "1"}}},
            {"metadata": {"labels": {"b": "1"}}},
            {"metadata": {"labels": {"a": "1", "c": "1"}}},
            {"metadata": {"labels": {"a": None, "b": "1"}}},
        ),
        # volumes keep only the keys that are wanted
        (
            pod(volumes=[{"name": "v", "emptyDir": {}}]),
            pod(volumes=[{"name": "v", "hostPath": {"path": "/x"}}]),
            pod(volumes=[{"name": "v", "emptyDir": {}}]),
            {
                "spec": {
                    "$setElementOrder/volumes": [{"name": "v"}],
                    "volumes": [
                        {
                            "$retainKeys": ["hostPath", "name"],
                            "emptyDir": None,
                            "hostPath": {"path": "/x"},
                            "name": "v",
                        }
                    ],
                }
            },
        ),
    ],
)
def test_three_way_patches(before: Obj, wanted: Obj, now: Obj, patch: Obj) -> None:
    assert three_way_strategic(POD, before, wanted, now) == patch


def test_ports_merge_by_their_number() -> None:
    now = {"spec": {"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]}}
    wanted = {"spec": {"ports": [{"port": 81, "name": "b"}]}}
    patch = three_way_strategic(SERVICE, now, wanted, now)
    assert apply_strategic(SERVICE, now, patch) == wanted


def test_retain_keys_replaces_a_union() -> None:
    before = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    wanted = {"spec": {"strategy": {"type": "Recreate"}}}
    patch = three_way_strategic(DEPLOYMENT, before, wanted, before)
    assert patch == {"spec": {"strategy": {"$retainKeys": ["type"], "rollingUpdate": None, "type": "Recreate"}}}
    assert apply_strategic(DEPLOYMENT, before, patch) == wanted


def test_a_conflict_is_rejected_without_overwrite() -> None:
    before, wanted, now = ({"data": {"a": value}} for value in ("1", "2", "3"))
    assert three_way_strategic(POD, before, wanted, now) == {"data": {"a": "2"}}
    with pytest.raises(PatchRefused, match="conflicts with changes made from original to current"):
        three_way_strategic(POD, before, wanted, now, overwrite=False)


def test_three_way_merge_patches() -> None:
    assert three_way_merge({"a": 1, "b": {"c": 1}}, {"a": 2, "b": {"d": 1}}, {"a": 1, "b": {"c": 1}, "e": [1]}) == {
        "a": 2,
        "b": {"c": None, "d": 1},
    }
    assert three_way_merge({}, {"l": [1]}, {"l": [True]}) == {"l": [1]}
    with pytest.raises(PatchRefused, match="precondition failed"):
        three_way_merge({}, {"kind": "A"}, {"kind": "B"})


_NAMES = st.sampled_from(["a", "b", "c", "d"])
_TEXT = st.sampled_from(["1", "2", "3"])


def _listed(key: str, item: Any) -> Any:
    return st.lists(item, max_size=4, unique_by=lambda one: one[key])


_ENV = st.fixed_dictionaries({"name": _NAMES, "value": _TEXT})
_PORT = st.fixed_dictionaries({"containerPort": st.integers(1, 4)}, optional={"name": _NAMES})
_CONTAINER = st.fixed_dictionaries(
    {"name": _NAMES, "image": _TEXT},
    optional={"env": _listed("name", _ENV), "ports": _listed("containerPort", _PORT), "args": st.lists(_TEXT)},
)
_PODS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries({"labels": st.dictionaries(_NAMES, _TEXT)}),
        "spec": st.fixed_dictionaries({"containers": _listed("name", _CONTAINER)}, optional={"nodeName": _TEXT}),
    }
)


@settings(max_examples=tries(80, 300))
@given(_PODS, _PODS)
def test_two_way_patch_turns_one_document_into_the_other(old: Obj, new: Obj) -> None:
    frozen = json.dumps([old, new])
    made = apply_strategic(POD, old, two_way_strategic(POD, old, new))
    assert _tidy(made) == _tidy(new)
    assert apply_merge_patch(old, merge_patch_between(old, new)) == new
    assert json.dumps([old, new]) == frozen


@settings(max_examples=tries(80, 300))
@given(_PODS, _PODS, _PODS)
def test_three_way_patch_sets_the_modified_fields(before: Obj, wanted: Obj, now: Obj) -> None:
    made = apply_strategic(POD, now, three_way_strategic(POD, before, wanted, now))
    assert _within(wanted, made)
    assert three_way_strategic(POD, wanted, wanted, made).keys() <= {"spec", "metadata"}


def _tidy(obj: Obj) -> Obj:
    """Remove empty lists that merge, which a patch does not distinguish from absent ones."""
    obj = deepcopy(obj)
    for container in obj["spec"]["containers"]:
        for key in ("env", "ports"):
            if not container.get(key):
                container.pop(key, None)
    return obj


def _within(wanted: Any, made: Any) -> bool:
    if isinstance(wanted, dict):
        return all(key in made and _within(value, made[key]) for key, value in wanted.items() if value != [])
    if isinstance(wanted, list) and wanted and isinstance(wanted[0], dict):
        return all(any(_within(item, one) for one in made or ()) for item in wanted)
    return bool(wanted == made)
