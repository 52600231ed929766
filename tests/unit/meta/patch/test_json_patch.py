from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.meta.patch import (
    PatchTooLarge,
    PatchUndecodable,
    PatchUnprocessable,
    apply_json_patch,
    decode_json_patch,
    unknown_operation_fields,
)

DOC: dict[str, Any] = {"data": {"a": "1", "n": 1, "nil": None}, "list": ["x", "y", "z"], "a/b": {"m~n": 1}}


def op(kind: str, path: str, **more: Any) -> dict[str, Any]:
    return {"op": kind, "path": path, **more}


@pytest.mark.parametrize(
    ("operations", "change"),
    [
        ([op("add", "/data/b", value="2")], {"data": {"a": "1", "n": 1, "nil": None, "b": "2"}}),
        ([op("add", "/data/b")], {"data": {"a": "1", "n": 1, "nil": None, "b": None}}),
        ([op("replace", "/data/zz", value="2")], {"data": {"a": "1", "n": 1, "nil": None, "zz": "2"}}),
        ([op("copy", "/data/b", **{"from": "/data/zz"})], {"data": {"a": "1", "n": 1, "nil": None, "b": None}}),
        ([op("add", "data/b", value="2")], {"b": "2"}),
        ([op("add", "/list/-", value="w")], {"list": ["x", "y", "z", "w"]}),
        ([op("add", "/list/1", value="w")], {"list": ["x", "w", "y", "z"]}),
        ([op("add", "/list/-1", value="w")], {"list": ["x", "y", "z", "w"]}),
        ([op("replace", "/list/-1", value="w")], {"list": ["x", "y", "w"]}),
        ([op("remove", "/list/0")], {"list": ["y", "z"]}),
        ([op("remove", "/list/+1")], {"list": ["x", "z"]}),
        ([op("move", "/list/0", **{"from": "/list/2"})], {"list": ["z", "x", "y"]}),
        ([op("replace", "/a~1b/m~0n", value=2)], {"a/b": {"m~n": 2}}),
        ([op("test", "/data/zz", value=None)], {}),
        ([op("test", "/data/nil")], {}),
        ([op("test", "/list", value=["x", "y", "z"])], {}),
        ([op("test", "", value=DOC)], {}),
        ([], {}),
    ],
)
def test_applies(operations: list[Any], change: dict[str, Any]) -> None:
    assert apply_json_patch(DOC, operations) == {**DOC, **change}


def test_replaces_the_whole_document() -> None:
    assert apply_json_patch(DOC, [op("replace", "", value={"new": 1})]) == {"new": 1}
    assert apply_json_patch(DOC, [op("replace", "", value=[1])]) == [1]


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (op("test", "/data/a", value="2"), "testing value /data/a failed: test failed"),
        (op("test", "/data/n", value=1.0), "testing value /data/n failed: test failed"),
        (op("test", "/data/n", value=True), "testing value /data/n failed: test failed"),
        (op("test", "/no/a", value="2"), "test operation does not apply: is missing path: /no/a: missing value"),
        (op("bogus", "/data/a"), "Unexpected kind: bogus"),
        ({"path": "/data/a"}, "Unexpected kind: unknown"),
        ({"op": "remove"}, "remove operation failed to decode path: missing value"),
        (
            {"op": "move", "path": "/x"},
            "move operation failed to decode from: operation, missing from field: missing value",
        ),
        (
            op("remove", "/data/zz"),
            "error in remove for path: '/data/zz': Unable to remove nonexistent key: zz: missing value",
        ),
        (op("remove", ""), 'remove operation does not apply: doc is missing path: "": missing value'),
        (op("add", "/no/a", value=1), 'add operation does not apply: doc is missing path: "/no/a": missing value'),
        (
            op("add", "/data/a/b", value=1),
            'add operation does not apply: doc is missing path: "/data/a/b": missing value',
        ),
        (
            op("add", "/list/5", value=1),
            "error in add for path: '/list/5': Unable to access invalid index: 5: invalid index referenced",
        ),
        (
            op("replace", "/list/3", value=1),
            "replace operation does not apply: doc is missing key: /list/3: missing value",
        ),
        (
            op("add", "/list/x", value=1),
            "error in add for path: '/list/x': value was not a proper array index: 'x': "
            'strconv.Atoi: parsing "x": invalid syntax',
        ),
        (
            op("move", "/b", **{"from": "/data/zz"}),
            "error in move for path: 'zz': Unable to remove nonexistent key: zz: missing value",
        ),
        (op("replace", "", value="x"), "replace operation value must be object or array: %!w(<nil>)"),
    ],
)
def test_patches_that_cannot_be_applied(operation: dict[str, Any], message: str) -> None:
    with pytest.raises(PatchUnprocessable) as caught:
        apply_json_patch(DOC, [operation])
    assert caught.value.message == message
    answer = caught.value.to_api().status()
    assert (answer["code"], answer["reason"], answer["details"]) == (422, "Invalid", {})
    assert answer["message"] == "the server rejected our request due to an error in our request"


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"op": "add"}, "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
        ([1], "json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"),
        ([{"op": 1}], "json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string"),
    ],
)
def test_invalid_patches(patch: Any, message: str) -> None:
    with pytest.raises(PatchUndecodable) as caught:
        apply_json_patch(DOC, orjson.dumps(patch))
    assert caught.value.to_api().code == 400
    assert caught.value.message == "error decoding patch: " + message


