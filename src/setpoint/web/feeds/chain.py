"""The feed `chain`: the graph around one object, or of a namespace, while it changes.

Arguments: `group`, `version`, `resource`, `namespace`, `name` of an object of any kind; without `name` and `resource`,
the chain of everything in a namespace, or in all. Items are boxes, edges and actors (`web/chain/graph.py`); the item
`chain` says how many boxes are left out, whether the object exists, and which kinds could not be read.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final, NamedTuple

from setpoint.client import Client
from setpoint.client.resources import BY_KIND, path_segment
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import ApiError, BadRequest
from setpoint.meta.objects import Obj
from setpoint.meta.selectors import escape_field
from setpoint.reconcile.informer import Informer
from setpoint.tasks import child_tasks, run_all
from setpoint.web.chain.graph import Builder
from setpoint.web.chain.records import Record, key_of, reduced
from setpoint.web.feed import Args, FeedOutput, PageContext, text_argument

_READ: Final = (
    ("", "pods"),
    ("apps", "replicasets"),
    ("apps", "deployments"),
    ("apps", "statefulsets"),
    ("apps", "daemonsets"),
    ("batch", "jobs"),
    ("batch", "cronjobs"),
    ("", "services"),
    ("discovery.k8s.io", "endpointslices"),
    ("policy", "poddisruptionbudgets"),
    ("autoscaling", "horizontalpodautoscalers"),
    ("networking.k8s.io", "networkpolicies"),
    ("networking.k8s.io", "ingresses"),
    ("", "persistentvolumeclaims"),
    ("", "replicationcontrollers"),
    ("", "nodes"),
)
"""The built-in resources of a chain. The resource of the object itself, and custom ones, are read too."""
_MAX_CUSTOM: Final = 24
"""Number of custom resources that are read."""
_MAX_RECORDS: Final = 50_000
_INTERVAL: Final = 0.1
"""Seconds between two graphs at least."""
_REST: Final = 10
"""The pause between two graphs, as a multiple of the time that the first one took."""
_POD, _NODE = ("", "pods"), ("", "nodes")


class _Root(NamedTuple):
    resource: Resource | None
    """The resource of the object; None for the chain of a namespace."""
    namespace: str
    name: str

    @property
    def key(self) -> str | None:
        if self.resource is None:
            return None
        parts = {"group": self.resource.group, "resource": self.resource.plural}
        return key_of({**parts, "namespace": self.namespace, "name": self.name})


async def run(ctx: PageContext, args: Args, output: FeedOutput) -> None:
    root = await _root(ctx.client, args)
    wanted = await _resources(ctx.client, root.resource)
    readable = await run_all(*(_is_readable(ctx.client, each, root) for each in wanted))
    chain = _Chain(root.key, output, [each.plural for each, may in zip(wanted, readable, strict=True) if not may])
    informers = [
        Informer[Obj](
            ctx.client,
            resource,
            ctx.clock,
            namespace=_namespace(resource, root),
            field_selector=_field_selector(resource, root),
            transform=partial(_reduced, resource, ctx),
        )
        for resource, may in zip(wanted, readable, strict=True)
        if may
    ]
    for informer in informers:
        informer.add_handler(chain.changed)
    async with child_tasks(*(informer.run() for informer in informers)):
        for informer in informers:
            await informer.synced.wait()
        while True:
            chain.dirty.clear()
            began = ctx.clock.monotonic()
            chain.send()
            output.synced()
            await ctx.clock.sleep(max(_INTERVAL, _REST * (ctx.clock.monotonic() - began)))
            await chain.dirty.wait()


def _reduced(resource: Resource, ctx: PageContext, obj: Obj) -> Obj:
    return reduced(resource, obj, ctx.clock.now())


class _Chain:
    """The records that were read, and the graph that was sent."""

    def __init__(self, root: str | None, output: FeedOutput, unreadable: list[str]) -> None:
        self._root = root
        self._output = output
        self._unreadable = unreadable
        self._records: dict[str, Record] = {}
        self._sent: dict[str, dict[str, Any]] = {}
        self.dirty = asyncio.Event()
        """Set when a record has changed since the last graph."""

    def changed(self, old: Obj | None, new: Obj | None) -> None:
        if new is not None:
            record: Record = new["record"]
            if len(self._records) < _MAX_RECORDS or record.key in self._records:
                self._records[record.key] = record
        elif old is not None:
            self._records.pop(old["record"].key, None)
        self.dirty.set()

    def send(self) -> None:
        """Build the graph and send what has changed."""
        graph = Builder(self._records, self._root).build()
        graph["chain"]["unreadable"] = self._unreadable
        for key in self._sent.keys() - graph.keys():
            self._output.remove(key)
        for key, item in graph.items():
            if self._sent.get(key) != item:
                self._output.set(key, item)
        self._sent = graph


async def _root(client: Client, args: Args) -> _Root:
    names = ("group", "version", "resource", "namespace", "name")
    group, version, plural, namespace, name = (text_argument(args, each, "") for each in names)
    try:
        path_segment(namespace, "namespace")
        path_segment(name, "name")
    except ValueError as error:
        raise BadRequest(str(error)) from None
    if not name:
        return _Root(None, namespace, "")
    if not plural:
        raise BadRequest("argument resource must name the resource of the object")
    if version:
        resource = await client.resource((group, version, plural))
    else:
        resource = await client.discovery.search(f"{plural}.{group}" if group else plural)
    if resource.namespaced and not namespace:
        raise BadRequest(f"{plural} are namespaced: argument namespace must be given")
    if _is(resource, ("", "namespaces")):
        return _Root(None, name, "")
    return _Root(resource, namespace if resource.namespaced else "", name)


async def _resources(client: Client, root: Resource | None) -> list[Resource]:
    """Return the resources of which objects can be a part of the chain, each in the preferred version."""
    served: dict[tuple[str, str], Resource] = {}
    for each in await client.discovery.resources():
        if {"list", "watch"} <= {*each.verbs}:
            served.setdefault((each.group, each.plural), each)
    built_in = {(each.group, each.plural) for each in BY_KIND.values()}
    custom = [key for key in served if key not in built_in and served[key].namespaced][:_MAX_CUSTOM]
    of_node = root is not None and _is(root, _NODE)
    keys = [_POD, _NODE] if of_node else [*dict.fromkeys([*_READ, *custom])]
    found = {key: served[key] for key in keys if key in served}
    if root is not None:
        found[(root.group, root.plural)] = root
    return list(found.values())


def _namespace(resource: Resource, root: _Root) -> str:
    return root.namespace if resource.namespaced else ""


def _field_selector(resource: Resource, root: _Root) -> str:
    """Return which objects of a resource are read: of that of a cluster-wide object itself only this one, and of Pods
    those on a node."""
    if root.resource is None or root.resource.namespaced:
        return ""
    if resource == root.resource:
        return f"metadata.name={escape_field(root.name)}"
    return f"spec.nodeName={escape_field(root.name)}" if _is(root.resource, _NODE) and _is(resource, _POD) else ""


def _is(resource: Resource, key: tuple[str, str]) -> bool:
    return (resource.group, resource.plural) == key


async def _is_readable(client: Client, resource: Resource, root: _Root) -> bool:
    """Return whether the user may list a resource. Raises the error of the server for the object's own resource."""
    try:
        selector = _field_selector(resource, root)
        await client.list_page(resource, _namespace(resource, root), field_selector=selector, limit=1)
    except ApiError as error:
        if resource == root.resource or error.code not in (403, 404, 405):
            raise
        return False
    return True
