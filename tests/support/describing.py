"""Objects to describe, made on a server with the statuses that they shall have; and both descriptions of an object.

The files in `describe_objects` hold them, and beside what the server takes: `status` is written after the object,
`approval` and `ephemeralContainers` through their subresources, `delete: true` tells it to go. In texts `$uid` with
kind and name stands for the uid of another object, `$namespace` for the namespace, `$ago` and `$micro` with a number
for so many seconds ago. With `times` there are so many of an object, and `#` is the number of each. `since` names the
first minor version of kubectl that shows the object as we do.
"""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml
from kubectl_runner import Kubectl

from setpoint.cli.describe import DescribeContext, describe
from setpoint.client.client import Client
from setpoint.kinds.catalog import Resource
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_micro, format_time
from setpoint.system import SystemClock

NAMESPACE = "described"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""All of it is read whenever tests are collected."""
_AFTERWARDS = ("times", "since", "status", "approval", "ephemeralContainers", "delete")


def documents() -> Iterator[Obj]:
    for path in sorted((Path(__file__).parent / "describe_objects").glob("*.yaml")):
        for text in path.read_text().split("\n---\n"):
            times: int = _read(text).get("times", 1)
            for number in range(times):
                yield _read(re.sub(r"(?<=[-.\w])#", f"{number:02}", text))


def _read(text: str) -> Obj:
    found: Obj = yaml.load(text, _LOADER)
    return found


def title(document: Obj) -> str:
    return f"{document['kind']}/{document['metadata']['name']}"


class Seeds:
    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._uids: dict[str, str] = {}
        self.made: list[tuple[Obj, Resource]] = []

    async def sow(self) -> None:
        """Those that name the uid of others come after these, and custom resources when they are served."""
        await self._client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        waiting, patience = list(documents()), 100
        while waiting:
            later = [one for one in waiting if not await self._made(one)]
            if len(later) == len(waiting):
                patience -= 1
                assert patience, f"these cannot be made: {[title(one) for one in later]}"
                await self._clock.sleep(0.05)
            waiting = later

    async def _made(self, document: Obj) -> bool:
        try:
            wanted = self._filled(document)
            resource = await self._client.resource((wanted["apiVersion"], wanted["kind"]))
        except (LookupError, NotFound):
            return False
        body = {key: value for key, value in wanted.items() if key not in _AFTERWARDS}
        about = wanted["metadata"]
        if resource.namespaced:
            about.setdefault("namespace", NAMESPACE)
        name, namespace = about["name"], about.get("namespace", "")
        made = await self._client.create(body)
        if "ephemeralContainers" in wanted:
            patch = {"spec": {"ephemeralContainers": wanted["ephemeralContainers"]}}
            await self._client.patch(
                resource, name, patch, namespace, kind="strategic", subresource="ephemeralcontainers"
            )
        if "status" in wanted:
            await self._client.patch(resource, name, {"status": wanted["status"]}, namespace, subresource="status")
        for condition in wanted.get("approval", ()):
            current = await self._client.get(resource, name)
            conditions = [*(current.get("status") or {}).get("conditions", ()), condition]
            part = "status" if condition["type"] == "Failed" else "approval"
            await self._client.update({**current, "status": {"conditions": conditions}}, subresource=part)
        if wanted.get("delete"):
            await self._client.delete(resource, name, namespace)
        self._uids[title(wanted)] = made["metadata"]["uid"]
        self.made.append((wanted, resource))
        return True

    def _filled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._filled(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._filled(each) for each in value]
        if not isinstance(value, str) or not value.startswith("$"):
            return value
        word, _, rest = value[1:].partition(" ")
        if word == "uid":
            return self._uids[rest]
        if word in ("ago", "micro"):
            when = self._clock.now() - timedelta(seconds=int(rest))
            return format_time(when) if word == "ago" else format_micro(when)
        return NAMESPACE


@dataclass(frozen=True, slots=True)
class View:
    """Somebody's way to look: what is typed to kubectl, and the same for us."""

    titles: tuple[str, ...]
    args: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    limited: bool = False


@dataclass(frozen=True, slots=True)
class Described:
    theirs: str
    ours: str

    def difference(self) -> str:
        theirs, ours = self.theirs.splitlines(True), self.ours.splitlines(True)
        return "".join(difflib.unified_diff(theirs, ours, "kubectl", "setpoint", n=1))


@dataclass(frozen=True, slots=True)
class Named:
    name: str
    namespace: str
    resource: Resource


class Comparison:
    """Both look at several objects at once, all in one namespace or in none, for that is a fraction of the work; then
    at one at a time, should anything differ; and again, should they have looked in different seconds."""

    def __init__(self, client: Client, kubectl: Kubectl) -> None:
        self._client = client
        self._kubectl = kubectl
        self._look = DescribeContext(client, SystemClock(), minor=kubectl.minor)

    async def all(self, objects: list[Named], view: View) -> list[Described]:
        ours = [await self._ours(one, view) for one in objects]
        if await self._theirs(objects, view) == "\n\n".join(ours):
            return [Described(text, text) for text in ours]
        return [await self.one(one, view) for one in objects]

    async def one(self, one: Named, view: View) -> Described:
        for _ in range(3):
            described = Described(await self._theirs([one], view), await self._ours(one, view))
            if described.theirs == described.ours:
                break
        return described

    async def _theirs(self, objects: list[Named], view: View) -> str:
        named = [f"{_typed(one.resource)}/{one.name}" for one in objects]
        namespace = ("-n", objects[0].namespace) if objects[0].namespace else ()
        result = await asyncio.to_thread(
            self._kubectl.run, "describe", *named, *view.args, *namespace, timeout=60.0, **view.environment
        )
        return result.out if result.code == 0 else result.err

    async def _ours(self, one: Named, view: View) -> str:
        ctx = self._look._replace(**view.options)
        try:
            return await describe(await self._client.get(one.resource, one.name, one.namespace), one.resource, ctx)
        except ApiError as error:
            return f"Error from server ({error.reason}): {error.message}\n"


def _typed(resource: Resource) -> str:
    return f"{resource.plural}.{resource.version}.{resource.group}" if resource.group else resource.plural
