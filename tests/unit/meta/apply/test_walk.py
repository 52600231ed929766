from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.meta.apply.field_set import EMPTY, FieldSet, difference, intersection, paths
from setpoint.meta.apply.merge import extract_items, merge, remove_items, with_named_fields
from setpoint.meta.apply.walk import object_walk_of, walk_of
from setpoint.meta.objects import Obj
from setpoint.meta.schema import Type


def compare(type_: Type, old: Any, new: Any) -> tuple[FieldSet, FieldSet]:
    removed, changed = walk_of(type_).diff(old, new) or (None, None)
    return removed or EMPTY, changed or EMPTY


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"replicas": 1, "paused": None}, {"f:paused": {}, "f:replicas": {}}),
        ({"selector": {"matchLabels": {"a": "b"}}}, {"f:selector": {}}),
        ({"raw": {"a": {"b": 1}}}, {"f:raw": {}}),
        ({"free": {"a": {"b": 1}, "l": [1]}}, {"f:free": {"f:a": {".": {}, "f:b": {}}, "f:l": {}}}),
        ({"free": [1]}, {"f:free": {}}),
        ({"containers": []}, {}),
        ({"containers": None}, {"f:containers": {}}),
        (
            {"containers": [{"name": "c", "resources": {}, "args": ["x"]}]},
            {"f:containers": {'k:{"name":"c"}': {".": {}, "f:args": {}, "f:name": {}, "f:resources": {}}}},
        ),
        (
            {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]},
            {"f:containers": {'k:{"name":"c"}': {".": {}, "f:name": {}, "f:resources": {"f:limits": {"f:cpu": {}}}}}},
        ),
        (
            {"containers": [{"ports": [{"port": 80}, {"protocol": "UDP"}]}]},
            {
                "f:containers": {
                    'k:{"name":""}': {
                        ".": {},
                        "f:ports": {
                            'k:{"port":0,"protocol":"UDP"}': {".": {}, "f:protocol": {}},
                            'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}},
                        },
                    },
                },
            },
        ),
        # repeated items are owned as one, without what is in them
        ({"containers": [{"name": "c", "image": "1"}, {"name": "c"}]}, {"f:containers": {'k:{"name":"c"}': {}}}),
    ],
)
def test_fields_of_a_configuration(workload: Type, spec: Any, expected: FieldSet) -> None:
    fields = walk_of(workload).members({"spec": spec})
    assert fields == ({"f:spec": expected} if expected else {})


def test_sets_and_maps(workload: Type) -> None:
    metadata = {"name": "x", "labels": {"b": "1", "a": "2"}, "finalizers": ["z", "y"]}
    expected: Obj = {"f:finalizers": {'v:"y"': {}, 'v:"z"': {}}, "f:labels": {"f:a": {}, "f:b": {}}}
    assert walk_of(workload).members({"metadata": metadata}) == {"f:metadata": {**expected, "f:name": {}}}
    assert object_walk_of(workload).members({"kind": "Workload", "metadata": metadata}) == {"f:metadata": expected}
    assert object_walk_of(workload).members({"metadata": {}}) == {}


@pytest.mark.parametrize(
    ("old", "new", "removed", "changed"),
    [
        ({"replicas": 1}, {"replicas": 2}, {}, {"f:replicas": {}}),
        ({"replicas": 1}, {}, {"f:replicas": {}}, {}),
        (
            {"containers": None},
            {"containers": [{"name": "c"}]},
            {},
            {"f:containers": {'k:{"name":"c"}': {".": {}, "f:name": {}}}},
        ),
        (
            {},
            {"containers": [{"name": "c"}]},
            {},
            {"f:containers": {".": {}, 'k:{"name":"c"}': {".": {}, "f:name": {}}}},
        ),
        ({"containers": None}, {"containers": []}, {}, {"f:containers": {}}),
        (
            {"containers": [{"name": "a"}, {"name": "b", "image": "1"}]},
            {"containers": [{"name": "b", "image": "2"}]},
            {"f:containers": {'k:{"name":"a"}': {".": {}, "f:name": {}}}},
            {"f:containers": {'k:{"name":"b"}': {"f:image": {}}}},
        ),
        ({"containers": [{"name": "a"}, {"name": "b"}]}, {"containers": [{"name": "b"}, {"name": "a"}]}, {}, {}),
        # items become repeated, and cease to be
        (
            {"containers": [{"name": "a"}]},
            {"containers": [{"name": "a"}, {"name": "a"}]},
            {"f:containers": {'k:{"name":"a"}': {".": {}, "f:name": {}}}},
            {"f:containers": {'k:{"name":"a"}': {}}},
        ),
        (
            {"containers": [{"name": "a"}, {"name": "a"}]},
            {"containers": [{"name": "a"}]},
            {"f:containers": {'k:{"name":"a"}': {}}},
            {"f:containers": {'k:{"name":"a"}': {".": {}, "f:name": {}}}},
        ),
        ({"selector": {"matchLabels": {"a": "1"}}}, {"selector": {"matchLabels": {"b": "1"}}}, {}, {"f:selector": {}}),
        ({"free": {"a": {"b": 1}}}, {"free": 1}, {"f:free": {"f:a": {".": {}, "f:b": {}}}}, {"f:free": {}}),
        ({"free": 1}, {"free": {"a": 1}}, {}, {"f:free": {".": {}, "f:a": {}}}),
        ({"free": None}, {"free": {"a": 1}}, {}, {"f:free": {"f:a": {}}}),
    ],
)
def test_comparison(workload: Type, old: Any, new: Any, removed: FieldSet, changed: FieldSet) -> None:
    def below(fields: FieldSet) -> FieldSet:
        spec: FieldSet = fields.get("f:spec", {})
        return spec

    got_removed, got_changed = compare(workload, {"spec": old}, {"spec": new})
    assert (below(got_removed), below(got_changed)) == (removed, changed)


