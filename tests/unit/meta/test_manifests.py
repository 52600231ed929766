"""Manifests with several objects."""

from __future__ import annotations

import pytest

from setpoint.meta.manifests import ManifestProblem, manifests

ONE = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n"
TWO = b'{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "two"}}'


def names(data: bytes) -> list[str]:
    return [obj["metadata"]["name"] for obj in manifests(data)]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", []),
        (b"# nothing\n---\n---\n", []),
        (ONE, ["one"]),
        (b"---\n" + ONE + b"--- # another\n" + TWO + b"\n---\n", ["one", "two"]),
        (TWO + b"\n" + TWO, ["two", "two"]),
        (b"\xef\xbb\xbf" + ONE, ["one"]),
        (ONE.decode().encode("utf-16"), ["one"]),
        (b"apiVersion: v1\nkind: List\nitems: [" + TWO + b"]", ["two"]),
        (b"apiVersion: v1\nkind: ConfigMapList\nitems: [{metadata: {name: in-a-list}}]", ["in-a-list"]),
    ],
)
def test_objects_of_a_text(data: bytes, found: list[str]) -> None:
    assert names(data) == found


def test_items_of_a_typed_list_get_kind_and_version() -> None:
    (found,) = manifests(b"apiVersion: v1\nkind: ConfigMapList\nitems: [{metadata: {name: x}}]")
    assert (found["apiVersion"], found["kind"]) == ("v1", "ConfigMap")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"just text", "an object is a mapping, not str"),
        (b"kind: List\nitems: [1]", "an object is a mapping, not int"),
        (ONE + b"---\nspec: [unclosed", "line 5"),
        (b"kind: Pod\nmetadata: {name: x}", "Pod: apiVersion not set"),
        (b"apiVersion: v1\nmetadata: {name: x}", "kind not set"),
        (b"apiVersion: v1\nkind: Pod\nmetadata: {generateName: x-}", "Pod: metadata.name not set"),
        (b"apiVersion: v1\nkind: Pod\nmetadata: []", "Pod: metadata.name not set"),
        (b"apiVersion: v1\nkind: 5\nmetadata: {name: x}", "kind not set"),
        (b"[" * 100_000, "depth"),
    ],
)
def test_texts_without_objects_are_rejected(data: bytes, problem: str) -> None:
    with pytest.raises(ManifestProblem, match=problem):
        manifests(data)
