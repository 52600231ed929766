"""An API server with the controller of definitions."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from server_harness import Reply, ServerHarness, settle

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "example.com"
FOOS = f"/apis/{GROUP}/v1/namespaces/default/foos"


def version(name: str = "v1", spec: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return a version whose `spec` has this schema (anything by default). `root` extends the schema itself."""
    properties = {"spec": spec or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    root = more.pop("root", {})
    properties |= root.pop("properties", {})
    schema = {"type": "object", "properties": properties, **root}
    return {"name": name, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **more}


def definition(*versions: dict[str, Any], plural: str = "foos", kind: str = "Foo", **more: Any) -> dict[str, Any]:
    names = {"plural": plural, "kind": kind, **more.pop("names", {})}
    group = more.pop("group", GROUP)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", **more.pop("metadata", {})},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": names,
            "versions": list(versions) or [version()],
            **more,
        },
    }


def foo(name: str = "f", spec: Any = None, *, version: str = "v1", **more: Any) -> dict[str, Any]:
    made = {"apiVersion": f"{GROUP}/{version}", "kind": "Foo", "metadata": {"name": name, **more.pop("metadata", {})}}
    return made | ({} if spec is None else {"spec": spec}) | more


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


class CustomResourceHarness(ServerHarness):
    loops: list[asyncio.Task[None]]

    def begin(self) -> None:
        self.loops = [asyncio.ensure_future(run()) for run in self.api.parts.background]

    async def end(self) -> None:
        for task in self.loops:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await self.close()

    async def define(self, *versions: dict[str, Any], **more: Any) -> dict[str, Any]:
        """Waits until it is established."""
        made = await self.make(CRDS, definition(*versions, **more))
        await settle(40)
        reply = await self.get(f"{CRDS}/{made['metadata']['name']}")
        assert self.condition(reply.json, "Established") == "InitialNamesAccepted", reply.json["status"]
        stored: dict[str, Any] = reply.json
        return stored

    async def redefine(self, patch: Any, name: str = f"foos.{GROUP}") -> Reply:
        reply = await self.patch(f"{CRDS}/{name}", patch)
        await settle(40)
        return reply

    async def definition(self, name: str = f"foos.{GROUP}") -> dict[str, Any]:
        found: dict[str, Any] = (await self.get(f"{CRDS}/{name}")).json
        return found

    @staticmethod
    def condition(obj: dict[str, Any], kind: str) -> str:
        """The reason of a condition; empty: there is none."""
        for one in obj["status"].get("conditions") or ():
            if one["type"] == kind:
                return str(one["reason"])
        return ""


def messages(reply: Reply) -> list[str]:
    """What an invalid object is told, field by field."""
    assert reply.status == 422, reply.body
    causes = reply.json["details"]["causes"]
    return sorted(f"{cause['field']}: {cause['message']}" for cause in causes)
