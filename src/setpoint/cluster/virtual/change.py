"""Changes to predict, as ordinary requests: they are made to a copy, and a user may send the same ones to the cluster.

    {"type": "apply", "yaml": "..."}                                     every document, as server-side apply
    {"type": "scale", <object>, "replicas": 5}
    {"type": "image", <object>, "image": "nginx:1.29", "container": ""}  of all containers, or of one
    {"type": "delete", <object>}
    {"type": "drain", "node": "node-2"}
    {"type": "stop", "node": "node-2"}

An object is given by `group`, `version`, `resource`, `namespace` and `name`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from setpoint.apiserver.bodies import check_fields
from setpoint.client import Client
from setpoint.client.client import PATCHES
from setpoint.client.resources import builtin, path_of
from setpoint.kinds.catalog import Resource
from setpoint.meta.body import BodyError, parse_yaml
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, BadRequest, NotFound, TooManyRequests
from setpoint.meta.objects import Obj
from setpoint.node.simulation_annotations import STATE, STOPPED

_NODES, _PODS = builtin("nodes"), builtin("pods")
_SEPARATOR = re.compile(rb"^---(?:[ \t][^\n]*)?$", re.MULTILINE)
_JSON: Final = "application/json"
_MAX_YAML, _MAX_DOCUMENTS, _MAX_CHANGES = 512 * 1024, 200, 20
_MAX_REPLICAS = 100_000
_RETRY_SECONDS, _DRAIN_SECONDS = 5.0, 600.0
_OBJECT: Final[dict[str, type | tuple[type, ...]]] = {
    "type": str,
    "group": str,
    "version": str,
    "resource": str,
    "namespace": str,
    "name": str,
}
_FIELDS: Final[dict[str, dict[str, type | tuple[type, ...]]]] = {
    "apply": {"type": str, "yaml": str, "namespace": str},
    "scale": {**_OBJECT, "replicas": int},
    "image": {**_OBJECT, "image": str, "container": str},
    "delete": _OBJECT,
    "drain": {"type": str, "node": str},
    "stop": {"type": str, "node": str},
}


class ChangeRequest(NamedTuple):
    """A request that is a part of a change."""

    method: str
    path: str
    query: str
    content_type: str
    body: Any
    """A JSON value; None if there is none."""
    text: str
    """The request in words: `scale deployments/web to 5`."""

    def to_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "path": self.path,
            "query": self.query,
            "contentType": self.content_type,
            "body": self.body,
            "text": self.text,
        }


def check_changes(found: Any) -> list[dict[str, Any]]:
    """Return the changes of a request. Raises BadRequest."""
    if not isinstance(found, list) or len(found) > _MAX_CHANGES or not all(isinstance(each, dict) for each in found):
        raise BadRequest(f"changes must be a list of at most {_MAX_CHANGES} objects")
    for each in found:
        fields = _FIELDS.get(each["type"]) if isinstance(each.get("type"), str) else None
        if fields is None:
            raise BadRequest(f"the type of a change must be one of {', '.join(_FIELDS)}")
        check_fields(each, fields)
        required = [name for name in fields if name not in ("group", "namespace", "container")]
        if missing := [name for name in required if name not in each or each[name] == ""]:
            raise BadRequest(f"the change {each['type']} needs {', '.join(missing)}")
        if any("/" in each.get(name, "") for name in ("resource", "namespace", "name", "node", "version", "group")):
            raise BadRequest("names must not contain a slash")
        if each["type"] == "scale" and not 0 <= each["replicas"] <= _MAX_REPLICAS:
            raise BadRequest(f"replicas must be from 0 to {_MAX_REPLICAS}")
    return found


def stopped_nodes(changes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the nodes that the changes stop."""
    return [each["node"] for each in changes if each["type"] == "stop"]


async def requests_of(client: Client, change: Mapping[str, Any]) -> list[ChangeRequest]:
    """Return the requests of a change, for the cluster of the client. Raises ApiError."""
    match change["type"]:
        case "apply":
            return [await _applied(client, obj) for obj in _documents(change["yaml"], change.get("namespace", ""))]
        case "drain":
            return await _drained(client, change["node"])
        case "stop":
            await client.get(_NODES, change["node"])
            body = {"metadata": {"annotations": {STATE: STOPPED}}}
            return [_patch(_NODES, "", change["node"], body, f"stop node {change['node']}")]
    resource = await client.resource((change.get("group", ""), change["version"], change["resource"]))
    namespace, name = change.get("namespace", "") if resource.namespaced else "", change["name"]
    if resource.namespaced and not namespace:
        raise BadRequest(f"{resource.plural} need a namespace")
    shown = f"{resource.plural}/{name}"
    match change["type"]:
        case "scale":
            count = change["replicas"]
            path = path_of(resource, namespace, name, "scale")
            body = {"spec": {"replicas": count}}
            return [ChangeRequest("PATCH", path, "", PATCHES["merge"], body, f"scale {shown} to {count}")]
        case "image":
            return [await _image(client, resource, namespace, change)]
        case _:
            return [ChangeRequest("DELETE", path_of(resource, namespace, name), "", _JSON, None, f"delete {shown}")]


