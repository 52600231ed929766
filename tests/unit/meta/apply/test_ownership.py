from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.meta.apply import WrittenVersion, check_managed_fields, exclude, of_fields, retain_times, update
from setpoint.meta.apply.field_set import union
from setpoint.meta.apply.managers import BadManagedFields, ManagerId, TypeMismatch, encode, make_entry, trusted
from setpoint.meta.apply.ownership import _compare_objects, _release
from setpoint.meta.objects import Obj
from setpoint.meta.schema import Field, ListType, Shape, Type

T1, T2, T3 = "2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z", "2026-01-01T00:00:03Z"
V1 = "example.com/v1"
MAIN = exclude(of_fields("status"))
STATUS = exclude(of_fields("spec"))


def workload_object(spec: Obj | None = None, **more: Any) -> Obj:
    metadata = {"name": "x", "uid": "u", **more.pop("metadata", {})}
    spec = {"selector": {}, "containers": None, **(spec or {})}
    return {"apiVersion": V1, "kind": "Workload", "metadata": metadata, "spec": spec, "status": {}, **more}


def written(type_: Type, live: Obj | None, new: Obj, manager: str, now: str, **options: Any) -> Obj:
    """Return the object as it is stored after the write."""
    options.setdefault("reset", STATUS if options.get("subresource") == "status" else MAIN)
    version = WrittenVersion(type_, V1, options.pop("reset"), options.pop("convert", None))
    entries = update(version, live, new, manager=manager, now=now, **options)
    metadata = {key: value for key, value in new["metadata"].items() if key != "managedFields"}
    if entries:
        metadata["managedFields"] = entries
    return {**new, "metadata": metadata}


def owned(obj: Obj) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in obj["metadata"].get("managedFields", [])}


def test_the_creator_owns_what_it_set(workload: Type) -> None:
    new = workload_object(
        {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "containers": [{"name": "c", "resources": {}}]},
        metadata={"labels": {"app": "x"}, "generation": 1},
    )
    before = copy.deepcopy(new)
    entries = update(WrittenVersion(workload, V1, MAIN), None, new, manager="m", now=T1)
    assert new == before
    assert entries == [
        {
            "manager": "m",
            "operation": "Update",
            "apiVersion": V1,
            "time": T1,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                "f:spec": {
                    "f:containers": {'k:{"name":"c"}': {".": {}, "f:name": {}, "f:resources": {}}},
                    "f:replicas": {},
                    "f:selector": {},
                },
            },
        }
    ]
    assert list(entries[0]) == ["manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1"]


def test_an_object_without_fields_has_no_owner(workload: Type) -> None:
    assert update(WrittenVersion(workload, V1), None, workload_object(), manager="m", now=T1) == []


def test_a_change_moves_ownership_and_a_removal_ends_it(workload: Type) -> None:
    live = written(
        workload, None, workload_object({"replicas": 1, "paused": True}, data={"a": "1", "b": "1"}), "one", T1
    )
    new = workload_object({"replicas": 2}, data={"a": "2", "b": "1"})
    after = written(workload, live, new, "two", T2)
    assert owned(after) == {
        "one": {"f:data": {".": {}, "f:b": {}}},
        "two": {"f:data": {"f:a": {}}, "f:spec": {"f:replicas": {}}},
    }
    assert [entry["time"] for entry in after["metadata"]["managedFields"]] == [T1, T2]


def test_entries_are_removed_with_their_last_field(workload: Type) -> None:
    live = written(workload, None, workload_object({"replicas": 1}), "one", T1)
    after = written(workload, live, workload_object({"replicas": 2}), "two", T2)
    assert owned(after) == {"two": {"f:spec": {"f:replicas": {}}}}
    assert owned(written(workload, after, workload_object(), "three", T3)) == {}


