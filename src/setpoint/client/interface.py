"""The interface of the client, with reads split from writes: read-only code gets a Reader.

Objects in the results of reads, writes and watches are shared: within the process, all callers that asked for an
object at one revision hold the same dict (except a writer whose object no watch had cached). They must not be changed;
make a changed copy instead:

    await client.update({**lease, "spec": {**lease["spec"], "renewTime": now}})

Arguments remain the caller's: they are read until the call returns, and neither changed nor retained.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NamedTuple, Protocol

from setpoint.kinds.catalog import Resource
from setpoint.meta.objects import Obj, ObjView

ResourceRef = Resource | tuple[str, str] | tuple[str, str, str]
"""A resource: as itself, as (apiVersion, kind), or as (group, version, plural)."""

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark that follows the initial events of a watch; its value is `true`."""


class WatchEvent(NamedTuple):
    type: str
    """The type: ADDED, MODIFIED, DELETED or BOOKMARK. Errors are raised instead."""
    object: Obj


class ObjectList:
    """A list, or one page of it. It is not a dataclass, whose creation would take a part of each command's time."""

    def __init__(
        self,
        items: list[Obj],
        resource_version: str,
        continue_token: str = "",
        remaining: int | None = None,
        metadata: Obj | None = None,
    ) -> None:
        self.items = items
        self.resource_version = resource_version
        """The revision from which a watch continues without missing an event."""
        self.continue_token = continue_token
        self.remaining = remaining
        """The number of objects beyond this page; None if the server does not report it."""
        self.metadata = {} if metadata is None else metadata


class WatchStream(Protocol):
    resource_version: str

    def __aiter__(self) -> AsyncIterator[WatchEvent]: ...

    async def __anext__(self) -> WatchEvent: ...

    async def __aenter__(self) -> WatchStream: ...

    async def __aexit__(self, *_: object) -> None: ...

    def close(self) -> None: ...


class Reader(Protocol):
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
        """Return one object. Raise NotFound."""
        ...

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
        """Return all objects of one namespace or of all. A list whose continue token expires is read again without
        pages."""
        ...

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
    ) -> WatchStream:
        """Watch changes as they happen. Raise Expired, at the start or midway, when the revision was compacted.

        With `send_initial_events` the watch begins with an ADDED event for each current object, in a state that is not
        older than `resource_version`, and a bookmark with the annotation INITIAL_EVENTS_END. Servers that do not know
        this raise Invalid.
        """
        ...


class Writer(Protocol):
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
        """Create an object; `resource` and `name` are needed only for subresources such as `binding`.

        Raise AlreadyExists or Invalid.
        """
        ...

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
        """Replace an object. Raise Conflict if it changed since it was read."""
        ...

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
        """Patch an object; `kind` is `json`, `merge` or `strategic`."""
        ...

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
        """Apply an object on the server: `field_manager` owns the fields of `obj` from then on.

        Raise Conflict, with a cause for each field that another manager owns, unless `force` takes the ownership.
        """
        ...

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
        """Delete an object, and return it if it is only marked for deletion, or a Status if it is gone."""
        ...

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
        """Delete all matching objects, and return those that were deleted or marked for deletion."""
        ...
