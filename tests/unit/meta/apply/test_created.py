"""The field set of a new object is the same from the cache as computed, for any object."""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest

from setpoint.client.resources import builtin
from setpoint.meta.apply import created, exclude, of_fields
from setpoint.meta.apply.created import computed_fields, created_fields
from setpoint.meta.apply.field_set import FieldSet
from setpoint.meta.decode import DecodeError, decode
from setpoint.meta.objects import Obj
from setpoint.meta.schema import Shape, Type

KINDS = {
    "configmaps": "",
    "deployments": "apps",
    "events": "",
    "nodes": "",
    "pods": "",
    "services": "",
    "statefulsets": "apps",
}
RESET = exclude(of_fields("status"))


def random_value(rng: random.Random, type_: Type, depth: int) -> Any:
    shape = type_.shape
    if depth == 0 or rng.random() < 0.05:
        return rng.choice((None, "", "a", 0))
    if shape is Shape.STRUCT:
        few = rng.sample(sorted(type_.fields), min(len(type_.fields), rng.randrange(7)))
        return {name: random_value(rng, type_.fields[name].type, depth - 1) for name in few}
    if shape is Shape.LIST and type_.item is not None:
        items = [random_value(rng, type_.item, depth - 1) for _ in range(rng.randrange(3))]
        for item in items:
            if isinstance(item, dict):
                item |= {key: rng.choice(("a", "b", 1)) for key in type_.list_keys if rng.random() < 0.8}
        return items
    if shape is Shape.MAP and type_.item is not None:
        return {rng.choice("abc"): random_value(rng, type_.item, depth - 1) for _ in range(rng.randrange(3))}
    return rng.choice(("", "a", "b", 0, 1, False, True, "2026-01-01T00:00:00Z", None))


def random_object(rng: random.Random, type_: Type) -> Obj | None:
    """Return an object of the type as it is decoded, or None if it cannot be decoded."""
    value = random_value(rng, type_, 7)
    if not isinstance(value, dict):
        return None
    value["metadata"] = {"name": "x", **(rng.choice(({}, {"labels": {rng.choice("ab"): "1"}}, {"generation": 1})))}
    try:
        decoded: Obj = decode(type_, value, strict=None)
    except DecodeError:
        return None
    return decoded


def text(fields: FieldSet) -> bytes:
    """Return a set with the order of its elements, which is a part of the stored form."""
    return orjson.dumps(fields)


@pytest.mark.parametrize("plural", sorted(KINDS))
@pytest.mark.parametrize("reset", [None, RESET], ids=["all fields", "without status"])
def test_cached_sets_are_those_that_are_computed(plural: str, reset: Any) -> None:
    rng, type_, tried = random.Random(plural), builtin(plural, KINDS[plural]).type, 0
    while tried < 150:
        obj = random_object(rng, type_)
        if obj is None:
            continue
        tried += 1
        # The second object has the same fields, but other keys of list items and other values.
        for each in (obj, orjson.loads(orjson.dumps(obj).replace(b':"a"', b':"b"')), obj):
            assert text(created_fields(type_, each, reset)) == text(computed_fields(type_, each, reset)), each


def test_objects_of_one_shape_have_one_set() -> None:
    type_ = builtin("events").type
    first, second = (
        decode(type_, {"metadata": {"name": name}, "reason": name, "involvedObject": {"uid": name}}, strict=None)
        for name in ("a", "b")
    )
    assert created_fields(type_, first, None) is created_fields(type_, second, None)
    empty = decode(type_, {"metadata": {"name": "c"}, "reason": "c", "involvedObject": {}}, strict=None)
    assert "f:involvedObject" not in created_fields(type_, empty, None)


def test_keys_of_list_items_are_a_part_of_the_shape() -> None:
    type_ = builtin("pods").type
    for name in ("a", "b"):
        containers = [{"name": name, "ports": [{"containerPort": 80 if name == "a" else 81, "protocol": "TCP"}]}]
        meta = {"name": "x", "finalizers": [f"example.com/{name}"]}
        obj = decode(type_, {"metadata": meta, "spec": {"containers": containers}}, strict=None)
        fields = created_fields(type_, obj, None)
        assert fields == computed_fields(type_, obj, None)
        assert [*fields["f:spec"]["f:containers"]] == [f'k:{{"name":"{name}"}}']


def test_the_number_and_the_size_of_cached_shapes_are_bounded() -> None:
    type_ = builtin("configmaps").type
    for number in range(2 * created._MAX_SHAPES):
        created_fields(type_, {"metadata": {"name": "x"}, "data": {f"key-{number}": ""}}, None)
    known = type_.compiled["apply.created"]
    assert 0 < len(known) <= created._MAX_SHAPES
    known.clear()
    created_fields(type_, {"metadata": {"name": "x"}, "data": {f"key-{number}": "" for number in range(10_000)}}, None)
    created_fields(type_, {"metadata": {"name": "x"}, "data": {"long" * 10_000: ""}}, None)
    assert not known


def test_an_undeclared_field_is_owned_but_not_cached() -> None:
    type_ = builtin("configmaps").type
    obj = {"metadata": {"name": "x"}, "other": 1}
    assert created_fields(type_, obj, None) == {"f:other": {}}
