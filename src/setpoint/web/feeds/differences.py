"""The feed `differences`: what has changed between two moments, as `setpoint diff --from --to` shows it.

Arguments: `from`, a revision, and `to`, a revision, or 0 or absent for now. Only objects that were written in between
are compared, of Leases and Events none. The key of an item is `group/resource/namespace/name`:

    {"sign": "~", "ref": {"group": "apps", "version": "v1", "resource": "deployments", "kind": "Deployment",
                          "namespace": "default", "name": "web"}, "text": "spec.replicas 3 -> 5"}

The item `total` counts: {"created": 1, "changed": 2, "deleted": 0, "more": 0}. `more` is the number of objects that
were written and not compared, because there were more than `MAX_OBJECTS`. The feed ends when all are compared.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from setpoint.client import Client, Resource
from setpoint.client.resources import path_of, query_of
from setpoint.kinds.catalog import RESOURCES
from setpoint.meta.errors import ApiError, BadRequest, NotFound
from setpoint.meta.objects import Obj
from setpoint.view.differences import SIGNS, difference_text, differences
from setpoint.view.timeline import is_routine
from setpoint.web.feed import Args, FeedOutput, PageContext
from setpoint.web.write_stream import MISSING, PATH

MAX_OBJECTS: Final = 300
_MAX_WRITES: Final = 20_000
"""Writes that are examined for the objects that they changed."""
_PAGE: Final = 500
_SECRETS: Final = ("", "secrets")
_BUILT_IN: Final = {(resource.group, resource.plural): resource for resource in RESOURCES}

_Written = tuple[str, str, str, str]
"""Group, resource, namespace and name."""


async def run(ctx: PageContext, args: Args, output: FeedOutput) -> None:
    if "/at/" in ctx.cluster:
        raise BadRequest("name both moments in the arguments")
    begin, end = revision_argument(args, "from"), revision_argument(args, "to")
    if not begin or (end and end < begin):
        raise BadRequest("from must be a revision that is not after to")
    written, rest = await _written(ctx.client, begin, end)
    counts: Counter[str] = Counter()
    for group, plural, namespace, name in written:
        resource = await _resource(ctx.client, group, plural)
        if resource is None:
            rest += 1
            continue
        key = (namespace, name)
        before = await _get(ctx.client, f"/at/{begin}", resource, namespace, name)
        now = await _get(ctx.client, f"/at/{end}" if end else "", resource, namespace, name)
        found = differences({key: before} if before else {}, {key: now} if now else {})
        for each in found:
            ref = {"group": group, "version": resource.version, "resource": plural, "kind": resource.kind}
            ref |= {"namespace": namespace, "name": name}
            text = difference_text(each, hide_values=(group, plural) == _SECRETS)
            output.set("/".join((group, plural, namespace, name)), {"sign": each.sign, "ref": ref, "text": text})
            counts[SIGNS[each.sign]] += 1
    output.set("total", {**dict.fromkeys(SIGNS.values(), 0), **counts, "more": rest})
    output.synced()


async def _written(client: Client, begin: int, end: int) -> tuple[list[_Written], int]:
    """Return the objects that were written after one revision and up to another, and how many more there were."""
    found: dict[_Written, None] = {}
    after, examined = begin, 0
    while after and examined < _MAX_WRITES:
        query = query_of({"after": after, "to": end or None, "limit": _PAGE})
        try:
            page = await client.sender.json("GET", PATH, query)
        except ApiError as error:
            if error.code in (404, 405):
                raise NotFound(MISSING) from None
            raise
        for write in page["writes"]:
            examined += 1
            for each in write["objects"]:
                if not is_routine(each["group"], each["resource"]):
                    found[(each["group"], each["resource"], each["namespace"], each["name"])] = None
        after = page["next"]
    objects = sorted(found)
    return objects[:MAX_OBJECTS], len(objects) - len(objects[:MAX_OBJECTS])


async def _resource(client: Client, group: str, plural: str) -> Resource | None:
    """Return a resource; None if the server does not serve it any more."""
    if known := _BUILT_IN.get((group, plural)):
        return known
    try:
        return await client.discovery.search(f"{plural}.{group}" if group else plural)
    except NotFound:
        return None


async def _get(client: Client, prefix: str, resource: Resource, namespace: str, name: str) -> Obj | None:
    """Return an object at a moment; None if it did not exist."""
    try:
        return await client.sender.json("GET", prefix + path_of(resource, namespace, name))
    except NotFound:
        return None


def revision_argument(args: Args, name: str) -> int:
    """Return a revision; 0 if there is none. Raises BadRequest."""
    value: Any = args.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise BadRequest(f"argument {name} must be a revision")
    return value
