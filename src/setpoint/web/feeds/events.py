"""The feed `events`: the events of a namespace or of the cluster, or those about one object.

Arguments: `namespace`, empty for all; or `kind`, `name` and, for an object in one, `namespace`. The key of an item is
namespace and name of the event:

    {"type": "Warning", "reason": "BackOff", "message": "...", "count": 3, "first": "...", "last": "...",
     "source": "kubelet", "about": {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "web"},
     "revision": 4711}

`revision` orders events of the same second; 0 if the server's revisions are not numbers.
Of more than `MAX_EVENTS`, the latest are shown.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import Any, Final

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.selectors import escape_field
from setpoint.reconcile.informer import Informer
from setpoint.reconcile.keys import key_of
from setpoint.tasks import child_tasks
from setpoint.web.feed import Args, FeedOutput, Item, PageContext, text_argument

MAX_EVENTS: Final = 2_000
_EVENTS: Final = builtin("events")
_DROPPED_AT_ONCE: Final = 100


async def run(ctx: PageContext, args: Args, output: FeedOutput) -> None:
    namespace = text_argument(args, "namespace", "")
    options: dict[str, Any] = {"namespace": namespace, "field_selector": _selector(args, namespace)}
    # An informer retries errors; this list raises if the user may not read events.
    await ctx.client.list_page(_EVENTS, **options, limit=1)
    informer = Informer[Obj](ctx.client, _EVENTS, ctx.clock, **options, transform=_reduced)
    shown: dict[str, str] = {}
    """The time of each event that is shown."""

    def changed(old: Obj | None, new: Obj | None) -> None:
        if new is None:
            assert old is not None
            shown.pop(key_of(old), None)
            output.remove(key_of(old))
            return
        key, item = key_of(new), new["item"]
        shown[key] = item["last"]
        output.set(key, item)
        if len(shown) > MAX_EVENTS:
            for oldest in nsmallest(_DROPPED_AT_ONCE, shown, key=lambda each: shown[each]):
                del shown[oldest]
                output.remove(oldest)

    informer.add_handler(changed)
    async with child_tasks(informer.run()) as (follows,):
        await informer.synced.wait()
        output.synced()
        await follows


def _selector(args: Args, namespace: str) -> str:
    """Return the field selector of the events about the object that the arguments name; empty if they name none."""
    kind, name = text_argument(args, "kind", ""), text_argument(args, "name", "")
    if not name:
        return ""
    wanted = {"kind": kind, "name": name, "namespace": namespace}
    return ",".join(f"involvedObject.{key}={escape_field(value)}" for key, value in wanted.items() if value)


def _reduced(event: Obj) -> Obj:
    return {"metadata": event["metadata"], "item": _item(event)}


def _item(event: ObjView) -> Item:
    series, about, source = event.get("series") or {}, event.get("involvedObject") or {}, event.get("source") or {}
    first = event.get("firstTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or ""
    version = event["metadata"].get("resourceVersion") or ""
    return {
        "type": event.get("type") or "",
        "reason": event.get("reason") or "",
        "message": event.get("message") or "",
        "count": series.get("count") or event.get("count") or 1,
        "first": first,
        "last": series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or first,
        "source": source.get("component") or event.get("reportingComponent") or "",
        "revision": int(version) if version.isdigit() else 0,
        "about": {key: about.get(key) or "" for key in ("apiVersion", "kind", "namespace", "name")},
    }
