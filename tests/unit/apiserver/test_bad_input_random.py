"""Random documents for random kinds: always a valid response, never an internal error, no shared object is modified."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from effort import tries
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from minimal_objects import STORED, collection, minimal
from mutation_detector import MutationDetector
from server_harness import APPLY, JSON_PATCH, MERGE_PATCH, STRATEGIC, Reply, ServerHarness

from setpoint.kinds.catalog import Resource

_KEYS = st.sampled_from(
    [
        "metadata",
        "spec",
        "status",
        "name",
        "labels",
        "annotations",
        "kind",
        "apiVersion",
        "containers",
        "template",
        "data",
        "selector",
        "matchLabels",
        "ports",
        "rules",
        "items",
        "$patch",
        "$retainKeys",
        "managedFields",
        "finalizers",
        "",
        "ownerReferences",
        "generateName",
        "namespace",
        "uid",
        "resourceVersion",
        "value",
        "key",
        "operator",
        "values",
    ]
)
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "x", "1", "1Gi", "thing", "a/b", "..", "\x00", "2026-01-01T00:00:00Z", "é" * 70, "-1", "*"])
)
_DOCUMENTS = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4), max_leaves=12
)
_RESOURCES = st.sampled_from(STORED)
_QUIET = settings(
    max_examples=tries(40, 400),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

# Where a real server answers a plain 500, so do we: strategic patches and applied objects of wrong shapes, revisions
# that are no numbers or stand where none belongs.
_KNOWN_500 = (
    "resourceVersion should not be set on objects to be created",
    "strconv.ParseUint",
    "failed to create typed patch object",
    "failed to convert new object",
    "invalid",
    "cannot",
    "unable to",
    "does not contain declared merge key",
    "unknown",
    "expected",
    "failed to",
    "map:",
    "must",
    "wrong type",
    "The order in patch list",
    "list element types are not identical",
)


class Player:
    """One server for all examples of a test."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.harness = self.runner.run(ServerHarness.open())

    def ask(self, method: str, path: str, body: Any, content_type: str = "application/json") -> Reply:
        return self.runner.run(self.harness.request(method, path, body, content_type))

    def close(self) -> None:
        self.runner.run(self.harness.close())
        self.runner.close()


@pytest.fixture
def player(mutation_detector: MutationDetector, quiet_log: pytest.LogCaptureFixture) -> Iterator[Player]:
    one = Player()
    yield one
    one.close()


def check(reply: Reply) -> None:
    answer = reply.json
    assert isinstance(answer, dict)
    if reply.status >= 400:
        assert (answer["kind"], answer["status"], answer["code"]) == ("Status", "Failure", reply.status), answer
        assert isinstance(answer["message"], str)
        if reply.status >= 500:
            assert reply.status == 500 and answer["message"].startswith(_KNOWN_500), answer
    else:
        assert answer["kind"] and answer["apiVersion"]


def some_object(player: Player, resource: Resource) -> str:
    body = minimal(resource)
    path = f"{collection(resource)}/{body['metadata']['name']}"
    if player.ask("GET", path, None).status == 404:
        assert player.ask("POST", collection(resource), body).status == 201
    return path


def test_random_documents(player: Player) -> None:
    @_QUIET
    @given(resource=_RESOURCES, document=_DOCUMENTS)
    def play(resource: Resource, document: Any) -> None:
        check(player.ask("POST", collection(resource), document))
        check(player.ask("PUT", some_object(player, resource), document))

    play()


def test_random_parts_of_valid_objects(player: Player) -> None:
    """Anything in the place of anything: what is written is validated, or refused, or stored, and never breaks."""

    @settings(_QUIET, max_examples=tries(100, 1000))
    @given(resource=_RESOURCES, document=_DOCUMENTS, choices=st.lists(st.integers(0, 50), min_size=1, max_size=6))
    def play(resource: Resource, document: Any, choices: list[int]) -> None:
        body = _with(minimal(resource), choices, document)
        check(player.ask("POST", f"{collection(resource)}?dryRun=All", body))
        check(player.ask("PUT", f"{some_object(player, resource)}?dryRun=All", body))

    play()


def _with(body: Any, choices: list[int], document: Any) -> Any:
    """A copy with one place, found by following `choices`, replaced or added."""
    body = copy.deepcopy(body)
    at: Any = body
    for choice in choices[:-1]:
        inside = [
            value for value in (at.values() if isinstance(at, dict) else at) if isinstance(value, dict | list) and value
        ]
        if not inside:
            break
        at = inside[choice % len(inside)]
    if isinstance(at, list):
        at[choices[-1] % len(at)] = document
    else:
        keys = sorted(at)
        at[keys[choices[-1] % len(keys)] if keys else "x"] = document
    return body


_OPERATIONS = st.lists(
    st.fixed_dictionaries(
        {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "zap"]), "value": _DOCUMENTS},
        optional={
            "path": st.sampled_from(
                ["", "/", "/metadata", "/metadata/labels/a", "/spec", "/spec/containers/0", "/spec/x/-"]
            ),
            "from": st.sampled_from(["", "/metadata", "/spec", "/spec/containers", "/nope/x"]),
        },
    ),
    max_size=4,
)


@pytest.mark.parametrize("content_type", [MERGE_PATCH, STRATEGIC, JSON_PATCH, APPLY])
def test_random_patches(player: Player, content_type: str) -> None:
    documents: st.SearchStrategy[Any] = _OPERATIONS if content_type == JSON_PATCH else _DOCUMENTS

    @_QUIET
    @given(resource=_RESOURCES, document=documents, choices=st.lists(st.integers(0, 50), min_size=1, max_size=6))
    def play(resource: Resource, document: Any, choices: list[int]) -> None:
        path = some_object(player, resource)
        if content_type == APPLY:
            document = _with(minimal(resource), choices, document)
        elif content_type != JSON_PATCH and choices[0] % 2:
            document = _with(
                {key: value for key, value in minimal(resource).items() if key == "spec"}, choices, document
            )
        query = "?fieldManager=m&force=true&dryRun=All" if content_type == APPLY else "?dryRun=All"
        check(player.ask("PATCH", path + query, orjson.dumps(document), content_type))

    play()


def test_random_queries(player: Player) -> None:
    names = st.sampled_from(
        [
            "limit",
            "continue",
            "resourceVersion",
            "resourceVersionMatch",
            "labelSelector",
            "fieldSelector",
            "watch",
            "timeoutSeconds",
            "allowWatchBookmarks",
            "sendInitialEvents",
            "pretty",
            "dryRun",
            "zz",
        ]
    )
    values = st.text(max_size=8) | st.sampled_from(
        ["", "0", "1", "-1", "true", "Exact", "NotOlderThan", "a=b", "a in (b)"]
    )

    @_QUIET
    @given(resource=_RESOURCES, pairs=st.dictionaries(names, values, max_size=4))
    def play(resource: Resource, pairs: dict[str, str]) -> None:
        from urllib.parse import urlencode

        player.harness.clock.sleep = _hurry(player)  # type: ignore[method-assign]
        reply = player.ask("GET", f"{collection(resource)}?{urlencode(pairs, errors='replace')}", None)
        assert reply.status in (200, 400, 410, 422, 500, 504), reply.body
        if reply.status == 500:
            assert "strconv.ParseUint" in reply.message

    play()


def _hurry(player: Player) -> Any:
    async def sleep(seconds: float) -> None:
        player.harness.clock._now += seconds
        await asyncio.sleep(0)

    return sleep
