"""The feed `object`: the loop of one object while it changes.

Arguments: `group`, `version`, `resource`, `namespace`, `name`. Items:

    "object": {"exists": true, "ref": {...}, "uid": "...", "created": "...", "generation": 4, "observed": 4,
               "resourceVersion": "291", "labels": {...}, "owners": [{"apiVersion": ..., "kind": ..., "name": ...}],
               "deleting": ""}
    "loop":   {"desired": [...], "observed": [...], "drift": [{"text": ..., "wanted": ..., "observed": ...}],
               "phase": "acting", "action": "...", "gauge": {"observed": 2, "desired": 3, "unit": "Pods ready"}}
    "reason": {"sentence": "...", "evidence": [...], "until": "...", "help": [...]}
                               why the object is not as desired, if the server can answer that
    "pods":   {"uids": [...]}  the Pods that belong to the object or that it selects, at most `_MAX_PODS`

`loop` is absent while the object does not exist.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

from setpoint.client import Unreachable
from setpoint.client.resources import builtin, path_segment, query_of
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import ApiError, BadRequest
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.selectors import escape_field, format_labels
from setpoint.reconcile.informer import Informer
from setpoint.tasks import child_tasks, within
from setpoint.view.loop import Loop, Related, look, pods_of
from setpoint.web.feed import Args, FeedOutput, PageContext, text_argument
from setpoint.web.feeds.objects import ref_of

_INTERVAL: Final = 0.1
"""Seconds between two updates at least."""
_REFRESH: Final = 5.0
"""Seconds after which texts that contain a duration are made again."""
_REASON_AFTER: Final = 0.5
"""Seconds for which an object is not as desired before the server is asked why."""
_REASON_EVERY: Final = 5.0
"""Seconds after which the server is asked again, if nothing has changed."""
_WHY: Final = "/setpoint/v1/why"
_MAX_PODS: Final = 500
_PODS: Final = builtin("pods")
_MAX_LABELS: Final = 64


async def run(ctx: PageContext, args: Args, output: FeedOutput) -> None:
    names = ("group", "version", "resource", "namespace", "name")
    group, version, plural, namespace, name = (text_argument(args, each, "") for each in names)
    if not (plural and name):
        raise BadRequest("arguments resource and name must be given")
    try:
        path_segment(namespace, "namespace")
        path_segment(name, "name")
    except ValueError as error:
        raise BadRequest(str(error)) from None
    client = ctx.client
    if version:
        resource = await client.resource((group, version, plural))
    else:
        resource = await client.discovery.search(f"{plural}.{group}" if group else plural)
    selector = f"metadata.name={escape_field(name)}"
    place = namespace if resource.namespaced else ""
    await client.list_page(resource, place, field_selector=selector, limit=1)
    informer = Informer[Obj](client, resource, ctx.clock, namespace=place, field_selector=selector)
    followed = _Object(ctx, resource, place, name, output)
    informer.add_handler(followed.changed)
    async with child_tasks(informer.run(), followed.follow_pods(), followed.explain()):
        await informer.synced.wait()
        while True:
            followed.dirty.clear()
            followed.send()
            output.synced()
            await ctx.clock.sleep(_INTERVAL)
            with suppress(TimeoutError):
                await within(ctx.clock, _REFRESH, followed.dirty.wait())


class _Object:
    """The state of one object, of its Pods, and of what is said about them."""

    def __init__(self, ctx: PageContext, resource: Resource, namespace: str, name: str, output: FeedOutput) -> None:
        self._ctx = ctx
        self._resource = resource
        self._namespace = namespace
        self._name = name
        self._output = output
        self._obj: Obj | None = None
        self._pods: list[Obj] | None = None
        self._selects = asyncio.Event()
        """Set when the object, and so its Pods, are others than before."""
        self._differs = asyncio.Event()
        """Set while the object is not as desired."""
        self._note = ""
        self._moved = asyncio.Event()
        """Set when the drift has changed."""
        self.dirty = asyncio.Event()
        """Set when something is to be sent."""

    def changed(self, old: Obj | None, new: Obj | None) -> None:
        if _selection(self._obj) != _selection(new):
            self._selects.set()
        self._obj = new
        self.dirty.set()

    def send(self) -> None:
        obj, resource = self._obj, self._resource
        if obj is None:
            ref = ref_of(resource, {"namespace": self._namespace, "name": self._name})
            self._output.set("object", {"exists": False, "ref": ref})
            self._output.remove("loop")
            self._output.remove("reason")
            self._differs.clear()
            return
        loop = self._loop(obj)
        self._output.set("object", _facts(resource, obj))
        self._output.set("loop", loop.to_json())
        uids = [each["metadata"].get("uid", "") for each in self._own_pods(obj) or ()]
        self._output.set("pods", {"uids": uids[:_MAX_PODS]})
        if loop.note != self._note:
            self._note = loop.note
            self._moved.set()
        if loop.drift:
            self._differs.set()
        else:
            self._differs.clear()
            self._output.remove("reason")

    def _loop(self, obj: ObjView) -> Loop:
        related = Related(self._ctx.clock.now(), self._own_pods(obj))
        return look(self._resource.group, self._resource.kind, obj, related)

    def _own_pods(self, obj: ObjView) -> list[ObjView] | None:
        if self._pods is None:
            return None
        return pods_of(self._resource.group, self._resource.kind, obj, self._pods)

    # -- Pods --------------------------------------------------------------------------------------------------------

    async def follow_pods(self) -> None:
        """Read the Pods of the object, and others when it selects others."""
        while True:
            await self._selects.wait()
            self._selects.clear()
            self._pods = None
            async with child_tasks(self._follow_selected(), self._selects.wait()) as tasks:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)

    async def _follow_selected(self) -> None:
        obj, client, clock = self._obj, self._ctx.client, self._ctx.clock
        selectors = _pod_selectors(self._resource, obj) if obj is not None else None
        if selectors is None:
            await self._selects.wait()
            return
        labels, fields = selectors
        try:
            await client.list_page(_PODS, self._namespace, label_selector=labels, field_selector=fields, limit=1)
        except ApiError:
            await self._selects.wait()  # the user may not read Pods: the status has to suffice
            return
        informer = Informer[Obj](
            client, _PODS, clock, namespace=self._namespace, label_selector=labels, field_selector=fields
        )

        def changed(old: Obj | None, new: Obj | None) -> None:
            self._pods = list(informer.items.values())
            self.dirty.set()

        async with child_tasks(informer.run()) as (following,):
            await informer.synced.wait()
            informer.add_handler(changed)
            changed(None, None)
            await following

    # -- the reason --------------------------------------------------------------------------------------------------

    async def explain(self) -> None:
        """Ask the server why the object is not as desired: soon after it has changed, and for as long as it is not."""
        clock = self._ctx.clock
        while True:
            await self._differs.wait()
            self._moved.clear()
            await clock.sleep(_REASON_AFTER)
            if not self._differs.is_set():
                continue
            try:
                answer = await self._ctx.client.sender.json("GET", _WHY, self._question())
            except (ApiError, Unreachable) as error:
                if isinstance(error, ApiError) and error.code in (403, 404, 405):
                    return  # this server does not answer such questions
                answer = {}
            findings = answer.get("findings") or ()
            if findings and self._differs.is_set():
                kept = ("sentence", "evidence", "until", "help")
                self._output.set("reason", {name: findings[0].get(name) or "" for name in kept})
            else:
                self._output.remove("reason")
            with suppress(TimeoutError):
                await within(clock, _REASON_EVERY, self._moved.wait())

    def _question(self) -> str:
        resource = self._resource
        return query_of(
            {
                "group": resource.group,
                "resource": resource.plural,
                "namespace": self._namespace,
                "name": self._name,
                "not": True,
                "logs": "false",  # the feed asks again and again, and shows none
            }
        )


def _selection(obj: ObjView | None) -> str:
    """Return a text that is another one if the object selects other Pods."""
    return f"{obj['metadata'].get('uid')} {(obj.get('spec') or {}).get('selector')}" if obj is not None else ""


def _pod_selectors(resource: Resource, obj: ObjView) -> tuple[str, str] | None:
    """Return the label and the field selector that select the Pods of an object, or more; None if it has none."""
    if pods_of(resource.group, resource.kind, obj, ()) is None:
        return None
    if resource.kind == "Node":
        return "", f"spec.nodeName={escape_field(obj['metadata']['name'])}"
    selector = (obj.get("spec") or {}).get("selector") or {}
    if not selector:
        return None
    if "matchLabels" in selector or "matchExpressions" in selector:
        return format_labels(selector).replace("<none>", ""), ""
    return ",".join(f"{name}={value}" for name, value in selector.items()), ""


def _facts(resource: Resource, obj: ObjView) -> dict[str, Any]:
    meta = obj["metadata"]
    owners = meta.get("ownerReferences") or ()
    return {
        "exists": True,
        "ref": ref_of(resource, meta),
        "uid": meta.get("uid", ""),
        "created": meta.get("creationTimestamp") or "",
        "generation": meta.get("generation", 0),
        "observed": (obj.get("status") or {}).get("observedGeneration"),
        "resourceVersion": meta.get("resourceVersion", ""),
        "labels": dict(list((meta.get("labels") or {}).items())[:_MAX_LABELS]),
        "owners": [{name: str(each.get(name, "")) for name in ("apiVersion", "kind", "name")} for each in owners],
        "deleting": meta.get("deletionTimestamp") or "",
    }
