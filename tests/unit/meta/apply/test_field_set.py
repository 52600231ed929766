from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.meta.apply import field_set
from setpoint.meta.apply.field_set import (
    BadFieldSet,
    FieldSet,
    contains,
    difference,
    exclude,
    from_paths,
    include,
    intersection,
    leaves,
    of_fields,
    parse,
    path_text,
    paths,
    recursive_difference,
    union,
)
from setpoint.meta.objects import Obj

Path = tuple[str, ...]

ELEMENTS = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"s"'])
PATHS = st.frozensets(st.lists(ELEMENTS, min_size=1, max_size=3).map(tuple), max_size=8)


def members(fields: FieldSet) -> frozenset[Path]:
    return frozenset(paths(fields))


def well_formed(fields: FieldSet) -> bool:
    """Return whether every path without children is an empty node."""
    return all(set(node) != {"."} and well_formed(node) for node in fields.values() if node)


@given(PATHS)
def test_paths_round_trip(given_paths: frozenset[Path]) -> None:
    fields = from_paths(*given_paths)
    assert members(fields) == given_paths
    assert well_formed(fields)
    assert parse(fields) == fields
    assert all(contains(fields, path) for path in given_paths)
    assert not contains(fields, ("f:c",))
    assert not contains(fields, ())


@given(PATHS, PATHS)
def test_set_algebra(a: frozenset[Path], b: frozenset[Path]) -> None:
    one, two = from_paths(*a), from_paths(*b)
    snapshot = repr((one, two))
    for result, expected in (
        (union(one, two), a | b),
        (intersection(one, two), a & b),
        (difference(one, two), a - b),
        (recursive_difference(one, two), {p for p in a if not any(p[: len(q)] == q for q in b)}),
        (leaves(one), {p for p in a if not any(q != p and q[: len(p)] == p for q in a)}),
    ):
        assert members(result) == expected
        assert well_formed(result)
    assert union(one, two) == union(two, one)
    assert list(union(one, two)) == list(union(two, one))
    assert union(difference(one, two), intersection(one, two)) == one
    assert repr((one, two)) == snapshot


@given(PATHS)
def test_operations_return_an_argument_if_possible(a: frozenset[Path]) -> None:
    fields = from_paths(*a)
    assert union(fields, {}) is fields or not fields
    assert union(fields, fields) is fields
    assert difference(fields, {}) is fields
    assert difference(fields, of_fields("zz")) is fields


def test_elements_are_sorted() -> None:
    fields = parse(
        {"v:2": {}, 'k:{"port":443}': {}, 'k:{"port":80}': {}, "f:b": {"f:z": {}, ".": {}}, "f:a": {}, "v:10": {}}
    )
    assert list(fields) == ["f:a", "f:b", 'k:{"port":80}', 'k:{"port":443}', "v:2", "v:10"]
    assert list(fields["f:b"]) == [".", "f:z"]


def test_parsing_makes_sets_canonical() -> None:
    sent: Obj = {
        'k:{"protocol":"TCP", "port":80}': {"f:port": {}, ".": {}},
        "x:what": {},
        "f:a": {".": {}},
        "f:n": None,
    }
    assert parse(sent) == {"f:a": {}, "f:n": {}, 'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}}}
    assert parse(None) == {}
    assert parse({'v:"<a&b>"': {}}) == {'v:"\\u003ca\\u0026b\\u003e"': {}}


@pytest.mark.parametrize("sent", [[], {"f": {}}, {"fa": {}}, {"k:{": {}}, {"k:1": {}}, {"i:x": {}}, {"f:a": 1}])
def test_invalid_field_sets_are_rejected(sent: Any) -> None:
    with pytest.raises(BadFieldSet):
        parse(sent)


def test_path_text() -> None:
    path = ("f:spec", "f:containers", 'k:{"port":80,"protocol":"TCP"}', 'v:"a\\"b"', "i:3")
    assert path_text(path) == '.spec.containers[port=80,protocol="TCP"][="a\\"b"][3]'


def test_members_precede_their_children() -> None:
    fields: Obj = {"f:a": {".": {}, "f:x": {}}, "f:b": {}}
    assert list(paths(fields)) == [("f:a",), ("f:b",), ("f:a", "f:x")]


def test_filters() -> None:
    fields = from_paths(("f:spec", "f:x"), ("f:status",), ("f:status", "f:y"), ("f:metadata", "f:labels"))
    assert members(exclude(of_fields("status", "metadata.labels"))(fields)) == {("f:spec", "f:x")}
    resources = include(("f:spec", "f:containers", "*", "f:resources"))
    given_fields: Obj = {
        "f:spec": {
            "f:containers": {
                'k:{"name":"c"}': {".": {}, "f:image": {}, "f:resources": {".": {}, "f:limits": {}}},
            },
            "f:x": {},
        },
    }
    assert resources(given_fields) == {
        "f:spec": {"f:containers": {'k:{"name":"c"}': {".": {}, "f:resources": {".": {}, "f:limits": {}}}}},
    }


def test_equal_sets_are_interned_and_large_ones_are_not_even_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def containers(count: int) -> FieldSet:
        return {"f:spec": {"f:containers": {f'k:{{"name":"c{n}"}}': {".": {}, "f:image": {}} for n in range(count)}}}

    assert field_set.shared(containers(20)) is field_set.shared(containers(20))
    large = containers(1_000)
    monkeypatch.setattr(field_set, "orjson", None)
    assert field_set.shared(large) is large


def test_sets_that_are_used_once_do_not_evict_those_in_use() -> None:
    def addresses(number: int) -> FieldSet:
        return {"f:status": {"f:podIPs": {f'k:{{"ip":"10.0.{number >> 8}.{number & 255}"}}': {".": {}, "f:ip": {}}}}}

    used = field_set.shared({"f:data": {"f:in-use": {}}})
    for number in range(5_000):
        field_set.shared(addresses(number))
        assert field_set.shared({"f:data": {"f:in-use": {}}}) is used
