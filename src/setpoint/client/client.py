"""The client: reads, writes and watches of any resource, over any transport."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from setpoint.client.discovery import Discovery
from setpoint.client.interface import ObjectList, ResourceRef
from setpoint.client.kubeconfig import Impersonation
from setpoint.client.resources import BY_KIND, BY_PLURAL, path_of, query_of
from setpoint.client.sender import JSON, Sender
from setpoint.client.transport import EventStream, Transport
from setpoint.kinds.catalog import RESOURCES, Resource
from setpoint.meta.clock import Clock
from setpoint.meta.errors import Expired, NotFound
from setpoint.meta.objects import Obj, ObjView

if TYPE_CHECKING:
    from setpoint.client.watch import Watch
    from setpoint.meta.lease_term import Fence

METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class _Target(NamedTuple):
    """The object that a request is about; without a name, the collection."""

    resource: Resource
    namespace: str
    name: str = ""
    subresource: str = ""


class Client:
    """A Reader and a Writer (see `interface`). Several clients can share one transport, each with its own name and
    user."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        *,
        user_agent: str = "setpoint",
        impersonate: Impersonation | None = None,
        default_namespace: str = "",
        on_warning: Callable[[str], None] | None = None,
        discovery: Discovery | None = None,
        fence: Fence | None = None,
    ) -> None:
        """Create a client; `default_namespace` applies to namespaced objects without a namespace.

        Lists and watches without a namespace are of all namespaces regardless.
        """
        self.default_namespace = default_namespace
        self.sender = Sender(
            transport,
            clock,
            user_agent=user_agent,
            impersonate=impersonate,
            on_warning=on_warning,
            fence=fence,
        )
        self.discovery = discovery or Discovery(self.sender.document)

    def named(self, user_agent: str, impersonate: Impersonation | None = None, *, fence: Fence | None = None) -> Client:
        """Return a client on the same connections for another component."""
        sender = self.sender
        return Client(
            sender.transport,
            sender.clock,
            user_agent=user_agent,
            impersonate=impersonate or sender.impersonate,
            default_namespace=self.default_namespace,
            on_warning=sender.on_warning,
            discovery=self.discovery,
            fence=fence or sender.fence,
        )

    def fenced(self, fence: Fence | None) -> Client:
        """Return a client that writes only while `fence` permits, that is, while its component leads; without a fence,
        this one."""
        return self if fence is None else self.named(self.sender.user_agent, fence=fence)

    async def close(self) -> None:
        await self.sender.transport.close()

    # -- resources -----------------------------------------------------------------------------------------------------

    async def resource(self, ref: ResourceRef) -> Resource:
        """Return the resource; those that are not built in are discovered once. Raise NotFound if the server has
        none."""
        if isinstance(ref, Resource):
            return ref
        known = BY_KIND.get(ref) if len(ref) == 2 else BY_PLURAL.get(ref)
        return known or await self.discovery.find(ref)

    async def _target(
        self, obj: ObjView, ref: ResourceRef | None, namespace: str = "", *, subresource: str = ""
    ) -> _Target:
        """Return the target of a write of `obj`; `namespace` takes precedence over the namespace of the object."""
        meta = obj.get("metadata") or {}
        if ref is None:
            ref = (obj.get("apiVersion") or "", obj.get("kind") or "")
            if not (ref[0] and ref[1]):
                raise ValueError("an object to be written must have apiVersion and kind")
            ref = BY_KIND.get(ref, ref)  # most objects are of built-in kinds
        resource = ref if isinstance(ref, Resource) else await self.resource(ref)
        return _Target(resource, namespace or meta.get("namespace") or "", meta.get("name") or "", subresource)

    def _namespace(self, resource: Resource, namespace: str) -> str:
        if not resource.namespaced:
            return ""
        namespace = namespace or self.default_namespace
        if not namespace:
            raise ValueError(f"{resource.plural} are namespaced: a namespace is required")
        return namespace

    async def _request(
        self,
        method: str,
        target: _Target,
        query: str = "",
        body: Any = None,
        *,
        accept: str = JSON,
        content_type: str = JSON,
    ) -> Obj:
        """Send a request about one object, or for a new one, and return the object in the response.

        A server that does not know the path may serve the kind in the other scope by now, because its definition was
        recreated. The path is then determined again.
        """

        resource, namespace, name, subresource = target

        async def send(to: Resource) -> Obj:
            path = path_of(to, self._namespace(to, namespace), name, subresource)
            return await self.sender.json(method, path, query, body, accept=accept, content_type=content_type)

        try:
            return await send(resource)
        except NotFound as error:
            if error.details or resource in RESOURCES:
                raise
            current = await self.discovery.refresh(resource)
            if current is None or current.namespaced == resource.namespaced:
                raise
        return await send(current)

    # -- reading --------------------------------------------------------------------------------------------------

    async def get(
        self,
        resource: ResourceRef,
        name: str,
        namespace: str = "",
        *,
        subresource: str = "",
        resource_version: str = "",
        metadata_only: bool = False,
    ) -> Obj:
        if not name:
            raise ValueError("resource name may not be empty")
        target = _Target(await self.resource(resource), namespace, name, subresource)
        query = f"resourceVersion={resource_version}" if resource_version else ""
        return await self._request("GET", target, query, accept=METADATA if metadata_only else JSON)

    async def list(
        self,
        resource: ResourceRef,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
        resource_version_match: str = "",
        page_size: int = 500,
        metadata_only: bool = False,
    ) -> ObjectList:
        options: dict[str, Any] = {
            "label_selector": label_selector,
            "field_selector": field_selector,
            "resource_version": resource_version,
            "resource_version_match": resource_version_match,
            "metadata_only": metadata_only,
        }
        found = await self.list_page(resource, namespace, limit=page_size, **options)
        following = {**options, "resource_version": "", "resource_version_match": ""}
        while found.continue_token:
            try:
                page = await self.list_page(
                    resource, namespace, limit=page_size, continue_token=found.continue_token, **following
                )
            except Expired:
                # The continue token has expired: only a list without pages can still be of one revision.
                return await self.list_page(resource, namespace, **options)
            found.items += page.items
            found.continue_token = page.continue_token
        found.remaining = None
        return found

    async def list_page(
        self,
        resource: ResourceRef,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
        resource_version_match: str = "",
        limit: int = 0,
        continue_token: str = "",
        metadata_only: bool = False,
    ) -> ObjectList:
        """Return one page, with the token of the next one in `continue_token`. Raise Expired for a token that is too
        old."""
        found = await self.resource(resource)
        query = query_of(
            {
                "labelSelector": label_selector,
                "fieldSelector": field_selector,
                "resourceVersion": resource_version,
                "resourceVersionMatch": resource_version_match,
                "limit": limit or None,
                "continue": continue_token,
            }
        )
        accept = METADATA_LIST if metadata_only else JSON
        answer = await self.sender.json("GET", path_of(found, namespace), query, accept=accept)
        return _object_list(answer, found, metadata_only)

    def watch(
        self,
        resource: ResourceRef,
        namespace: str = "",
        *,
        resource_version: str = "",
        resource_version_match: str = "",
        label_selector: str = "",
        field_selector: str = "",
        bookmarks: bool = True,
        send_initial_events: bool = False,
        timeout_seconds: int = 0,
        metadata_only: bool = False,
    ) -> Watch:
        if send_initial_events and not resource_version_match:
            resource_version_match = "NotOlderThan"
        query = query_of(
            {
                "watch": True,
                "labelSelector": label_selector,
                "fieldSelector": field_selector,
                "resourceVersion": resource_version,
                "resourceVersionMatch": resource_version_match,
                "allowWatchBookmarks": bookmarks,
                "sendInitialEvents": send_initial_events,
                "timeoutSeconds": timeout_seconds or None,
            }
        )

        async def start() -> EventStream:
            found = await self.resource(resource)
            accept = METADATA if metadata_only else JSON
            return await self.sender.watch(path_of(found, namespace), query, accept=accept)

        from setpoint.client.watch import Watch  # most commands do not watch

        return Watch(start, resource_version)

    # -- writing --------------------------------------------------------------------------------------------------

    async def create(
        self,
        obj: ObjView,
        *,
        resource: ResourceRef | None = None,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: str = "",
    ) -> Obj:
        found, namespace, own_name, _ = await self._target(obj, resource, namespace)
        target = _Target(found, namespace, (name or own_name) if subresource else "", subresource)
        query = _write_query(dry_run, field_manager, field_validation)
        return await self._request("POST", target, query, obj)

    async def update(
        self,
        obj: ObjView,
        *,
        resource: ResourceRef | None = None,
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: str = "",
    ) -> Obj:
        target = await self._target(obj, resource, subresource=subresource)
        if not target.name:
            raise ValueError("an object to be updated must have a name")
        query = _write_query(dry_run, field_manager, field_validation)
        return await self._request("PUT", target, query, obj)

    async def patch(
        self,
        resource: ResourceRef,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        kind: str = "merge",
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: str = "",
    ) -> Obj:
        if not name:
            raise ValueError("resource name may not be empty")
        target = _Target(await self.resource(resource), namespace, name, subresource)
        query = _write_query(dry_run, field_manager, field_validation)
        return await self._request("PATCH", target, query, patch, content_type=PATCHES[kind])

    async def apply(
        self,
        obj: ObjView,
        *,
        field_manager: str,
        force: bool = False,
        resource: ResourceRef | None = None,
        subresource: str = "",
        dry_run: bool = False,
        field_validation: str = "",
    ) -> Obj:
        target = await self._target(obj, resource, subresource=subresource)
        if not target.name:
            raise ValueError("an object to be applied must have a name")
        query = _write_query(dry_run, field_manager, field_validation, force)
        return await self._request("PATCH", target, query, obj, content_type=PATCHES["apply"])

    async def delete(
        self,
        resource: ResourceRef,
        name: str,
        namespace: str = "",
        *,
        propagation: str = "",
        grace_period: int | None = None,
        uid: str = "",
        resource_version: str = "",
        dry_run: bool = False,
    ) -> Obj:
        if not name:
            raise ValueError("resource name may not be empty")
        target = _Target(await self.resource(resource), namespace, name)
        options = _delete_options(propagation, grace_period, uid, resource_version, dry_run)
        return await self._request("DELETE", target, body=options)

    async def delete_collection(
        self,
        resource: ResourceRef,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        propagation: str = "",
        grace_period: int | None = None,
        dry_run: bool = False,
    ) -> ObjectList:
        found = await self.resource(resource)
        query = query_of({"labelSelector": label_selector, "fieldSelector": field_selector})
        options = _delete_options(propagation, grace_period, "", "", dry_run)
        path = path_of(found, self._namespace(found, namespace))
        return _object_list(await self.sender.json("DELETE", path, query, options), found, False)


