from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.meta.objects import Obj
from setpoint.meta.patch import PatchError, PatchRefused, PatchUndecodable, PatchUnprocessable, apply_strategic
from setpoint.meta.schema import Field, Shape, Type

STRING = Type(Shape.STRING, go="string")
MERGE = frozenset({"merge"})


def struct(name: str, *fields: Field) -> Type:
    return Type(
        Shape.STRUCT, name=f"example.v1.{name}", go=f"v1.{name}", fields={field.name: field for field in fields}
    )


def listing(item: Type) -> Type:
    return Type(Shape.LIST, go="[]", item=item)


def mapping(item: Type) -> Type:
    return Type(Shape.MAP, go="map[string]", item=item)


SOURCE = struct("Source", Field("path", STRING), Field("secret", STRING))
ENV = struct("EnvVar", Field("name", STRING), Field("value", STRING))
CONTAINER = struct(
    "Container",
    Field("name", STRING),
    Field("image", STRING),
    Field("env", listing(ENV), patch_strategy=MERGE, merge_key="name"),
    Field("args", listing(STRING)),
)
SPEC = struct(
    "Spec",
    Field("containers", listing(CONTAINER), patch_strategy=MERGE, merge_key="name"),
    Field("tolerations", listing(ENV)),
    Field("finalizers", listing(STRING), patch_strategy=MERGE),
    Field(
        "strategy",
        struct("Strategy", Field("type", STRING), Field("rolling", SOURCE)),
        patch_strategy=frozenset({"retainKeys"}),
    ),
    Field("volumes", listing(SOURCE), patch_strategy=frozenset({"merge", "retainKeys"}), merge_key="path"),
    Field("selector", SOURCE, patch_strategy=frozenset({"replace"})),
    Field("labels", mapping(STRING)),
    Field("nested", mapping(SOURCE)),
    Field("raw", Type(Shape.ANY, go="any")),
    Field("keyless", listing(ENV), patch_strategy=MERGE),
    Field("matrix", listing(listing(STRING)), patch_strategy=MERGE),
)


def containers(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "image": name} for name in names]


def named(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


@pytest.mark.parametrize(
    ("doc", "patch", "expected"),
    [
        # lists with a merge key
        (
            {"containers": containers("a", "b")},
            {"containers": [{"name": "b", "image": "new"}]},
            {"containers": [{"name": "a", "image": "a"}, {"name": "b", "image": "new"}]},
        ),
        ({"containers": containers("a")}, {"containers": containers("n")}, {"containers": containers("n", "a")}),
        (
            {"containers": containers("a", "b")},
            {"containers": [{"name": "a", "$patch": "delete"}]},
            {"containers": containers("b")},
        ),
        (
            {"containers": containers("a", "b")},
            {"containers": [{"$patch": "replace"}, *containers("n")]},
            {"containers": containers("n")},
        ),
        (
            {"containers": [{"name": "a", "env": [{"name": "A", "value": "1"}]}]},
            {"containers": [{"name": "a", "env": [{"name": "A", "value": None}, {"name": "B", "value": "2"}]}]},
            {"containers": [{"name": "a", "env": [{"name": "A"}, {"name": "B", "value": "2"}]}]},
        ),
        # an explicit order
        (
            {"containers": containers("a", "b", "c")},
            {"$setElementOrder/containers": named("c", "a")},
            {"containers": containers("b", "c", "a")},
        ),
        (
            {"finalizers": ["a", "b"]},
            {"$setElementOrder/finalizers": ["c", "b", "a"], "finalizers": ["c"]},
            {"finalizers": ["c", "b", "a"]},
        ),
        # one goes, one comes, with an order: what kubectl sends. The new one takes the free place at the end.
        (
            {"containers": containers("d", "b", "a")},
            {
                "$setElementOrder/containers": named("e", "b"),
                "containers": [{"name": "e", "image": "e"}, {"name": "b", "$patch": "delete"}],
            },
            {"containers": containers("d", "a", "e")},
        ),
        # lists without
        ({"tolerations": named("a", "b")}, {"tolerations": named("c")}, {"tolerations": named("c")}),
        ({"finalizers": ["a", "b"]}, {"finalizers": ["c", "a"]}, {"finalizers": ["c", "a", "b"]}),
        ({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}, {"finalizers": ["b"]}),
        # maps
        ({"labels": {"a": "1", "b": "2"}}, {"labels": {"a": None, "c": "3"}}, {"labels": {"b": "2", "c": "3"}}),
        ({"labels": {"a": "1"}}, {"labels": {"$patch": "replace", "b": "2"}}, {"labels": {"b": "2"}}),
        ({"labels": {"a": "1"}}, {"labels": {"$patch": "delete"}}, {"labels": {}}),
        ({"labels": {"a": "1"}}, {"labels": None}, {}),
        ({}, {"labels": {"a": None, "b": "1"}}, {"labels": {"b": "1"}}),
        ({}, {"labels": {"$patch": "delete"}}, {}),
        ({"selector": {"path": "x"}}, {"selector": {"secret": "y"}}, {"selector": {"secret": "y"}}),
        (
            {"strategy": {"type": "Rolling", "rolling": {"path": "x"}}},
            {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}},
            {"strategy": {"type": "Recreate"}},
        ),
        (
            {"volumes": [{"path": "v", "secret": "s"}]},
            {"volumes": [{"path": "v", "$retainKeys": ["path"]}]},
            {"volumes": [{"path": "v"}]},
        ),
        # what is not in the type, and what changes its kind
        ({"unknown": 1}, {"unknown": 2, "more": {"x": 1}}, {"unknown": 2, "more": {"x": 1}}),
        ({"labels": {"a": "1"}}, {"labels": 5}, {"labels": 5}),
        ({}, {"containers": [{"image": "no name"}]}, {"containers": [{"image": "no name"}]}),
    ],
)
def test_merges(doc: dict[str, Any], patch: dict[str, Any], expected: dict[str, Any]) -> None:
    before = copy.deepcopy((doc, patch))
    assert apply_strategic(SPEC, doc, patch) == expected
    assert (doc, patch) == before