def test_the_time_changes_only_with_the_fields(workload: Type) -> None:
    live = written(workload, None, workload_object({"replicas": 1, "paused": True}), "one", T1)
    same = written(workload, live, copy.deepcopy(live), "one", T2)
    assert same == live
    less = written(workload, live, workload_object({"replicas": 1}), "one", T2)
    assert less["metadata"]["managedFields"][0]["time"] == T1
    more = written(workload, live, workload_object({"replicas": 5}), "one", T2)
    assert more["metadata"]["managedFields"][0]["time"] == T2
    assert len(more["metadata"]["managedFields"]) == 1


def test_unchanged_entries_are_shared(workload: Type) -> None:
    live = written(workload, None, workload_object(data={"a": "1"}), "one", T1)
    after = written(workload, live, workload_object({"replicas": 1}, data={"a": "1"}), "two", T2)
    assert after["metadata"]["managedFields"][0] is live["metadata"]["managedFields"][0]


def test_managers_differ_by_operation_version_and_subresource(workload: Type) -> None:
    live = written(workload, None, workload_object({"replicas": 1}), "m", T1)
    new = {**live, "status": {"replicas": 1}, "spec": {**live["spec"], "replicas": 9}}
    after = written(workload, live, new, "m", T1, subresource="status")
    entries = after["metadata"]["managedFields"]
    assert [(entry.get("subresource"), entry["fieldsV1"]) for entry in entries] == [
        (None, {"f:spec": {"f:replicas": {}}}),
        ("status", {"f:status": {"f:replicas": {}}}),
    ]
    assert list(entries[1])[-1] == "subresource"


def test_a_nameless_manager_is_unknown(workload: Type) -> None:
    assert owned(written(workload, None, workload_object({"replicas": 1}), "", T1)).keys() == {"unknown"}


@pytest.mark.parametrize("sent", [[], [{}], [{"manager": ""}]])
def test_clients_may_remove_all_ownership(workload: Type, sent: Any) -> None:
    live = written(workload, None, workload_object({"replicas": 1}), "one", T1)
    cleared = written(workload, live, workload_object({"replicas": 2}, metadata={"managedFields": sent}), "two", T2)
    assert "managedFields" not in cleared["metadata"]
    # And nobody is tracked from then on.
    assert "managedFields" not in written(workload, cleared, workload_object({"replicas": 3}), "two", T3)["metadata"]


@pytest.mark.parametrize(
    "sent",
    [
        None,
        [{"manager": "m", "operation": "Bogus", "apiVersion": V1, "fieldsType": "FieldsV1", "fieldsV1": {}}],
        [{"manager": "m", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {}}],
        [{"manager": "m", "operation": "Update", "apiVersion": V1, "fieldsV1": {}}],
        [{"manager": "m", "operation": "Update", "apiVersion": V1, "fieldsType": "V2", "fieldsV1": {}}],
        [{"manager": "m", "operation": "Update", "apiVersion": V1, "fieldsType": "FieldsV1", "fieldsV1": {"bad": {}}}],
    ],
)
def test_invalid_entries_from_clients_are_ignored(workload: Type, sent: Any) -> None:
    live = written(workload, None, workload_object({"replicas": 1}), "one", T1)
    after = written(workload, live, workload_object({"replicas": 1}, metadata={"managedFields": sent}), "two", T2)
    assert after == live


def test_valid_entries_from_clients_are_used(workload: Type) -> None:
    live = written(workload, None, workload_object({"replicas": 1, "paused": True}), "one", T1)
    entry = {
        "manager": "mine",
        "operation": "Update",
        "apiVersion": V1,
        "time": T1,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:paused": {".": {}}, "f:replicas": {}}},
    }
    new = workload_object({"replicas": 2, "paused": True}, metadata={"managedFields": [entry]})
    assert owned(written(workload, live, new, "two", T2)) == {
        "mine": {"f:spec": {"f:paused": {}}},
        "two": {"f:spec": {"f:replicas": {}}},
    }
    # but not through a subresource
    assert owned(written(workload, live, new, "two", T2, subresource="status", reset=None)).keys() == {"one", "two"}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"operation": "X"}, "operation must be `Apply` or `Update`"),
        ({"operation": "Update"}, "apiVersion must not be empty"),
        ({"operation": "Update", "apiVersion": "v1"}, "missing fieldsType in managed fields entry 0"),
        (
            {"operation": "Update", "apiVersion": "v1", "fieldsType": "V2"},
            'invalid fieldsType "V2" in managed fields entry 0',
        ),
    ],
)
def test_errors_of_managed_fields(entry: Obj, message: str) -> None:
    with pytest.raises(BadManagedFields) as caught:
        check_managed_fields([entry])
    assert str(caught.value) == message


