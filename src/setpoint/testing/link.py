"""The way between a component and the server, on which things can go wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from setpoint.client import Client, Resource, Unreachable
from setpoint.client.interface import ObjectList, ResourceRef, WatchEvent, WatchStream

Obj = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Write:
    """A request that changes something."""

    component: str
    verb: str
    resource: str
    """The plural, or what the object calls its kind."""
    name: str
    subresource: str = ""

    def __str__(self) -> str:
        return f"{self.component}: {self.verb} {self.resource} {self.name} {self.subresource}".rstrip()


Listed = Callable[[str, dict[str, Any], ObjectList], ObjectList]
"""What becomes of the answer to a list of a plural with these parameters."""
Before = Callable[[Write], Awaitable[None]]
After = Callable[[Write], Awaitable[None]]


class Link:
    """Everything a component asks of the server goes through here. By itself it changes nothing."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.severed = False
        """Nothing comes through, in either direction."""
        self.before_write: Before | None = None
        """May raise: then the write does not happen."""
        self.after_write: After | None = None
        """May raise: then it has happened and the component does not know."""
        self.watched: Callable[[str, WatchStream], WatchStream] | None = None
        """What a watch of a plural is seen through."""
        self.listed: Listed | None = None

    def check(self) -> None:
        if self.severed:
            raise Unreachable("the link is severed")


class LinkedClient(Client):
    """A client on the other side of a link."""

    def __init__(self, real: Client, link: Link) -> None:
        self.__dict__.update(real.__dict__)
        self._link = link

    def named(self, *args: Any, **named: Any) -> Client:
        return LinkedClient(super().named(*args, **named), self._link)

    async def get(self, *args: Any, **named: Any) -> Obj:
        self._link.check()
        return await super().get(*args, **named)

    async def list(self, resource: ResourceRef, *args: Any, **named: Any) -> ObjectList:
        self._link.check()
        found = await super().list(resource, *args, **named)
        listed = self._link.listed
        return found if listed is None else listed(_plural(resource), named, found)

    def watch(self, resource: ResourceRef, *args: Any, **named: Any) -> Any:
        real = super().watch(resource, *args, **named)
        watched = self._link.watched
        return _Severable(real if watched is None else watched(_plural(resource), real), self._link)

    async def create(self, obj: Obj, **named: Any) -> Obj:
        meta = obj.get("metadata") or {}
        name = named.get("name") or meta.get("name") or meta.get("generateName") or ""
        write = self._write("create", named.get("resource") or obj.get("kind"), name, named)
        return await self._through(write, super().create(obj, **named))

    async def update(self, obj: Obj, **named: Any) -> Obj:
        write = self._write("update", named.get("resource") or obj.get("kind"), obj["metadata"].get("name", ""), named)
        return await self._through(write, super().update(obj, **named))

    async def patch(self, resource: ResourceRef, name: str, *args: Any, **named: Any) -> Obj:
        return await self._through(
            self._write("patch", resource, name, named), super().patch(resource, name, *args, **named)
        )

    async def apply(self, obj: Obj, **named: Any) -> Obj:
        write = self._write("apply", named.get("resource") or obj.get("kind"), obj["metadata"].get("name", ""), named)
        return await self._through(write, super().apply(obj, **named))

    async def delete(self, resource: ResourceRef, name: str, *args: Any, **named: Any) -> Obj:
        return await self._through(
            self._write("delete", resource, name, named), super().delete(resource, name, *args, **named)
        )

    async def delete_collection(self, resource: ResourceRef, *args: Any, **named: Any) -> ObjectList:
        return await self._through(
            self._write("deletecollection", resource, "", named), super().delete_collection(resource, *args, **named)
        )

    def _write(self, verb: str, what: Any, name: str, named: dict[str, Any]) -> Write:
        plural = what if isinstance(what, str) else _plural(what)
        return Write(self._link.name, verb, plural, name, named.get("subresource") or "")

    async def _through(self, write: Write, doing: Coroutine[Any, Any, T]) -> T:
        link = self._link
        try:
            link.check()
            if link.before_write is not None:
                await link.before_write(write)
        except BaseException:
            doing.close()
            raise
        answer = await doing
        if link.after_write is not None:
            await link.after_write(write)
        link.check()
        return answer


def _plural(ref: ResourceRef) -> str:
    return ref.plural if isinstance(ref, Resource) else ref[-1]


class _Severable:
    """A watch that falls silent, and ends, with its link."""

    def __init__(self, real: WatchStream, link: Link) -> None:
        self._real = real
        self._link = link

    @property
    def resource_version(self) -> str:
        return self._real.resource_version

    def __aiter__(self) -> AsyncIterator[WatchEvent]:
        return self

    async def __anext__(self) -> WatchEvent:
        self._link.check()
        event = await self._real.__anext__()
        self._link.check()
        return event

    async def __aenter__(self) -> _Severable:
        self._link.check()
        await self._real.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._real.__aexit__(*error)

    def close(self) -> None:
        self._real.close()