@pytest.mark.parametrize(
    ("doc", "patch", "kind", "message"),
    [
        ({}, {"$patch": "bogus"}, PatchRefused, "unknown patch type: bogus in map: map[$patch:bogus]"),
        ({}, {"$patch": 1}, PatchRefused, "unknown patch type: %!s(int64=1) in map: map[$patch:1]"),
        (
            {"containers": containers("a")},
            {"containers": [{"image": "z"}]},
            PatchRefused,
            "map: map[image:z] does not contain declared merge key: name",
        ),
        (
            {"containers": containers("a")},
            {"containers": [{"name": "a", "$patch": "merge"}]},
            PatchRefused,
            "merging lists cannot yet be specified in the patch",
        ),
        (
            {"containers": containers("a")},
            {"containers": ["x"]},
            PatchRefused,
            "list element types are not identical: [[map[image:a name:a]] [x]]",
        ),
        ({"strategy": {}}, {"strategy": {"$retainKeys": "x"}}, PatchUndecodable, "invalid patch format of retainKeys"),
        (
            {"strategy": {}},
            {"strategy": {"$retainKeys": ["rolling"], "type": "x"}},
            PatchUndecodable,
            "invalid patch format of retainKeys",
        ),
        ({}, {"$setElementOrder": []}, PatchUndecodable, "invalid patch format of setElementOrder list"),
        ({}, {"$deleteFromPrimitiveListX/a": []}, PatchUndecodable, "invalid patch format of primitive list"),
        (
            {"containers": containers("a", "b")},
            {"$setElementOrder/containers": named("b", "a"), "containers": containers("a", "b")},
            PatchRefused,
            "The order in patch list:\n[map[image:a name:a] map[image:b name:b]]\n doesn't match $setElementOrder "
            "list:\n[map[name:b] map[name:a]]\n",
        ),
        ({"matrix": [["a"]]}, {"matrix": [["b"]]}, PatchRefused, "unexpected slice of slice"),
        ({"finalizers": [["a"]]}, {"finalizers": [["b"]]}, PatchUnprocessable, "lists of lists are not supported"),
        (
            {"keyless": named("a")},
            {"keyless": named("b")},
            PatchRefused,
            "cannot merge lists without merge key for struct",
        ),
        (
            {"nested": {"a": {"path": "x"}}},
            {"nested": {"a": {"path": "y"}}},
            PatchRefused,
            "merging an object in json but data type is not struct, instead is: map",
        ),
        (
            {"raw": {"a": {"b": 1}}},
            {"raw": {"a": {"b": 2}}},
            PatchRefused,
            'unable to find api field in struct RawExtension for the json field "a"',
        ),
        (
            {"odd": {"a": 1}},
            {"odd": {"a": 2}},
            PatchRefused,
            'unable to find api field in struct Spec for the json field "odd"',
        ),
        (
            {"labels": {}},
            [],
            PatchUndecodable,
            "json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (
            {"finalizers": ["a"]},
            {"$setElementOrder/finalizers": ["a"], "finalizers": None},
            PatchRefused,
            "expected a []interface {}, but received a %!s(<nil>)",
        ),
    ],
)
def test_errors(doc: dict[str, Any], patch: Any, kind: type[PatchError], message: str) -> None:
    with pytest.raises(PatchError) as caught:
        apply_strategic(SPEC, doc, patch)
    assert type(caught.value) is kind
    assert caught.value.message == message