def _patch(resource: Resource, namespace: str, name: str, body: Any, text: str) -> ChangeRequest:
    return ChangeRequest("PATCH", path_of(resource, namespace, name), "", PATCHES["merge"], body, text)


def _documents(text: str, namespace: str) -> list[Obj]:
    """Return the objects of a text in YAML, with this namespace if they have none. Raises BadRequest."""
    data = text.encode()
    if len(data) > _MAX_YAML:
        raise BadRequest(f"the text must not be longer than {_MAX_YAML // 1024} KiB")
    found: list[Obj] = []
    for part in _SEPARATOR.split(data):
        try:
            value = parse_yaml(part)[0] if part.strip() else None
        except BodyError as error:
            raise BadRequest(f"not YAML: {error}") from None
        if value is None:
            continue
        items = value.get("items") if isinstance(value, dict) and value.get("kind") == "List" else [value]
        for obj in items or ():
            if not isinstance(obj, dict) or not isinstance(obj.get("metadata"), dict) or not obj.get("kind"):
                raise BadRequest("every document must be an object with apiVersion, kind and metadata")
            if not obj["metadata"].get("name"):
                raise BadRequest(f"a {obj['kind']} has no name")
            obj["metadata"].setdefault("namespace", namespace or "default")
            found.append(obj)
    if not found or len(found) > _MAX_DOCUMENTS:
        raise BadRequest(f"the text must have 1 to {_MAX_DOCUMENTS} objects")
    return found


async def _applied(client: Client, obj: Obj) -> ChangeRequest:
    resource = await client.resource((str(obj.get("apiVersion") or ""), str(obj["kind"])))
    meta = obj["metadata"]
    namespace = meta["namespace"] if resource.namespaced else ""
    if not resource.namespaced:
        meta.pop("namespace", None)
    path, query = path_of(resource, namespace, meta["name"]), "fieldManager=setpoint-plan&force=true"
    return ChangeRequest("PATCH", path, query, PATCHES["apply"], obj, f"apply {resource.plural}/{meta['name']}")


async def _image(client: Client, resource: Resource, namespace: str, change: Mapping[str, Any]) -> ChangeRequest:
    name, image, only = change["name"], change["image"], change.get("container", "")
    obj = await client.get(resource, name, namespace)
    template = ((obj.get("spec") or {}).get("template") or {}).get("spec") or obj.get("spec") or {}
    containers = [each["name"] for each in template.get("containers") or () if only in ("", each["name"])]
    if not containers:
        raise NotFound(f"{resource.plural}/{name} has no container {only}".rstrip())
    pod: Obj = {"containers": [{"name": each, "image": image} for each in containers]}
    body = {"spec": {"template": {"spec": pod}}} if "template" in (obj.get("spec") or {}) else {"spec": pod}
    text = f"set the image of {resource.plural}/{name} to {image}"
    return ChangeRequest("PATCH", path_of(resource, namespace, name), "", PATCHES["strategic"], body, text)


async def _drained(client: Client, node: str) -> list[ChangeRequest]:
    await client.get(_NODES, node)
    found = [_patch(_NODES, "", node, {"spec": {"unschedulable": True}}, f"cordon node {node}")]
    for pod in (await client.list(_PODS, field_selector=f"spec.nodeName={node}")).items:
        if _can_be_evicted(pod):
            found.append(eviction(pod["metadata"]["namespace"], pod["metadata"]["name"]))
    return found


def eviction(namespace: str, name: str) -> ChangeRequest:
    """Return the request that evicts a Pod."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
    return ChangeRequest("POST", path_of(_PODS, namespace, name, "eviction"), "", _JSON, body, f"evict pods/{name}")


def _can_be_evicted(pod: Mapping[str, Any]) -> bool:
    """Return whether draining evicts a Pod: not those of DaemonSets, static Pods, and Pods that have ended."""
    meta = pod["metadata"]
    owners = meta.get("ownerReferences") or ()
    return not (
        any(each.get("kind") == "DaemonSet" and each.get("controller") for each in owners)
        or "kubernetes.io/config.mirror" in (meta.get("annotations") or {})
        or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        or meta.get("deletionTimestamp")
    )


async def make(client: Client, clock: Clock, changes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Make changes, and return the messages of what was refused. Evictions that a disruption budget forbids are
    repeated for ten minutes."""
    refused = []
    for change in changes:
        try:
            for each in await requests_of(client, change):
                await _sent(client, clock, each)
        except ApiError as error:
            refused.append(f"{change['type']}: {error.message}")
    return refused


async def _sent(client: Client, clock: Clock, wanted: ChangeRequest) -> None:
    deadline = clock.monotonic() + _DRAIN_SECONDS
    method, path, query, content_type, body, _ = wanted
    while True:
        try:
            await client.sender.json(method, path, query, body, content_type=content_type)
            return
        except TooManyRequests:
            if clock.monotonic() >= deadline:
                raise
            await clock.sleep(_RETRY_SECONDS)
        except NotFound:
            if method != "POST":
                raise
            return  # the Pod is gone
