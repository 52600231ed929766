"""The `scale` and `status` subresources of any resource."""

from __future__ import annotations

from setpoint.client import Client, Resource
from setpoint.kinds.catalog import RESOURCES
from setpoint.meta.errors import ApiError, Conflict, NotFound
from setpoint.meta.objects import Obj, ObjView


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


async def write_status(client: Client, resource: Resource, obj: ObjView, status: ObjView) -> Obj | None:
    """Write the status of an object and return the response, or None if the object was replaced meanwhile."""
    try:
        return await client.update({**obj, "status": status}, subresource="status")
    except Conflict:
        # Often only the spec changed meanwhile; observedGeneration says which spec this status refers to.
        meta = obj["metadata"]
        fresh = await client.get(resource, meta["name"], meta["namespace"])
        if fresh["metadata"]["uid"] != meta["uid"]:
            return None
        return await client.update({**fresh, "status": status}, subresource="status")