def test_status_codes_of_errors() -> None:
    assert PatchRefused("x").to_api().status() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "x",
        "code": 500,
    }
    assert PatchUndecodable("x").to_api().reason == "BadRequest"
    assert PatchUnprocessable("x").to_api().code == 422


def test_no_change_is_the_same_document() -> None:
    doc: Obj = {"containers": containers("a", "b"), "finalizers": ["a"], "labels": {"a": "1"}}
    patch = {"containers": [{"name": "a", "image": "a"}], "finalizers": ["a"], "labels": {"a": "1", "gone": None}}
    assert apply_strategic(SPEC, doc, patch) is doc
    assert apply_strategic(SPEC, doc, None) is doc
    changed = apply_strategic(SPEC, doc, {"containers": [{"name": "b", "image": "new"}]})
    assert changed["containers"][0] is doc["containers"][0]
    assert changed["labels"] is doc["labels"]


NAMES = st.lists(st.sampled_from("abcde"), unique=True, max_size=4)
VALUE = st.sampled_from(["1", "2"])


def _named(name: str, item: Obj) -> Obj:
    return {"name": name, **item}


def items(more: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[list[dict[str, Any]]]:
    return NAMES.flatmap(lambda names: st.tuples(*(more.map(partial(_named, name)) for name in names)).map(list))


ENVS = items(st.fixed_dictionaries({}, optional={"value": VALUE}))
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "containers": items(st.fixed_dictionaries({}, optional={"image": VALUE, "env": ENVS, "args": NAMES})),
        "finalizers": NAMES,
        "tolerations": ENVS,
        "labels": st.dictionaries(st.sampled_from("xy"), VALUE),
    },
)


def difference(old: Any, new: Any) -> dict[str, Any]:
    """Return the patch from one document to the other that kubectl would make."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        current = old.get(key)
        if current == value:
            continue
        if key in ("containers", "env", "finalizers") and not value:
            patch[key] = None
            continue
        if key in ("containers", "env") and current and value:
            by_name = {item["name"]: item for item in current}
            changes = [
                {"name": item["name"], **difference(by_name[item["name"]], item)} if item["name"] in by_name else item
                for item in value
            ]
            gone = [
                {"name": name, "$patch": "delete"} for name in by_name if all(item["name"] != name for item in value)
            ]
            patch[key] = changes + gone
            patch["$setElementOrder/" + key] = [{"name": item["name"]} for item in value]
        elif key == "finalizers" and current and value:
            patch[key] = [item for item in value if item not in current]
            patch["$deleteFromPrimitiveList/" + key] = [item for item in current if item not in value]
            patch["$setElementOrder/" + key] = value
        elif isinstance(value, dict) and isinstance(current, dict):
            patch[key] = difference(current, value)
        else:
            patch[key] = value
    return patch


@given(SPECS, SPECS)
def test_generated_patch_turns_one_document_into_the_other(old: dict[str, Any], new: dict[str, Any]) -> None:
    patch = difference(old, new)
    before = copy.deepcopy((old, patch))
    result = apply_strategic(SPEC, old, patch)
    assert without_empty(result) == without_empty(new)
    assert (old, patch) == before


@given(SPECS, SPECS, SPECS)
def test_three_way_patch_retains_fields_of_others(original: Any, modified: Any, live: Any) -> None:
    """As kubectl apply: deletions from the last configuration, additions against the live object."""
    patch = {key: value for key, value in difference(original, modified).items() if value is None}
    patch |= {key: value for key, value in modified.items() if key in ("labels", "tolerations")}
    result = apply_strategic(SPEC, live, patch)
    for key in original:
        if key not in modified:
            assert key not in result
    for key, value in live.items():
        if key not in original and key not in modified:
            assert result[key] == value
    assert modified.get("labels", {}).items() <= result.get("labels", {}).items()


def without_empty(value: Any) -> Any:
    """Remove empty lists, which a merge does not distinguish from absent ones."""
    if isinstance(value, dict):
        return {key: without_empty(member) for key, member in value.items() if member not in ([], {})}
    if isinstance(value, list):
        return [without_empty(item) for item in value]
    return value
