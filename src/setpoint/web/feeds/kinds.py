"""The feed `kinds`: the resources that the server has, custom ones too, and how many objects of each there are.

Arguments: `namespace`, whose objects are counted, empty for all of the cluster; `counts`, false to count nothing. The
key of an item is the resource as `pods` or `apps.deployments`:

    {"group": "apps", "version": "v1", "resource": "deployments", "kind": "Deployment", "singular": "deployment",
     "shortNames": ["deploy"], "categories": ["all"], "namespaced": true, "verbs": [...], "count": 3}

`count` is null if it is not known, because nothing is counted or the user may not list the objects. Counting needs a
request for each kind, so a tab that wants to know new kinds soon opens the feed without counts too.
"""

from __future__ import annotations

from typing import Final

from setpoint.client import Client, Unreachable
from setpoint.client.resources import path_of, path_segment
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import ApiError, BadRequest, TooManyRequests
from setpoint.tasks import run_all
from setpoint.web.feed import Args, FeedOutput, Item, PageContext, text_argument

_INTERVAL: Final = 1.0
"""Seconds between two reads at least."""
_REST: Final = 30
"""The pause after a read, as a multiple of the time that it took, so that a slow server is not burdened."""
_LONGEST_PAUSE, _LONGEST_PAUSE_OF_COUNTS = 5.0, 60.0
"""Seconds between two reads at most: a new kind is known soon also if the server is busy."""
_AT_ONCE: Final = 4
_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


async def run(ctx: PageContext, args: Args, output: FeedOutput) -> None:
    namespace = text_argument(args, "namespace", "")
    counts = args.get("counts", False)
    if not isinstance(counts, bool):
        raise BadRequest("argument counts must be true or false")
    try:
        path_segment(namespace, "namespace")
    except ValueError as error:
        raise BadRequest(str(error)) from None
    shown: dict[str, Item] = {}
    while True:
        began = ctx.clock.monotonic()
        try:
            found = await _read(ctx.client, namespace, counts)
        except (ApiError, Unreachable) as error:
            if isinstance(error, ApiError) and error.code < 500 and not isinstance(error, TooManyRequests):
                raise
        else:
            for key in [key for key in shown if key not in found]:
                output.remove(key)
            for key, item in found.items():
                if shown.get(key) != item:
                    output.set(key, item)
            shown = found
            output.synced()
            if "/at/" in ctx.cluster:  # the past does not change
                return
        took = ctx.clock.monotonic() - began
        longest = _LONGEST_PAUSE_OF_COUNTS if counts else _LONGEST_PAUSE
        await ctx.clock.sleep(min(max(_INTERVAL, _REST * took), longest))


async def _read(client: Client, namespace: str, counts: bool) -> dict[str, Item]:
    resources: dict[str, Resource] = {}
    # Versions are in the order of preference: a resource counts in the first that has it.
    for one in await client.discovery.resources(fresh=True):
        if "list" in one.verbs:
            resources.setdefault(f"{one.group}.{one.plural}" if one.group else one.plural, one)
    numbers: dict[str, int | None] = {}
    if counts:
        waiting = iter(resources.items())

        async def count() -> None:
            for key, resource in waiting:
                numbers[key] = await _count(client, resource, namespace)

        await run_all(*(count() for _ in range(_AT_ONCE)))
    return {key: _item(one, numbers.get(key)) for key, one in resources.items()}


async def _count(client: Client, resource: Resource, namespace: str) -> int | None:
    path = path_of(resource, namespace if resource.namespaced else "")
    try:
        found = await client.sender.json("GET", path, "limit=1", accept=_METADATA_LIST)
    except ApiError:
        return None
    metadata = found.get("metadata") or {}
    return len(found.get("items") or ()) + int(metadata.get("remainingItemCount") or 0)


def _item(resource: Resource, count: int | None) -> Item:
    return {
        "group": resource.group,
        "version": resource.version,
        "resource": resource.plural,
        "kind": resource.kind,
        "singular": resource.singular_name,
        "shortNames": list(resource.short),
        "categories": list(resource.categories),
        "namespaced": resource.namespaced,
        "verbs": list(resource.verbs),
        "count": count,
    }
