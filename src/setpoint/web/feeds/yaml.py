"""The feed `yaml`: the text of one object while it changes, with the managers that own each line.

Arguments: `group`, `version`, `resource`, `namespace`, `name`; `reveal`, true to show the values of a Secret. Items:

    "object": {"exists": true, "resourceVersion": "291", "hidden": false, "tooLong": false,
               "lines": [["  replicas: 3", "spec.replicas", [0], false], ...],
               "managers": [{"name": "kubectl-create", "shown": "kubectl-create", "operation": "Update",
                             "subresource": "", "time": "..."}],
               "applied": "..."}

A line is its text, the path of its field, the indexes of the managers that own the field, and whether it has a value
that no manager owns. `hidden` says that the values of a Secret are not shown, `applied` is the last configuration that
`kubectl apply` has recorded, as YAML; empty if there is none.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import orjson

from setpoint.client.resources import path_segment
from setpoint.kinds.catalog import Resource
from setpoint.meta.body import dump_yaml
from setpoint.meta.errors import BadRequest
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.selectors import escape_field
from setpoint.reconcile.informer import Informer
from setpoint.tasks import child_tasks
from setpoint.view.field_owners import owned_text
from setpoint.view.secrets import LAST_APPLIED, SecretMask
from setpoint.web.feed import Args, FeedOutput, Item, PageContext, text_argument

_INTERVAL: Final = 0.2
"""Seconds between two updates at least."""
MAX_SIZE: Final = 512 * 1024
"""Characters of a text that is shown."""


async def find_resource(ctx: PageContext, args: Args) -> tuple[Resource, str, str]:
    """Return the resource, the namespace and the name of the object that the arguments name. Raises ApiError."""
    names = ("group", "version", "resource", "namespace", "name")
    group, version, plural, namespace, name = (text_argument(args, each, "") for each in names)
    if not (plural and name):
        raise BadRequest("arguments resource and name must be given")
    try:
        path_segment(namespace, "namespace")
        path_segment(name, "name")
    except ValueError as error:
        raise BadRequest(str(error)) from None
    if version:
        resource = await ctx.client.resource((group, version, plural))
    else:
        resource = await ctx.client.discovery.search(f"{plural}.{group}" if group else plural)
    return resource, namespace if resource.namespaced else "", name


async def run(ctx: PageContext, args: Args, output: FeedOutput) -> None:
    resource, namespace, name = await find_resource(ctx, args)
    reveal = args.get("reveal") is True
    selector = f"metadata.name={escape_field(name)}"
    # An informer retries errors; this list raises if the user may not read the object.
    await ctx.client.list_page(resource, namespace, field_selector=selector, limit=1)
    informer = Informer[Obj](ctx.client, resource, ctx.clock, namespace=namespace, field_selector=selector)
    changed = asyncio.Event()
    informer.add_handler(lambda old, new: changed.set())
    async with child_tasks(informer.run()):
        await informer.synced.wait()
        while True:
            changed.clear()
            obj = next(iter(informer.items.values()), None)
            output.set("object", _item(resource, obj, reveal) if obj is not None else {"exists": False})
            output.synced()
            await changed.wait()
            await ctx.clock.sleep(_INTERVAL)


def _item(resource: Resource, obj: Obj, reveal: bool) -> Item:
    secret = (resource.group, resource.plural) == ("", "secrets")
    shown: ObjView = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
    if secret and not reveal:
        shown = SecretMask().masked(shown)
    found = owned_text(shown)
    too_long = sum(len(line.text) for line in found.lines) > MAX_SIZE
    return {
        "exists": True,
        "resourceVersion": obj["metadata"].get("resourceVersion", ""),
        "hidden": secret and not reveal,
        "tooLong": too_long,
        "lines": [] if too_long else [list(line) for line in found.lines],
        "managers": [{**each._asdict(), "shown": each.shown} for each in found.managers],
        "applied": "" if too_long else _applied(shown),
    }


def _applied(obj: ObjView) -> str:
    text = (obj["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    if not isinstance(text, str):
        return ""
    try:
        found: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return dump_yaml(found).decode()
