from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest

from setpoint.meta.apply import TypeMismatch, WrittenVersion, apply, exclude, of_fields, to_parent, to_scale, update
from setpoint.meta.apply.server_side import ANNOTATION
from setpoint.meta.errors import ApiError, BadRequest, Conflict
from setpoint.meta.objects import Obj
from setpoint.meta.schema import Type

T1, T2, T3 = "2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z", "2026-01-01T00:00:03Z"
V1 = "example.com/v1"
MAIN = exclude(of_fields("status"))
STATUS = exclude(of_fields("spec"))


def config(spec: Obj | None = None, **more: Any) -> Obj:
    metadata = {"name": "x", **more.pop("metadata", {})}
    made = {"apiVersion": V1, "kind": "Workload", "metadata": metadata, **more}
    return {**made, "spec": spec} if spec is not None else made


def applied(type_: Type, live: Obj | None, given: Obj, manager: str = "m", now: str = T1, **options: Any) -> Obj:
    before = copy.deepcopy((live, given))
    options.setdefault("reset", STATUS if options.get("subresource") == "status" else MAIN)
    version = WrittenVersion(type_, V1, options.pop("reset"), options.pop("convert", None))
    result = apply(version, live, given, manager=manager, kind="Workload", now=now, **options)
    assert (live, given) == before
    return result


def updated(type_: Type, live: Obj, new: Obj, manager: str, now: str = T1) -> Obj:
    entries = update(WrittenVersion(type_, V1, MAIN), live, new, manager=manager, now=now)
    return {**new, "metadata": {**new["metadata"], "managedFields": entries}}


def owned(obj: Obj) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in obj["metadata"].get("managedFields", [])}


def test_creates(workload: Type) -> None:
    given = config({"replicas": 1, "containers": [{"name": "c"}]}, data={"a": "1"})
    created = applied(workload, None, given)
    entries = created["metadata"].pop("managedFields")
    assert created == {**given, "spec": {"selector": {}, **given["spec"]}, "status": {}}
    assert entries == [
        {
            "manager": "m",
            "operation": "Apply",
            "apiVersion": V1,
            "time": T1,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:data": {"f:a": {}},
                "f:spec": {"f:containers": {'k:{"name":"c"}': {".": {}, "f:name": {}}}, "f:replicas": {}},
            },
        }
    ]


def test_an_empty_configuration_owns_nothing(workload: Type) -> None:
    assert "managedFields" not in applied(workload, None, config())["metadata"]


def test_the_same_again_is_the_live_object(workload: Type) -> None:
    live = applied(workload, None, config(data={"a": "1"}))
    assert applied(workload, live, config(data={"a": "1"}), now=T2) is live


def test_a_shared_value_has_two_owners_and_the_second_no_time(workload: Type) -> None:
    live = applied(workload, None, config(data={"a": "1"}), "one")
    both = applied(workload, live, config(data={"a": "1"}), "two", T2)
    assert owned(both) == {"one": {"f:data": {"f:a": {}}}, "two": {"f:data": {"f:a": {}}}}
    assert ["time" in entry for entry in both["metadata"]["managedFields"]] == [False, True]
    with pytest.raises(Conflict):
        applied(workload, both, config(data={"a": "2"}), "one", T3)


def test_omitted_fields_are_removed(workload: Type) -> None:
    live = applied(
        workload, None, config({"replicas": 1, "containers": [{"name": "a"}, {"name": "b"}]}, data={"k": "1"})
    )
    after = applied(workload, live, config({"containers": [{"name": "b"}]}), now=T2)
    assert after["spec"] == {"selector": {}, "containers": [{"name": "b"}]}
    assert not after.get("data")
    assert owned(after) == {"m": {"f:spec": {"f:containers": {'k:{"name":"b"}': {".": {}, "f:name": {}}}}}}
    assert after["metadata"]["managedFields"][0]["time"] == T2


def test_fields_of_other_managers_stay(workload: Type) -> None:
    live = applied(workload, None, config({"containers": [{"name": "a"}]}, data={"k": "1", "l": "1"}), "one")
    live = applied(workload, live, config({"containers": [{"name": "a", "image": "i"}]}, data={"k": "1"}), "two")
    after = applied(workload, live, config(), "one", T2)
    assert after["data"] == {"k": "1"}
    assert after["spec"]["containers"] == [{"name": "a", "image": "i"}]
    assert owned(after).keys() == {"two"}


def test_fields_that_nobody_applied_stay(workload: Type) -> None:
    live = applied(workload, None, config({"containers": [{"name": "a", "image": "1"}]}))
    live["spec"]["containers"][0]["args"] = ["defaulted"]
    after = applied(workload, live, config({"containers": [{"name": "a"}]}), now=T2)
    assert after["spec"]["containers"] == [{"name": "a", "args": ["defaulted"]}]


