"""Bookmarks of metadata-only watches, which every informer of the garbage collector has."""

from __future__ import annotations

from typing import Any, cast

import orjson
import pytest

from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import partial


class Loaded(Exception):
    """The rules of the kind were loaded."""


class UnusedKind:
    """A registry whose rules are not loaded yet."""

    @property
    def strategy(self) -> Any:
        raise Loaded


def rendered(metadata: dict[str, Any]) -> Any:
    entry = Entry.unstored("core/limitranges/x", orjson.dumps({"metadata": metadata}), 7)
    return partial(cast("Registry", UnusedKind()), entry, cast("Form", FORM))["metadata"]


class FORM:
    meta_version = "meta.k8s.io/v1"


def test_a_bookmark_does_not_load_the_rules_of_its_kind() -> None:
    bookmark = {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}
    assert rendered(bookmark) == bookmark


def test_the_rules_decide_which_annotations_of_an_object_are_hidden() -> None:
    with pytest.raises(Loaded):
        rendered({"name": "a", "resourceVersion": "7", "annotations": {"a": "b"}})
