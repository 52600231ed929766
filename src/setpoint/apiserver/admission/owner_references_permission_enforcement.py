"""OwnerReferencesPermissionEnforcement: setting owner references requires the right to delete the object.

Setting blockOwnerDeletion requires the right to update the finalizers of the owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from setpoint.apiserver.admission.plugin import Attributes, Plugin
from setpoint.apiserver.filters.authorize import Access, AuthorizerChain, Decision
from setpoint.kinds.catalog import Resource
from setpoint.meta.objects import Obj


class OwnerReferencesPermissionEnforcement(Plugin):
    name = "OwnerReferencesPermissionEnforcement"

    def __init__(self, authorizer: AuthorizerChain, resources: Callable[[], Iterable[Resource]]) -> None:
        self._authorizer = authorizer
        self._resources = resources

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        # A write of a Pod's status cannot change its owners.
        is_pod_status = (resource.group, resource.plural, subresource) == ("", "pods", "status")
        return operation in ("CREATE", "UPDATE") and not is_pod_status

    async def validate(self, attrs: Attributes) -> None:
        owners, before = _owners(attrs.obj), _owners(attrs.old)
        if owners == before:
            return
        resource = attrs.resource
        if attrs.operation != "CREATE":
            access = Access(
                attrs.user,
                "delete",
                resource.group,
                resource.version,
                resource.plural,
                attrs.subresource,
                attrs.namespace,
                attrs.name,
            )
            allowed, reason = await self._decide(access)
            if not allowed:
                why = f"cannot set an ownerRef on a resource you can't delete: {reason}, <nil>"
                raise attrs.forbidden(why)
        blocking = _newly_blocking(owners, before)
        if not blocking:
            return
        every_finalizer = Access(attrs.user, "update", "*", "*", "*", "finalizers", name="*")
        if (await self._decide(every_finalizer))[0]:
            return
        for owner in blocking:
            await self._check_owner(attrs, owner)

    async def _check_owner(self, attrs: Attributes, owner: Obj) -> None:
        api_version, kind = owner.get("apiVersion", ""), owner.get("kind", "")
        found = [each for each in self._resources() if (each.api_version, each.kind) == (api_version, kind)]
        if not found:
            raise attrs.forbidden(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion "
                f'{api_version} Kind {kind}: no matches for kind "{kind}" in version "{api_version}"'
            )
        for each in found:
            access = Access(
                attrs.user,
                "update",
                each.group,
                each.version,
                each.plural,
                "finalizers",
                attrs.namespace if each.namespaced else "",
                owner.get("name", ""),
            )
            allowed, reason = await self._decide(access)
            if not allowed:
                raise attrs.forbidden(
                    "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set "
                    f"finalizers on: {reason}, <nil>"
                )

    async def _decide(self, access: Access) -> tuple[bool, str]:
        decision, reason = await self._authorizer.decide(access)
        return decision is Decision.ALLOW, reason


def _owners(obj: Obj | None) -> list[Obj]:
    return ((obj or {}).get("metadata") or {}).get("ownerReferences") or []


def _newly_blocking(owners: list[Obj], before: list[Obj]) -> list[Obj]:
    blocked = {owner.get("uid") for owner in before if owner.get("blockOwnerDeletion")}
    return [owner for owner in owners if owner.get("blockOwnerDeletion") and owner.get("uid") not in blocked]