def test_old_updates_are_merged_beyond_ten(workload: Type) -> None:
    obj = written(workload, None, workload_object(data={"k0": "1"}), "m00", "2026-01-01T00:00:00Z")
    for number in range(1, 13):
        new = {**obj, "data": {**obj["data"], f"k{number}": "1"}}
        obj = written(workload, obj, new, f"m{number:02d}", f"2026-01-01T00:00:{number:02d}Z")
        assert len(obj["metadata"]["managedFields"]) <= 10
    entries = obj["metadata"]["managedFields"]
    assert [entry["manager"] for entry in entries] == [
        "ancient-changes",
        *(f"m{number:02d}" for number in range(4, 13)),
    ]
    assert entries[0]["fieldsV1"] == {"f:data": {".": {}, "f:k0": {}, "f:k1": {}, "f:k2": {}, "f:k3": {}}}
    assert entries[0]["time"] == "2026-01-01T00:00:03Z"


def test_entries_of_other_versions_survive(workload: Type) -> None:
    live = written(workload, None, workload_object({"replicas": 1}), "one", T1)
    foreign = {**live["metadata"]["managedFields"][0], "manager": "old", "apiVersion": "example.com/v1beta1"}
    live["metadata"]["managedFields"] = [foreign, *live["metadata"]["managedFields"]]
    after = written(workload, live, workload_object({"replicas": 2}), "two", T2)
    assert foreign in after["metadata"]["managedFields"]

    def same_shape(obj: Obj, version: str) -> tuple[Type, Obj]:
        return workload, {**obj, "apiVersion": version}

    assert owned(written(workload, live, workload_object({"replicas": 2}), "two", T2, convert=same_shape)).keys() == {
        "two"
    }
    gone = written(workload, live, workload_object({"replicas": 1}), "two", T2, convert=lambda obj, version: None)
    assert owned(gone).keys() == {"one"}


def test_an_object_that_does_not_fit_its_other_version(workload: Type) -> None:
    other = Type(
        Shape.STRUCT,
        fields={"apiVersion": Field("apiVersion", Type(Shape.STRING)), "kind": Field("kind", Type(Shape.STRING))},
    )
    live = written(workload, None, workload_object({"replicas": 1}), "one", T1)
    live["metadata"]["managedFields"][0]["apiVersion"] = "example.com/v2"
    with pytest.raises(TypeMismatch, match=r"^failed to convert old object: \.metadata: field not declared in schema$"):
        written(workload, live, workload_object(), "two", T2, convert=lambda obj, version: (other, obj))


def test_fields_that_became_atomic_are_owned_as_a_whole() -> None:
    string = Type(Shape.STRING)

    def custom(list_type: ListType) -> Type:
        items = Type(Shape.LIST, item=string, list_type=list_type)
        return Type(Shape.STRUCT, fields={"items": Field("items", items), "x": Field("x", string)})

    obj: Obj = {"metadata": {}, "items": ["a", "b"]}
    live = written(custom(ListType.SET), None, obj, "one", T1)
    assert owned(live) == {"one": {"f:items": {".": {}, 'v:"a"': {}, 'v:"b"': {}}}}
    after = written(custom(ListType.ATOMIC), live, {**live, "x": "1"}, "two", T2)
    assert owned(after) == {"one": {"f:items": {}}, "two": {"f:x": {}}}


