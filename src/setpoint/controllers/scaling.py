"""The `scale` of anything that has one: Deployments, StatefulSets, custom resources."""

from __future__ import annotations

from typing import Any

from setpoint.client import Client, Resource
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
