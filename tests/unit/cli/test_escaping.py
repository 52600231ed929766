"""Text from the cluster cannot control the terminal."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from command_line import Typed
from local_server import LocalServer

from setpoint.cli.escaping import cell, escaped
from setpoint.cli.tabwriter import align

HOSTILE = "\x1b[2Ja\rb\x07c\x08d\x9b31me\x7f\x00"
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
GROUP = "example.com"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢", "plain é 漢"),
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b[31m", "^[[31m"),
        ("a\rb", "a\\rb"),
        ("\x07\x08\x00\x7f", "^G^H^@^?"),
        ("\x9b31m\x85", "\\u009b31m\\u0085"),
        ("\x0b\x0c", "^K^L"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_cells_and_aligned_text_are_escaped() -> None:
    assert cell("a\x9bb\nc") == "a\\u009bb..."
    assert align("a\x1b\tb\nlong\tc\n") == "a^[   b\nlong  c\n"


@pytest.fixture
async def hostile(local_server: LocalServer) -> AsyncIterator[None]:
    """A cluster whose objects hold such texts wherever they may."""
    client = local_server.client
    loops = [asyncio.ensure_future(run()) for run in local_server.api.parts.background]
    column = {"name": HOSTILE, "type": "string", "jsonPath": ".spec.text", "description": HOSTILE}
    text = {"type": "string", "description": HOSTILE}
    schema = {
        "type": "object",
        "description": HOSTILE,
        "properties": {"spec": {"type": "object", "properties": {"text": text}}},
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": [column],
        "deprecated": True,
        "deprecationWarning": "old",
    }
    spec = {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "foos", "kind": "Foo"},
        "versions": [version],
    }
    meta = {"namespace": "default", "annotations": {"a": HOSTILE, "kubernetes.io/change-cause": HOSTILE}}
    await client.create(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"foos.{GROUP}"},
            "spec": spec,
        }
    )
    for _ in range(100):
        await asyncio.sleep(0)
    await client.create(
        {"apiVersion": f"{GROUP}/v1", "kind": "Foo", "metadata": {**meta, "name": "f"}, "spec": {"text": HOSTILE}}
    )
    await client.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**meta, "name": "m"}, "data": {"k": HOSTILE}}
    )
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    set_spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    made = await client.create(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {**meta, "name": "d"}, "spec": set_spec}
    )
    owner = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "d",
        "uid": made["metadata"]["uid"],
        "controller": True,
    }
    revision = {**meta["annotations"], "deployment.kubernetes.io/revision": "1"}  # type: ignore[dict-item]
    await client.create(
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "spec": set_spec,
            "metadata": {
                **meta,
                "name": "d-1",
                "labels": {"a": "b"},
                "annotations": revision,
                "ownerReferences": [owner],
            },
        }
    )
    about = {"kind": "ConfigMap", "namespace": "default", "name": "m", "fieldPath": HOSTILE}
    await client.create(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": "default", "name": "e"},
            "type": "Warning",
            "involvedObject": about,
            "reason": HOSTILE,
            "message": HOSTILE,
            "source": {"component": HOSTILE},
            "lastTimestamp": "2026-01-01T00:00:00Z",
            "firstTimestamp": "2026-01-01T00:00:00Z",
        }
    )
    yield
    for task in loops:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(
    "command",
    [
        "get foos",
        "get foos f -o wide",
        "get foos -A --show-labels",
        "get events",
        "get events -o wide",
        "events",
        "describe foo f",
        "describe configmap m",
        "describe deployment d",
        "describe crd foos.example.com",
        "describe events",
        "rollout history deployment d",
        "rollout history deployment d --revision=1",
        "explain foos",
        "explain foos.spec.text",
        "explain foos --recursive",
        "explain foos --output=plaintext-openapiv2",
        "get configmaps -o custom-columns=A:.metadata.annotations.a",
        "get configmaps -o custom-columns=A:.data.k",
        "api-resources",
        "get foos --sort-by=.spec.text",
        "auth can-i --list",
        "get crd",
    ],
)
async def test_output_of_commands_is_escaped(typed: Typed, hostile: None, command: str) -> None:
    done = await typed.run(command)
    assert done.code == 0, done.err
    assert not _CONTROL.search(done.out), repr(done.out)
    assert not _CONTROL.search(done.err), repr(done.err)