def test_a_change_of_times_alone_is_discarded(workload: Type) -> None:
    live = written(workload, None, workload_object({"replicas": 1}), "one", T1)
    entries = [{**live["metadata"]["managedFields"][0], "time": T2}]
    new = {**live, "metadata": {**live["metadata"], "managedFields": entries}}
    assert retain_times(live, new) == live
    changed = {**new, "spec": {**new["spec"], "replicas": 2}}
    assert retain_times(live, changed) is changed


VALUES = st.sampled_from(["1", "2"])
WRITES = st.lists(
    st.tuples(st.sampled_from(["one", "two", "three"]), st.dictionaries(st.sampled_from("abc"), VALUES)), max_size=6
)


@given(WRITES)
def test_every_field_has_the_manager_that_last_changed_it(
    workload: Type, writes: list[tuple[str, dict[str, str]]]
) -> None:
    live = written(workload, None, workload_object(data={"a": "0"}), "first", T1)
    last = {"a": "first"}
    for manager, data in writes:
        new = workload_object(data=data) if data else workload_object()
        for key, value in data.items():
            if live.get("data", {}).get(key) != value:
                last[key] = manager
        last = {key: who for key, who in last.items() if key in data}
        live = written(workload, live, new, manager, T2)
        owners = {
            element[2:]: who
            for who, fields in owned(live).items()
            for element in fields.get("f:data", {})
            if element != "."
        }
        assert owners == last or "managedFields" not in live["metadata"]
        if "managedFields" not in live["metadata"]:
            return


def recomputed(version: WrittenVersion, live: Obj, new: Obj, who: ManagerId, now: str) -> list[Obj]:
    """Return the managedFields after an update without regard to what the writer owned: it loses all fields that it
    changes, and then owns them."""
    managers = trusted(live["metadata"].get("managedFields"))
    removed, changed = _compare_objects(version.type_, live, new, version.reset)
    _release(version, live, new, managers, None, (removed, changed))
    if changed:
        before = managers[who]["fieldsV1"] if who in managers else {}
        managers[who] = make_entry(who, V1, union(before, changed), now)
    return encode(managers)


CONTAINER = st.fixed_dictionaries(
    {"name": st.sampled_from(["c", "d"]), "resources": st.sampled_from([{}, {"limits": {"cpu": "1"}}])},
    optional={"image": VALUES, "env": st.lists(st.builds(lambda name: {"name": name}, VALUES), max_size=2)},
)
SPECS = st.fixed_dictionaries(
    {"containers": st.lists(CONTAINER, max_size=2, unique_by=lambda each: str(each["name"]))},
    optional={"replicas": st.integers(0, 2), "paused": st.booleans()},
)


@given(st.lists(st.tuples(st.sampled_from(["one", "two"]), SPECS), min_size=1, max_size=6))
def test_updates_of_owned_fields_give_the_same_entries(workload: Type, writes: list[tuple[str, Obj]]) -> None:
    live = written(workload, None, workload_object({"replicas": 9}), "one", T1)
    for number, (manager, spec) in enumerate(writes):
        new, now = workload_object(spec), f"2026-01-01T00:01:0{number}Z"
        if not live["metadata"].get("managedFields"):
            return
        who = ManagerId(manager, "Update", V1, "")
        expected = recomputed(WrittenVersion(workload, V1, MAIN), live, new, who, now)
        live = written(workload, live, new, manager, now)
        assert live["metadata"].get("managedFields", []) == expected
        assert [[*entry] for entry in expected] == [[*each] for each in live["metadata"].get("managedFields", [])]


def test_a_manager_that_owns_what_it_changes_keeps_its_field_set(workload: Type) -> None:
    live = written(workload, None, workload_object({"replicas": 1, "paused": True}), "one", T1)
    after = written(workload, live, workload_object({"replicas": 2, "paused": True}), "one", T2)
    assert after["metadata"]["managedFields"][0]["time"] == T2
    assert owned(after)["one"] is owned(live)["one"]