def test_update_managers_lose_fields_only_to_force(workload: Type) -> None:
    live = applied(workload, None, config({"replicas": 1}), "one")
    scaled = updated(workload, live, {**live, "spec": {**live["spec"], "replicas": 3}}, "hpa", T2)
    with pytest.raises(Conflict) as caught:
        applied(workload, scaled, config({"replicas": 1}), "one", T3)
    assert caught.value.message == f'Apply failed with 1 conflict: conflict with "hpa" using {V1}: .spec.replicas'
    assert caught.value.details == {
        "causes": [
            {
                "reason": "FieldManagerConflict",
                "message": f'conflict with "hpa" using {V1}',
                "field": ".spec.replicas",
            }
        ]
    }
    forced = applied(workload, scaled, config({"replicas": 1}), "one", T3, force=True)
    assert forced["spec"]["replicas"] == 1
    assert owned(forced) == {"one": {"f:spec": {"f:replicas": {}}}}
    # Or the field is given up.
    assert applied(workload, scaled, config({}), "one", T3)["spec"]["replicas"] == 3


def test_conflicts_by_manager(workload: Type) -> None:
    live = applied(workload, None, config(data={"a": "1", "b": "1"}), "two")
    live = applied(
        workload, live, config({"containers": [{"name": "c", "ports": [{"port": 80, "title": "t"}]}]}), "one"
    )
    live = applied(workload, live, config(status={"replicas": 1}), "st", subresource="status")
    wanted = config(
        {"containers": [{"name": "c", "ports": [{"port": 80, "title": "u"}]}]},
        data={"a": "2", "b": "2"},
        status={"replicas": 2},
    )
    with pytest.raises(Conflict) as caught:
        applied(workload, live, wanted, "me", reset=None)
    assert caught.value.message == (
        "Apply failed with 4 conflicts: "
        'conflicts with "one":\n- .spec.containers[name="c"].ports[port=80,protocol="TCP"].title\n'
        'conflicts with "st" with subresource "status":\n- .status.replicas\n'
        'conflicts with "two":\n- .data.a\n- .data.b'
    )
    assert [cause["field"] for cause in (caught.value.details or {})["causes"]][-1] == ".data.b"


def test_status_and_main_resource_do_not_conflict(workload: Type) -> None:
    live = applied(workload, None, config({"replicas": 1}, status={"replicas": 5}), "one")
    assert owned(live) == {"one": {"f:spec": {"f:replicas": {}}}}
    after = applied(workload, live, config({"replicas": 7}, status={"replicas": 6}), "two", T2, subresource="status")
    assert owned(after) == {"one": {"f:spec": {"f:replicas": {}}}, "two": {"f:status": {"f:replicas": {}}}}


def test_atomic_parts_are_owned_as_a_whole(workload: Type) -> None:
    live = applied(workload, None, config({"selector": {"matchLabels": {"a": "1"}}}), "one")
    with pytest.raises(Conflict, match=r"\.spec\.selector$"):
        applied(workload, live, config({"selector": {"matchLabels": {"b": "1"}}}), "two")
    forced = applied(workload, live, config({"selector": {"matchLabels": {"b": "1"}}}), "two", force=True)
    assert forced["spec"]["selector"] == {"matchLabels": {"b": "1"}}


