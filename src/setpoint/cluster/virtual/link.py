"""The connection between a component and the server, on which faults are injected."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from setpoint.client import Client, Resource, Unreachable
from setpoint.client.interface import ObjectList, ResourceRef, WatchEvent, WatchStream
from setpoint.meta.errors import Invalid
from setpoint.meta.objects import Obj, ObjView

T = TypeVar("T")

_UNCOUNTED = frozenset(("Event", "events", "Lease", "leases"))


def is_counted(resource: str) -> bool:
    """Return whether faults count the writes and watch events of a resource, by its kind or plural: Leases and Events
    change continuously and decide nothing."""
    return resource not in _UNCOUNTED


@dataclass(frozen=True, slots=True)
class Write:
    """A request that changes something."""

    component: str
    verb: str
    resource: str
    """The kind, or the plural if the caller passes no kind."""
    name: str
    subresource: str = ""
    namespace: str = ""
    ref: ResourceRef | None = field(default=None, repr=False)

    @property
    def is_counted(self) -> bool:
        return is_counted(self.resource)

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.component}: {self.verb} {self.resource} {where} {self.subresource}".rstrip()


Proceed = Callable[[], Awaitable[Any]]
WriteInterceptor = Callable[[Write, Proceed], Awaitable[Any]]
"""(write, proceed): `await proceed()` executes the write and returns the answer. An exception raised before that means
that the write did not happen; after that, that it happened and the component does not know."""
EventInterceptor = Callable[[str, str, WatchEvent], Awaitable[Sequence[WatchEvent]]]
"""(component, kind or plural, event): return the events to deliver instead. An exception ends the watch without
delivering the event."""
ListInterceptor = Callable[[str, dict[str, Any]], dict[str, Any]]
"""(component, list options): return the list options to use instead."""


class Link:
    """The path of all requests of one component; without interceptors it changes nothing."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.severed = False
        """Whether all traffic fails, in both directions."""
        self.write_interceptor: WriteInterceptor | None = None
        """Intercepts every write; None executes writes directly."""
        self.event_interceptor: EventInterceptor | None = None
        """Intercepts every watch event, also of watches that are already open; None delivers events directly."""
        self.list_interceptor: ListInterceptor | None = None
        """Intercepts the options of every list; None uses them as they are."""

    def check(self) -> None:
        if self.severed:
            raise Unreachable("the link is severed")

    def clear(self) -> None:
        """Remove all interceptors."""
        self.write_interceptor = self.event_interceptor = self.list_interceptor = None


class LinkedClient(Client):
    """A client whose requests go through a link."""

    def __init__(self, real: Client, link: Link) -> None:
        self.__dict__.update(real.__dict__)
        self._link = link

    def named(self, *args: Any, **named: Any) -> Client:
        return LinkedClient(super().named(*args, **named), self._link)

    async def get(self, *args: Any, **named: Any) -> Obj:
        self._link.check()
        return await super().get(*args, **named)

    async def list_page(self, *args: Any, **named: Any) -> ObjectList:
        link = self._link
        link.check()
        intercepted = named if link.list_interceptor is None else link.list_interceptor(link.name, named)
        found = await super().list_page(*args, **intercepted)
        link.check()
        return found

    def watch(self, resource: ResourceRef, *args: Any, **named: Any) -> Any:
        if named.get("send_initial_events") and self._link.list_interceptor is not None:
            raise Invalid("lists are intercepted, so that initial events are not sent")
        return _LinkedWatch(super().watch(resource, *args, **named), self._link, _kind(resource))

    async def create(self, obj: ObjView, **named: Any) -> Obj:
        meta = obj.get("metadata") or {}
        name = named.get("name") or meta.get("name") or meta.get("generateName") or ""
        namespace = named.get("namespace") or ""
        return await self._through(
            self._write("create", _ref(obj, named), name, namespace or meta.get("namespace"), named),
            super().create(obj, **named),
        )

    async def update(self, obj: ObjView, **named: Any) -> Obj:
        return await self._through(self._of("update", obj, named), super().update(obj, **named))

    async def patch(
        self, resource: ResourceRef, name: str, patch: Any, namespace: str = "", *args: Any, **named: Any
    ) -> Obj:
        write = self._write("patch", resource, name, namespace, named)
        return await self._through(write, super().patch(resource, name, patch, namespace, *args, **named))

    async def apply(self, obj: ObjView, **named: Any) -> Obj:
        return await self._through(self._of("apply", obj, named), super().apply(obj, **named))

    async def delete(self, resource: ResourceRef, name: str, namespace: str = "", **named: Any) -> Obj:
        write = self._write("delete", resource, name, namespace, named)
        return await self._through(write, super().delete(resource, name, namespace, **named))

    async def delete_collection(self, resource: ResourceRef, namespace: str = "", **named: Any) -> ObjectList:
        write = self._write("deletecollection", resource, "", namespace, named)
        return await self._through(write, super().delete_collection(resource, namespace, **named))

    def _of(self, verb: str, obj: ObjView, named: dict[str, Any]) -> Write:
        meta = obj["metadata"]
        return self._write(verb, _ref(obj, named), meta.get("name", ""), meta.get("namespace"), named)

    def _write(self, verb: str, ref: ResourceRef, name: str, namespace: str | None, named: dict[str, Any]) -> Write:
        where = namespace or self.default_namespace
        return Write(self._link.name, verb, _kind(ref), name, named.get("subresource") or "", where, ref)

    async def _through(self, write: Write, doing: Coroutine[Any, Any, T]) -> T:
        link = self._link
        try:
            link.check()
            if link.write_interceptor is None:
                answer = await doing
            else:

                async def proceed() -> T:
                    return await doing

                answer = await link.write_interceptor(write, proceed)
        finally:
            doing.close()  # closes a coroutine that was never started; otherwise this does nothing
        link.check()
        return answer


def _ref(obj: ObjView, named: dict[str, Any]) -> ResourceRef:
    return named.get("resource") or (obj.get("apiVersion") or "", obj.get("kind") or "")


def _kind(ref: ResourceRef) -> str:
    return ref.kind if isinstance(ref, Resource) else ref[-1]


class _LinkedWatch:
    """A watch that ends when its link is severed."""

    def __init__(self, real: WatchStream, link: Link, kind: str) -> None:
        self._real = real
        self._link = link
        self._kind = kind
        self._more: deque[WatchEvent] = deque()
        """Events that the interceptor returned and that were not yielded yet."""
        self.resource_version = real.resource_version
        """The resource version of the last yielded event, not of the last received one."""

    def __aiter__(self) -> AsyncIterator[WatchEvent]:
        return self

    async def __anext__(self) -> WatchEvent:
        self._link.check()
        if not self._more:
            event = await self._real.__anext__()
            self._link.check()
            event_interceptor = self._link.event_interceptor
            if event_interceptor is None:
                self._more.append(event)
            else:
                self._more += await event_interceptor(self._link.name, self._kind, event)
                self._link.check()
        given = self._more.popleft()
        self.resource_version = given.object["metadata"]["resourceVersion"]
        return given

    async def __aenter__(self) -> _LinkedWatch:
        self._link.check()
        await self._real.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._real.__aexit__(*error)

    def close(self) -> None:
        self._real.close()
