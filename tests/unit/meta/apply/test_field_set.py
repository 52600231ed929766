from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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

Path = tuple[str, ...]

ELEMENTS = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"s"'])
PATHS = st.frozensets(st.lists(ELEMENTS, min_size=1, max_size=3).map(tuple), max_size=8)


def members(fields: FieldSet) -> frozenset[Path]:
    return frozenset(paths(fields))


def well_formed(fields: FieldSet) -> bool:
    """No node that only marks itself: a path without children is an empty node."""
    return all(set(node) != {"."} and well_formed(node) for node in fields.values() if node)


@given(PATHS)
def test_paths_come_back(given_paths: frozenset[Path]) -> None:
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
def test_nothing_is_built_for_nothing(a: frozenset[Path]) -> None:
    fields = from_paths(*a)
    assert union(fields, {}) is fields or not fields
    assert union(fields, fields) is fields
    assert difference(fields, {}) is fields
    assert difference(fields, of_fields("zz")) is fields


def test_elements_stand_in_order() -> None:
    fields = parse(
        {"v:2": {}, 'k:{"port":443}': {}, 'k:{"port":80}': {}, "f:b": {"f:z": {}, ".": {}}, "f:a": {}, "v:10": {}}
    )
    assert list(fields) == ["f:a", "f:b", 'k:{"port":80}', 'k:{"port":443}', "v:2", "v:10"]
    assert list(fields["f:b"]) == [".", "f:z"]


def test_what_clients_send_becomes_canonical() -> None:
    sent = {'k:{"protocol":"TCP", "port":80}': {"f:port": {}, ".": {}}, "x:what": {}, "f:a": {".": {}}, "f:n": None}
    assert parse(sent) == {"f:a": {}, "f:n": {}, 'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}}}
    assert parse(None) == {}
    assert parse({'v:"<a&b>"': {}}) == {'v:"\\u003ca\\u0026b\\u003e"': {}}


@pytest.mark.parametrize("sent", [[], {"f": {}}, {"fa": {}}, {"k:{": {}}, {"k:1": {}}, {"i:x": {}}, {"f:a": 1}])
def test_nonsense_is_refused(sent: Any) -> None:
    with pytest.raises(BadFieldSet):
        parse(sent)


def test_paths_in_words() -> None:
    path = ("f:spec", "f:containers", 'k:{"port":80,"protocol":"TCP"}', 'v:"a\\"b"', "i:3")
    assert path_text(path) == '.spec.containers[port=80,protocol="TCP"][="a\\"b"][3]'


def test_members_before_what_is_below_them() -> None:
    fields = {"f:a": {".": {}, "f:x": {}}, "f:b": {}}
    assert list(paths(fields)) == [("f:a",), ("f:b",), ("f:a", "f:x")]


def test_filters() -> None:
    fields = from_paths(("f:spec", "f:x"), ("f:status",), ("f:status", "f:y"), ("f:metadata", "f:labels"))
    assert members(exclude(of_fields("status", "metadata.labels"))(fields)) == {("f:spec", "f:x")}
    resources = include(("f:spec", "f:containers", "*", "f:resources"))
    given_fields = {
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
