"""A local copy of a collection that keeps itself up to date and tells what changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from setpoint.client import Reader, Unreachable
from setpoint.client.interface import ResourceRef
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, Expired
from setpoint.reconcile.keys import controller_of, key_of

log = logging.getLogger("setpoint.reconcile")

Obj = dict[str, Any]
Handler = Callable[[Obj | None, Obj | None], None]
"""(None, new): appeared; (old, new): changed, the same object by uid; (old, None): gone."""
Index = Callable[[Obj], Iterable[str]]

_FIRST_RETRY, _LONGEST_RETRY = 0.2, 30.0
_ORPHANS = "orphans in "


def _by_controller(obj: Obj) -> tuple[str]:
    owner = controller_of(obj)
    return (owner["uid"],) if owner is not None else (_ORPHANS + (obj["metadata"].get("namespace") or ""),)


class Informer:
    """Handlers run one after the other, in the order of the changes, when the cache and its indexes know already.
    A handler that comes late is told of everything that is there already. Objects are shared: nobody changes them."""

    def __init__(
        self,
        reader: Reader,
        resource: ResourceRef,
        clock: Clock,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        keep: Callable[[Obj], Obj] | None = None,
    ) -> None:
        """`metadata_only`: objects have nothing else. `keep(obj)` is what is kept of each and handed out; it has at
        least the object's name, namespace, uid and resourceVersion."""
        self._reader = reader
        self._resource = resource
        self._clock = clock
        self._where: dict[str, Any] = {
            "namespace": namespace, "label_selector": label_selector, "field_selector": field_selector,
            "metadata_only": metadata_only,
        }  # fmt: skip
        self._keep = keep
        self.items: dict[str, Obj] = {}
        """By key."""
        self.synced = asyncio.Event()
        """Everything that was there at some moment after the start is in the cache, and handlers know."""
        self.resource_version = ""
        """The cache holds every change up to here; empty: list first."""
        self._expired = False
        self._handlers: list[Handler] = []
        self._relisted: list[Callable[[], None]] = []
        self._indexes: dict[str, tuple[Index, dict[str, dict[str, Obj]]]] = {}

    # -- reading --------------------------------------------------------------------------------------------------

    def get(self, key: str) -> Obj | None:
        return self.items.get(key)

    def add_index(self, name: str, values_of: Index) -> None:
        """`by_index(name, value)` finds the objects for which `values_of` gives the value."""
        if name in self._indexes:
            return
        self._indexes[name] = (values_of, {})
        for key, obj in self.items.items():
            self._file(name, key, obj)

    def by_index(self, name: str, value: str) -> list[Obj]:
        found = self._indexes[name][1].get(value)
        return list(found.values()) if found else []

    def controlled_by(self, uid: str) -> list[Obj]:
        """Those whose controller has this uid."""
        self.add_index("controller", _by_controller)
        return self.by_index("controller", uid)

    def orphans(self, namespace: str) -> list[Obj]:
        """Those that no controller manages."""
        self.add_index("controller", _by_controller)
        return self.by_index("controller", _ORPHANS + namespace)

    def add_handler(self, handler: Handler) -> None:
        self._handlers.append(handler)
        for obj in tuple(self.items.values()):
            self._call(handler, None, obj)

    def remove_handler(self, handler: Handler) -> None:
        # A new list: this may be a handler's own doing.
        self._handlers = [each for each in self._handlers if each is not handler]

    def on_relist(self, call: Callable[[], None]) -> None:
        """Called whenever everything had to be listed anew, because a watch could not go on where it was: of what came
        and went in between nobody is told."""
        self._relisted.append(call)

    def tell_again(self) -> None:
        """Every handler is told of everything, as of something new: who looks at what is, finds nothing to do."""
        for obj in tuple(self.items.values()):
            self._tell(None, obj)

    # -- following ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled. No failure of the server ends it."""
        pause = _FIRST_RETRY
        while True:
            started = self._clock.monotonic()
            try:
                if not self.resource_version or self._expired:
                    await self._list()
                await self._watch()
            except Expired:
                self._expired = True
                log.info("%s: what was last seen is too far back; listing again", self._resource)
            except (ApiError, Unreachable) as error:
                log.warning("cannot follow %s: %s", self._resource, error)
            if self._clock.monotonic() - started > _LONGEST_RETRY:
                # It went well for long: whatever ended it, going on at once is no storm.
                pause = _FIRST_RETRY
                continue
            await self._clock.sleep(pause)
            pause = min(pause * 2, _LONGEST_RETRY)

    async def _list(self) -> None:
        # Any revision will do at first, but never one before what was seen; when that one is gone, the newest.
        at_least = "" if self._expired else self.resource_version or "0"
        found = await self._reader.list(self._resource, **self._where, resource_version=at_least)
        self._replace(found.items)
        self.resource_version = found.resource_version
        self._expired = False
        if self.synced.is_set():
            for call in self._relisted:
                call()
        self.synced.set()

    async def _watch(self) -> None:
        watch = self._reader.watch(self._resource, **self._where, resource_version=self.resource_version)
        async with watch:
            async for kind, obj in watch:
                if kind == "DELETED":
                    self._remove(key_of(obj), obj)
                elif kind != "BOOKMARK":
                    self._put(key_of(obj), obj)
                self.resource_version = watch.resource_version

    # -- keeping --------------------------------------------------------------------------------------------------

    def _replace(self, items: list[Obj]) -> None:
        listed = {key_of(obj): obj for obj in items}
        for key in [key for key in self.items if key not in listed]:
            self._remove(key, self.items[key])
        for key, obj in listed.items():
            self._put(key, obj)

    def _put(self, key: str, obj: Obj) -> None:
        if self._keep is not None:
            obj = self._keep(obj)
        old = self.items.get(key)
        if old is not None:
            before, after = old["metadata"], obj["metadata"]
            if before["uid"] != after["uid"]:
                # Deleted and made again while nobody looked: two objects, two changes.
                self._remove(key, old)
                old = None
            elif before["resourceVersion"] == after["resourceVersion"]:
                return
            else:
                self._unfile(key, old)
        self.items[key] = obj
        for name in self._indexes:
            self._file(name, key, obj)
        self._tell(old, obj)

    def _remove(self, key: str, last: Obj) -> None:
        old = self.items.pop(key, None)
        if old is not None:
            self._unfile(key, old)
            self._tell(last if self._keep is None else self._keep(last), None)

    def _file(self, name: str, key: str, obj: Obj) -> None:
        values_of, index = self._indexes[name]
        for value in values_of(obj):
            index.setdefault(value, {})[key] = obj

    def _unfile(self, key: str, obj: Obj) -> None:
        for values_of, index in self._indexes.values():
            for value in values_of(obj):
                held = index.get(value)
                if held is not None:
                    held.pop(key, None)
                    if not held:
                        del index[value]

    def _tell(self, old: Obj | None, new: Obj | None) -> None:
        for handler in self._handlers:
            self._call(handler, old, new)

    def _call(self, handler: Handler, old: Obj | None, new: Obj | None) -> None:
        try:
            handler(old, new)
        except Exception:  # one handler must not keep the news from the others
            log.exception("a handler of %s failed", self._resource)
