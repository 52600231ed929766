"""The `scale` of anything that has one: Deployments, StatefulSets, custom resources."""

from __future__ import annotations

from typing import Any

from setpoint.client import Client, Resource
from setpoint.kinds.catalog import RESOURCES
from setpoint.meta.errors import ApiError, NotFound

Obj = dict[str, Any]


class NotScalable(ApiError):
    """The kind has no scale subresource."""


def group_resource(resource: Resource) -> str:
    """`deployments.apps`, `pods`."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


async def read_scale(client: Client, resource: Resource, name: str, namespace: str) -> Obj | None:
    """None if there is no such object. Raises NotScalable."""
    try:
        return await client.get(resource, name, namespace, subresource="scale")
    except NotFound:
        part = resource.subresource("scale")
        if part is None or part.kind != "Scale":
            text = f"{group_resource(resource)} does not implement the scale subresource"
            raise NotScalable(text) from None
        return None


async def resources_of_kind(client: Client, group: str, kind: str) -> list[Resource]:
    """In all versions that there are. Raises NotFound if there is no such kind."""
    found = [each for each in RESOURCES if (each.group, each.kind) == (group, kind)]
    for fresh in (False, True):
        if not found:
            known = await client.discovery.resources(fresh=fresh)
            found = [each for each in known if (each.group, each.kind) == (group, kind)]
    if not found:
        raise NotFound(f'no matches for kind "{kind}" in group "{group}"')
    return found
