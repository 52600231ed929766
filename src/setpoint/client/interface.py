"""What the client offers, reads split from writes: whoever only looks is given a Reader.

Objects that come out of a client, from reads, writes and watches alike, are shared: within the process, all who asked
for an object at one revision hold the same dict (but for a writer, where nobody was watching when it wrote). They are
read and never changed; whoever wants another one makes it:

    await client.update({**lease, "spec": {**lease["spec"], "renewTime": now}})

What is handed in stays the caller's: it is read until the call returns, and neither changed nor kept.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from setpoint.kinds.catalog import Resource

Obj = dict[str, Any]

ResourceRef = Resource | tuple[str, str] | tuple[str, str, str]
"""A resource: as itself, as (apiVersion, kind), or as (group, version, plural)."""


class WatchEvent(NamedTuple):
    type: str
    """ADDED, MODIFIED, DELETED or BOOKMARK. Errors are raised."""
    object: Obj


@dataclass(slots=True)
class ObjectList:
    items: list[Obj]
    resource_version: str
    """Watch from here to miss nothing."""
    continue_token: str = ""
    remaining: int | None = None
    """How many there are beyond this page, where the server says so."""
    metadata: Obj = field(default_factory=dict)


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
        """Raises NotFound."""
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
        """Everything, of one namespace or of all. A list that expires between two pages is read again in one go."""
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
        """Changes as they happen. Raises Expired, at the start or midway, when the revision is no longer kept."""
        ...


class Writer(Protocol):
    async def create(
        self,
        obj: Obj,
        *,
        resource: ResourceRef | None = None,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: str = "",
    ) -> Obj:
        """`resource` and `name` are for subresources such as `binding`; an object alone says what it is.
        Raises AlreadyExists, Invalid."""
        ...

    async def update(
        self,
        obj: Obj,
        *,
        resource: ResourceRef | None = None,
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: str = "",
    ) -> Obj:
        """Raises Conflict when the object is not the one it was read as."""
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
        """`kind` is `json`, `merge` or `strategic`."""
        ...

    async def apply(
        self,
        obj: Obj,
        *,
        field_manager: str,
        force: bool = False,
        resource: ResourceRef | None = None,
        subresource: str = "",
        dry_run: bool = False,
        field_validation: str = "",
    ) -> Obj:
        """Server-side: what `obj` says belongs to `field_manager` from now on. Raises Conflict, with a cause for each
        field that belongs to another, unless `force` takes it."""
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
        """The object while it is on its way out, or a Status when it is gone."""
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
        """Those that were deleted, or told to go."""
        ...