def test_fields_from_before_the_first_apply(workload: Type) -> None:
    live = config({"replicas": 1, "selector": {}, "containers": None}, status={}, metadata={"uid": "u"})
    with pytest.raises(Conflict) as caught:
        applied(workload, live, config({"replicas": 2}))
    assert caught.value.message == (
        f'Apply failed with 1 conflict: conflict with "before-first-apply" using {V1}: .spec.replicas'
    )
    after = applied(workload, live, config({"replicas": 1}), now=T2)
    assert owned(after) == {"before-first-apply": {"f:spec": {"f:replicas": {}}}, "m": {"f:spec": {"f:replicas": {}}}}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (config(bogus=1), ".bogus: field not declared in schema"),
        (config({"replicas": "x"}), ".spec.replicas: expected numeric (int or float), got string"),
        (config({"paused": 1}), ".spec.paused: expected boolean, got &{1}"),
        (config(data="x"), ".data: expected map, got &{x}"),
        (config(data={"a": 1}), ".data.a: expected string, got &value.valueUnstructured{Value:1}"),
        (config({"containers": {}}), ".spec.containers: expected list, got &{map[]}"),
        (config({"containers": [{"name": "a"}] * 2}), '.spec.containers: duplicate entries for key [name="a"]'),
        (config(metadata={"finalizers": ["a", "a"]}), '.metadata.finalizers: duplicate entries for key [="a"]'),
        (
            config(metadata={"finalizers": [None]}),
            ".metadata.finalizers: element 0: associative list without keys has an element that's an explicit null",
        ),
        (
            config(status={"conditions": [{"status": "True"}]}),
            ".status.conditions: element 0: associative list with keys has an element that omits all key fields "
            '["type"] '
            "(and doesn't have default values for any key fields)",
        ),
        (
            config({"replicas": "x"}, data=1),
            "errors:\n  .data: expected map, got &{1}\n  .spec.replicas: expected numeric (int or float), got string",
        ),
    ],
)
def test_configurations_of_the_wrong_type(workload: Type, given: Obj, message: str) -> None:
    with pytest.raises(TypeMismatch) as caught:
        applied(workload, None, given)
    assert caught.value.message == (f"failed to create typed patch object (/x; {V1}, Kind=Workload): {message}")
    assert (caught.value.code, caught.value.reason) == (500, "")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "invalid object type: /, Kind="),
        ({"apiVersion": "v1", "kind": "Pod"}, "invalid object type: /v1, Kind=Pod"),
        ({"apiVersion": V1}, "invalid object type: example.com/v1, Kind="),
        (config(metadata={"managedFields": []}), "metadata.managedFields must be nil"),
    ],
)
def test_bad_requests(workload: Type, given: Obj, message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        applied(workload, None, given)
    assert caught.value.message == message


def client_side(type_: Type, data: dict[str, str], live_data: dict[str, str]) -> Obj:
    """Return an object as kubectl's client-side apply writes it."""
    last = orjson.dumps(config(data=data)).decode()
    obj = config(
        {"selector": {}, "containers": None}, data=live_data, status={}, metadata={"annotations": {ANNOTATION: last}}
    )
    entries = update(WrittenVersion(type_, V1, MAIN), None, obj, manager="kubectl-client-side-apply", now=T1)
    obj["metadata"] |= {"uid": "u", "managedFields": entries}
    return obj


def test_migration_from_client_side_apply(workload: Type) -> None:
    live = client_side(workload, {"a": "1"}, {"a": "1"})
    after = applied(workload, live, config(data={"a": "<2>"}), "kubectl", T2)
    assert after["data"] == {"a": "<2>"}
    assert after["metadata"]["annotations"][ANNOTATION] == (
        f'{{"apiVersion":"{V1}","data":{{"a":"\\u003c2\\u003e"}},"kind":"Workload","metadata":{{"name":"x"}}}}\n'
    )
    assert owned(after)["kubectl"] == {"f:data": {"f:a": {}}}
    # Anybody else is in conflict, and the annotation stays as it is.
    with pytest.raises(Conflict):
        applied(workload, live, config(data={"a": "2"}), "other", T2)


def test_fields_changed_since_then_still_conflict(workload: Type) -> None:
    live = client_side(workload, {"a": "1", "b": "1"}, {"a": "1", "b": "changed"})
    with pytest.raises(Conflict) as caught:
        applied(workload, live, config(data={"a": "2", "b": "2"}), "kubectl", T2)
    assert [cause["field"] for cause in (caught.value.details or {})["causes"]] == [".data.b"]


def test_an_annotation_that_grew_too_large_is_dropped(workload: Type) -> None:
    live = client_side(workload, {"a": "1"}, {"a": "1"})
    after = applied(workload, live, config(data={"a": "x" * 300_000}), "kubectl", T2)
    assert after["metadata"]["annotations"] == {}


def test_fields_are_pruned_in_the_version_in_which_they_were_applied(workload: Type) -> None:
    def convert(obj: Obj, version: str) -> tuple[Type, Obj] | None:
        return (workload, {**obj, "apiVersion": version}) if version != "example.com/v0" else None

    live = applied(workload, None, config(data={"a": "1", "b": "1"}))
    live["metadata"]["managedFields"][0]["apiVersion"] = "example.com/v1beta1"
    assert applied(workload, live, config(data={"a": "1"}), now=T2, convert=convert)["data"] == {"a": "1"}
    assert applied(workload, live, config(data={"a": "1"}), now=T2)["data"] == {"a": "1", "b": "1"}
    live["metadata"]["managedFields"][0]["apiVersion"] = "example.com/v0"
    assert applied(workload, live, config(data={"a": "1"}), now=T2, convert=convert)["data"] == {"a": "1", "b": "1"}


def test_replicas_through_the_scale_subresource(workload: Type) -> None:
    where = {V1: ("f:spec", "f:replicas")}
    live = applied(workload, None, config({"replicas": 1, "paused": True}), "one")
    entries = live["metadata"]["managedFields"]
    scale = to_scale(entries, where)
    assert scale == [{**entries[0], "apiVersion": "autoscaling/v1", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]
    assert to_parent(entries, scale, V1, where) == entries
    taken = {
        "manager": "hpa",
        "operation": "Update",
        "apiVersion": "autoscaling/v1",
        "time": T2,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:replicas": {}}},
        "subresource": "scale",
    }
    after = to_parent(entries, [taken], V1, where)
    assert [(entry["manager"], entry["fieldsV1"], entry["apiVersion"]) for entry in after] == [
        ("one", {"f:spec": {"f:paused": {}}}, V1),
        ("hpa", {"f:spec": {"f:replicas": {}}}, V1),
    ]


def test_every_refusal_is_an_api_error(workload: Type) -> None:
    assert issubclass(TypeMismatch, ApiError)
