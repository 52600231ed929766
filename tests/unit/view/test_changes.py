"""Changed fields and their short form."""

from __future__ import annotations

from typing import Any

import pytest

from setpoint.view.changes import ABSENT, FieldChange, changes, has_path, path_text, short_texts, summary, value_at


def pods(**container: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "web", "image": "nginx:1.27", **container}]}}


def ready(status: str, **more: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": "Ready", "status": status, **more}]}}


@pytest.mark.parametrize(
    ("before", "now", "text"),
    [
        ({"spec": {"replicas": 4}}, {"spec": {"replicas": 3}}, "spec.replicas 4 -> 3"),
        (pods(), pods(image="nginx:1.28"), "image nginx:1.27 -> nginx:1.28"),
        (pods(), pods(tty=True), "spec.containers[web].tty set to true"),
        (pods(tty=True), pods(), "spec.containers[web].tty removed (was true)"),
        (ready("False"), ready("True", reason="Up", lastTransitionTime="2026"), "Ready False -> True"),
        ({}, ready("True"), "Ready set to True"),
        (ready("True", reason="A"), ready("True", reason="B"), "Ready reason A -> B"),
        ({"data": {"a": "x y"}}, {"data": {"a": "z"}}, 'data.a "x y" -> z'),
        ({"metadata": {}}, {"metadata": {"labels": {"a": "1"}}}, "metadata.labels.a set to 1"),
        (
            {"spec": {"a": 1}, "status": {"b": 1}},
            {"spec": {"a": 2}, "status": {"b": 2}},
            "spec.a 1 -> 2, status.b 1 -> 2",
        ),
        ({"spec": {"list": [1, 2]}}, {"spec": {"list": [1, 3]}}, "spec.list [1,2] -> [1,3]"),
        ({"spec": {}}, {"spec": {"big": {"x" * 60: 1}}}, "spec.big added"),
        (
            {"status": {"lastScheduleTime": "a"}},
            {"status": {"lastScheduleTime": "b"}},
            "status.lastScheduleTime a -> b",
        ),
        ({"metadata": {"managedFields": [1], "resourceVersion": "1", "generation": 1}}, {"metadata": {}}, ""),
    ],
)
def test_short_texts(before: dict[str, Any], now: dict[str, Any], text: str) -> None:
    assert summary(changes(before, now)) == text


def test_bookkeeping_is_left_out_unless_it_is_all() -> None:
    note = {"metadata": {"annotations": {"deployment.kubernetes.io/revision": "2"}}}
    assert short_texts(changes({"spec": {"a": 1}, "metadata": {}}, {"spec": {"a": 2}, **note})) == ["spec.a 1 -> 2"]
    assert len(short_texts(changes({"metadata": {}}, note))) == 1


def test_two_images_are_told_apart() -> None:
    old, new = ({"spec": {"containers": [{"name": n, "image": i} for n in "ab"]}} for i in ("x", "y"))
    assert short_texts(changes(old, new)) == ["image of a x -> y", "image of b x -> y"]


def test_many_changes_are_counted() -> None:
    changed = changes({"spec": dict.fromkeys("abcdef", 1)}, {"spec": dict.fromkeys("abcdef", 2)})
    assert summary(changed) == "spec.a 1 -> 2, spec.b 1 -> 2, spec.c 1 -> 2 and 3 more fields"


def test_creation_and_deletion_have_no_path() -> None:
    assert changes(None, {}) == [FieldChange((), ABSENT, True)]
    assert changes({}, None) == [FieldChange((), True, ABSENT)]
    assert summary(changes(None, {})) == ""


@pytest.mark.parametrize(
    ("field", "matches"),
    [
        ("spec", True),
        ("spec.containers", True),
        ("spec.containers[name=web].image", True),
        ("spec.containers[web].image", False),
        ("image", True),
        ("spec.cont", False),
        ("status", False),
    ],
)
def test_paths_match_by_whole_names(field: str, matches: bool) -> None:
    (change,) = changes(pods(), pods(image="x"))
    assert has_path(change, (field,)) is matches
    assert path_text(change.path) == "spec.containers[name=web].image"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("spec.containers[0].image", "nginx:1.27"),
        ("spec.containers[web].image", "nginx:1.27"),
        ("spec.containers[name=web].image", "nginx:1.27"),
        ("image", "nginx:1.27"),
        ("spec.containers[1].image", ABSENT),
        ("spec.containers[name=db].image", ABSENT),
        ("spec.replicas", ABSENT),
        ("spec.containers.image", ABSENT),
        ("spec.containers[99999999].image", ABSENT),
    ],
)
def test_values_by_path(field: str, value: Any) -> None:
    assert value_at(pods(), field) == value