def test_null_is_an_empty_patch() -> None:
    assert apply_json_patch(DOC, b"null") is DOC
    assert decode_json_patch(None) == []


def test_unknown_members_are_named() -> None:
    found = unknown_operation_fields([{"op": "test", "path": "/a"}, {"op": "test", "bogus": 1}])
    assert found == ['json patch unknown field "[1].bogus"']


def test_too_many_operations_are_rejected() -> None:
    operations = [op("test", "/data/a", value="1")] * 10_001
    with pytest.raises(PatchTooLarge) as caught:
        apply_json_patch(DOC, operations)
    assert caught.value.to_api().message == (
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    )
    assert apply_json_patch(DOC, operations[1:]) == DOC


def test_copies_do_not_amplify() -> None:
    doc = {"a": "x" * 1000}
    operations: list[Any] = [op("copy", "/b", **{"from": "/a"})]
    for _ in range(20):  # each doubles what is there
        operations += [
            op("add", "/c", value={}),
            op("copy", "/c/x", **{"from": "/b"}),
            op("copy", "/c/y", **{"from": "/b"}),
        ]
        operations += [op("move", "/b", **{"from": "/c"})]
    with pytest.raises(
        PatchUnprocessable, match=r"accumulated size increase of copy is \d+, exceeding the limit 3145728"
    ):
        apply_json_patch(doc, operations)


def test_copies_do_not_nest_without_end() -> None:
    operations = [op("copy", "/a" * depth, **{"from": "/a"}) for depth in (2, 3, 5, 9, 17, 33, 65, 129, 257, 513)]
    with pytest.raises(PatchUnprocessable, match=r"^exceeded max depth$"):
        apply_json_patch({"a": {"b": 1}}, operations)
    deeper = [op("add", "/a" * depth, value={}) for depth in range(1, 1500)]
    with pytest.raises(PatchUnprocessable, match=r"^exceeded max depth$"):
        apply_json_patch({}, [*deeper, op("copy", "/b", **{"from": "/a"}), op("test", "", value={})])


def test_a_copy_is_independent() -> None:
    result = apply_json_patch(
        DOC,
        [
            op("add", "/data/new", value=1),
            op("copy", "/other", **{"from": "/data"}),
            op("add", "/data/later", value=2),
            op("add", "/other/mine", value=3),
        ],
    )
    assert "later" not in result["other"]
    assert "mine" not in result["data"]


def test_unchanged_parts_are_shared() -> None:
    result = apply_json_patch(DOC, [op("add", "/data/b", value=1)])
    assert result["list"] is DOC["list"]


KEYS = st.sampled_from(["a", "b", "c/d", "e~f"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
DOCS = st.dictionaries(KEYS, VALUES, max_size=4)
TOKENS = KEYS | st.sampled_from(["0", "1", "-", "-1"])
PATHS = st.lists(TOKENS, min_size=1, max_size=3).map(
    lambda tokens: "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in tokens)
)
OPERATIONS = st.fixed_dictionaries(
    {
        "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]),
        "path": PATHS,
        "from": PATHS,
        "value": VALUES,
    }
)


@given(DOCS, st.lists(OPERATIONS, max_size=5))
def test_agrees_with_a_naive_application(doc: dict[str, Any], operations: list[Any]) -> None:
    before = copy.deepcopy((doc, operations))
    try:
        expected: Any = naive(copy.deepcopy(doc), copy.deepcopy(operations))
    except (LookupError, ValueError, TypeError):
        expected = PatchUnprocessable
    try:
        got: Any = apply_json_patch(doc, operations)
    except PatchUnprocessable:
        got = PatchUnprocessable
    assert got == expected
    assert (doc, operations) == before


def naive(doc: Any, operations: list[Any]) -> Any:
    """Apply a patch naively on a deep copy; raise whatever Python raises."""
    for operation in operations:
        kind = operation["op"]
        if kind in ("move", "copy"):
            container, key = resolve(doc, operation["from"])
            value = copy.deepcopy(fetch(container, key))
            if kind == "move":
                remove(container, key)
        else:
            value = operation["value"]
        container, key = resolve(doc, operation["path"])
        if kind == "remove":
            remove(container, key)
        elif kind == "test":
            if orjson.dumps(fetch(container, key), option=orjson.OPT_SORT_KEYS) != orjson.dumps(
                value, option=orjson.OPT_SORT_KEYS
            ):
                raise ValueError
        elif isinstance(container, dict):
            container[key] = value
        elif kind == "replace":
            container[index(container, key)] = value
        elif key == "-":
            container.append(value)
        else:
            container.insert(index([*container, None], key), value)
    return doc


def index(items: list[Any], key: str) -> int:
    at = int(key)
    items[at]
    return at % len(items)


def fetch(container: Any, key: str) -> Any:
    return container.get(key) if isinstance(container, dict) else container[int(key)]


def remove(container: Any, key: str) -> None:
    if isinstance(container, dict):
        del container[key]
    else:
        del container[int(key)]


def resolve(doc: Any, path: str) -> tuple[Any, str]:
    *parts, last = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
    for part in parts:
        doc = doc[part] if isinstance(doc, dict) else doc[int(part)]
    if not isinstance(doc, dict | list):
        raise TypeError
    return doc, last
