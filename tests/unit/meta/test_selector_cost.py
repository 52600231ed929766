"""The cost of selectors: parsing is linear in the text, and a test depends on the labels alone."""

from __future__ import annotations

import pytest
from step_count import counted_steps

from setpoint.meta.selectors import parse_fields, parse_labels

TEXTS = {
    "keys": ("k{}", ","),
    "absent keys": ("!k{}", ","),
    "pairs": ("k{}=v", ","),
    "other values": ("k!=v{}", ","),
    "sets": ("k{} notin (a,b,c)", ","),
}


def text(form: str, between: str, count: int) -> str:
    return between.join(form.format(number) for number in range(count))


@pytest.mark.parametrize("name", TEXTS)
def test_parsing_twice_as_much_costs_twice_as_much(name: str) -> None:
    counts = []
    for size in (1_000, 2_000, 4_000):
        with counted_steps() as steps:
            parse_labels(text(*TEXTS[name], size))
        counts.append(steps.count)
    assert counts[1] < 2.2 * counts[0]
    assert counts[2] < 2.2 * counts[1]


@pytest.mark.parametrize("name", TEXTS)
def test_matching_does_not_depend_on_the_number_of_requirements(name: str) -> None:
    labels = {f"k{number}": "v" for number in range(20)}
    few, many = parse_labels(text(*TEXTS[name], 20)), parse_labels(text(*TEXTS[name], 5_000))
    with counted_steps() as for_few:
        few.matches(labels)
    with counted_steps() as for_many:
        many.matches(labels)
    assert for_many.count <= for_few.count + 25


def test_many_requirements_mean_what_each_of_them_means() -> None:
    selector = parse_labels("a,!b,c=1,d!=1,e in (1,2),f notin (1,2),g>3,g<9,e in (2,3),d!=2")
    good = {"a": "", "c": "1", "d": "3", "e": "2", "g": "5"}
    assert selector.matches(good)
    for wrong in ("b=", "c=2", "d=1", "d=2", "e=1", "e=3", "f=1", "g=3", "g=9", "g=x"):
        key, _, value = wrong.partition("=")
        assert not selector.matches(good | {key: value}), wrong
    for missing in ("a", "c", "e", "g"):
        assert not selector.matches({key: value for key, value in good.items() if key != missing}), missing
    assert selector.matches({key: value for key, value in good.items() if key != "d"})
    assert selector.matches(good | {"f": "3"})


def test_field_selectors_test_each_field_once() -> None:
    selector = parse_fields(",".join(f"metadata.name!=n{number}" for number in range(5_000)))
    with counted_steps() as steps:
        assert selector.matches({"metadata.name": "other"})
        assert not selector.matches({"metadata.name": "n17"})
    assert steps.count < 20
    assert not parse_fields("a=1,a=2").matches({"a": "1"})
    assert parse_fields("a=,a!=1").matches({})