def _write_query(dry_run: bool, field_manager: str, field_validation: str, force: bool = False) -> str:
    if not (dry_run or field_manager or field_validation or force):
        return ""
    return query_of(
        {
            "dryRun": "All" if dry_run else None,
            "fieldManager": field_manager,
            "fieldValidation": field_validation,
            "force": force,
        }
    )


def _delete_options(
    propagation: str, grace_period: int | None, uid: str, resource_version: str, dry_run: bool
) -> Obj | None:
    options: Obj = {}
    if propagation:
        options["propagationPolicy"] = propagation
    if grace_period is not None:
        options["gracePeriodSeconds"] = grace_period
    if dry_run:
        options["dryRun"] = ["All"]
    conditions = {key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
    if conditions:
        options["preconditions"] = conditions
    return {"kind": "DeleteOptions", "apiVersion": "v1", **options} if options else None


def _object_list(answer: Mapping[str, Any], resource: Resource, metadata_only: bool) -> ObjectList:
    meta = answer.get("metadata") or {}
    items: list[Obj] = answer.get("items") or []
    if not metadata_only and items and "kind" not in items[0]:
        # The items of a list have no apiVersion and kind on the wire.
        api_version, kind = resource.api_version, resource.kind
        for item in items:
            item["apiVersion"] = api_version
            item["kind"] = kind
    return ObjectList(
        items,
        meta.get("resourceVersion") or "",
        meta.get("continue") or "",
        meta.get("remainingItemCount"),
        meta,
    )
