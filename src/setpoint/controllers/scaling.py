"""Reads the `scale` subresource of any resource that has one."""

from __future__ import annotations

from typing import Any

from setpoint.client import Client, Resource
from setpoint.kinds.catalog import RESOURCES
from setpoint.meta.errors import ApiError, NotFound

Obj = dict[str, Any]


class NotScalable(ApiError):
    """The kind has no scale subresource."""


def group_resource(resource: Resource) -> str:
    """Return the group resource, such as `deployments.apps` or `pods`."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


async def read_scale(client: Client, resource: Resource, name: str, namespace: str) -> Obj | None:
    """Return the Scale, or None if the object does not exist. Raise NotScalable."""
    try:
        return await client.get(resource, name, namespace, subresource="scale")
    except NotFound:
        part = resource.subresource("scale")
        if part is None or part.kind != "Scale":
            text = f"{group_resource(resource)} does not implement the scale subresource"
            raise NotScalable(text) from None
        return None


async def resources_of_kind(client: Client, group: str, kind: str) -> list[Resource]:
    """Return the resources of a kind in all served versions. Raise NotFound if there is none."""
    found = [each for each in RESOURCES if (each.group, each.kind) == (group, kind)]
    for fresh in (False, True):
        if not found:
            known = await client.discovery.resources(fresh=fresh)
            found = [each for each in known if (each.group, each.kind) == (group, kind)]
    if not found:
        raise NotFound(f'no matches for kind "{kind}" in group "{group}"')
    return found