VALUE = st.sampled_from(["1", "2"])


def objects(least: int) -> st.SearchStrategy[Any]:
    """Generate objects whose lists and maps, if present, have a minimum number of members."""
    names = st.lists(st.sampled_from("abc"), unique=True, min_size=least, max_size=3)
    labels = st.dictionaries(st.sampled_from("xyz"), VALUE, min_size=least, max_size=3)
    more = {"image": VALUE, "args": names, "resources": st.fixed_dictionaries({}, optional={"limits": labels})}

    def containers(given_names: list[str]) -> st.SearchStrategy[Any]:
        return st.tuples(*(st.fixed_dictionaries({"name": st.just(name)}, optional=more) for name in given_names)).map(
            list
        )

    spec = {"replicas": st.integers(0, 2), "containers": names.flatmap(containers), "selector": labels, "free": labels}
    metadata = {"labels": labels, "finalizers": names}
    return st.fixed_dictionaries(
        {"metadata": st.fixed_dictionaries({}, optional=metadata)},
        optional={"spec": st.fixed_dictionaries({}, optional=spec), "data": labels},
    )


OBJECTS = objects(0)


@given(OBJECTS, OBJECTS)
def test_comparison_finds_every_difference(workload: Type, old: Any, new: Any) -> None:
    before = copy.deepcopy((old, new))
    removed, changed = compare(workload, old, new)
    assert (old, new) == before
    assert compare(workload, old, old) == (EMPTY, EMPTY)
    assert not intersection(removed, changed)
    # Seen from the other side, what was removed is what comes.
    back_removed, back_changed = compare(workload, new, old)
    assert set(paths(removed)) <= set(paths(back_changed))
    assert set(paths(back_removed)) <= set(paths(changed))


@given(objects(1), objects(1))
def test_merging_only_adds_and_sets(workload: Type, live: Any, config: Any) -> None:
    before = copy.deepcopy((live, config))
    merged = merge(workload, live, config)
    assert (live, config) == before
    removed, _ = compare(workload, live, merged)
    assert removed == EMPTY
    # Every leaf of the configuration is in the result; what was an empty map may have members by now.
    applied, found = walk_of(workload).members(config), with_named_fields(workload, walk_of(workload).members(merged))
    assert not difference(applied, found)
    assert merge(workload, merged, config) == merged
    assert merge(workload, live, {}) is live


def test_merged_lists_keep_both_orders(workload: Type) -> None:
    def names(*given_names: str) -> Any:
        return {"spec": {"containers": [{"name": name} for name in given_names]}}

    merged = merge(workload, names("a", "b", "c", "d"), names("d", "new", "b"))
    assert merged == names("a", "c", "d", "new", "b")


def test_null_sets_scalars_but_empties_no_container(workload: Type) -> None:
    live = {"data": {"a": "1"}, "spec": {"replicas": 1, "containers": [{"name": "a"}], "selector": {"matchLabels": {}}}}
    config = {"data": None, "spec": {"replicas": None, "containers": None, "selector": None}}
    assert merge(workload, live, config) == {
        "data": {"a": "1"},
        "spec": {"replicas": None, "containers": [{"name": "a"}], "selector": None},
    }


@given(OBJECTS)
def test_removing_everything_and_nothing(workload: Type, obj: Any) -> None:
    fields = walk_of(workload).members(obj)
    before = copy.deepcopy(obj)
    assert remove_items(workload, obj, EMPTY) is obj
    left = remove_items(workload, obj, fields)
    assert obj == before
    assert not intersection(walk_of(workload).members(left or {}), fields) or left is obj


def test_extracting(workload: Type) -> None:
    obj = {
        "data": {"a": "1", "b": "2"},
        "spec": {"replicas": 1, "containers": [{"name": "a", "image": "i"}, {"name": "b"}]},
    }
    wanted = {"f:data": {"f:b": {}}, "f:spec": {"f:containers": {'k:{"name":"a"}': {".": {}, "f:name": {}}}}}
    assert extract_items(workload, obj, wanted) == {"data": {"b": "2"}, "spec": {"containers": [{"name": "a"}]}}
