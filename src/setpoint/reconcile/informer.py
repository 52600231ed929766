"""A local cache of a collection, kept up to date by a watch, that notifies handlers of changes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from setpoint.client import Reader, Unreachable
from setpoint.client.interface import INITIAL_EVENTS_END, ResourceRef, WatchStream
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, BadRequest, Expired, Forbidden, Invalid, MethodNotAllowed
from setpoint.meta.objects import ObjView
from setpoint.reconcile.keys import controller_of, key_of
from setpoint.reconcile.run import Trigger, Triggers, current_run, delivery
from setpoint.tasks import Flag, within

log = logging.getLogger("setpoint.reconcile")

T = TypeVar("T", bound=ObjView)

Handler = Callable[[T | None, T | None], None]
"""Called with (None, new) for an addition, (old, new) for an update of the same object by uid, (old, None) for a
deletion."""
Index = Callable[[T], Iterable[str]]

_INITIAL_BACKOFF, _MAX_BACKOFF = 0.2, 30.0
_RESET_AFTER = 10.0
"""Seconds after which a watch that ends is resumed without backoff. Servers that are restarted one after the other end
several watches in short succession."""
_ORPHANS = "orphans in "
_NO_INITIAL_EVENTS = (Invalid, BadRequest, Forbidden, MethodNotAllowed)
"""Errors of a server that cannot send the current objects in a watch, or does not permit watches."""
_INITIAL_EVENTS_LIMIT = 15.0
"""Seconds after which an informer lists if a watch has not sent all initial events."""


def _by_namespace(obj: ObjView) -> tuple[str]:
    return (obj["metadata"].get("namespace") or "",)


def _by_controller(obj: ObjView) -> tuple[str]:
    owner = controller_of(obj)
    return (owner["uid"],) if owner is not None else (_ORPHANS + (obj["metadata"].get("namespace") or ""),)


class Informer(Generic[T]):
    """Caches the objects of one resource and calls handlers for each change.

    Handlers run one at a time, in the order of the changes, after the cache and its indexes were updated. A handler
    that is added late is called for every object in the cache. Cached objects are shared and must not be modified.

    `T` is the type of the cached objects: `Informer[Pod]` if `setpoint.kinds.typed` has the kind, else `Informer[Obj]`.
    """

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
        transform: Callable[[T], T] | None = None,
    ) -> None:
        """Create an informer.

        With `metadata_only` the objects have nothing but their metadata. `transform(obj)` returns what is cached of
        each object; it must retain name, namespace, uid and resourceVersion.
        """
        self._reader = reader
        self._resource = resource
        self._clock = clock
        self._list_options: dict[str, Any] = {
            "namespace": namespace,
            "label_selector": label_selector,
            "field_selector": field_selector,
            "metadata_only": metadata_only,
        }
        self._transform = transform
        self.items: dict[str, T] = {}
        """The cached objects by key."""
        self.synced = Flag()
        """Set once the cache holds every object that existed at some moment after the start, and handlers were
        called."""
        self.resource_version = ""
        """The revision up to which the cache is complete; empty means that the first list is still to be made."""
        self.error = ""
        """Why the last list or watch has failed; empty if none has, and since the server has accepted another."""
        self.failing_since: float | None = None
        """When the first of the failures in a row happened, on the monotonic clock; None if `error` is empty."""
        self.retry_at: float | None = None
        """When the next list or watch is requested, on the monotonic clock; None unless it waits for that."""
        self.first_list = "start"
        """The trigger, besides the revisions, of keys that handlers add for the objects of the first list; empty if the
        component runs already and requested this informer later."""
        self._expired = False
        self._initial_events = True
        """Whether to start with a watch that sends initial events instead of a list. False once the server has not sent
        them: old servers, aggregated API servers and proxies may accept the parameter and never send the end."""
        self._handlers: list[Handler[T]] = []
        self._relist_callbacks: list[Callable[[], None]] = []
        self._indexes: dict[str, tuple[Index[T], dict[str, dict[str, T]]]] = {}

    @property
    def resource(self) -> ResourceRef:
        return self._resource

    @property
    def revision(self) -> int:
        """The revision up to which it has received all changes; 0 if it has received none."""
        text = self.resource_version
        return int(text) if text.isascii() and text.isdigit() else 0

    @property
    def is_selective(self) -> bool:
        """Whether it caches only some objects of the resource: those of a namespace, or that match a selector."""
        options = self._list_options
        return bool(options["namespace"] or options["label_selector"] or options["field_selector"])

    # -- reading --------------------------------------------------------------------------------------------------

    def get(self, key: str) -> T | None:
        return self.items.get(key)

    def add_index(self, name: str, values_of: Index[T]) -> None:
        """Add an index: `by_index(name, value)` returns the objects for which `values_of` yields the value."""
        if name in self._indexes:
            return
        self._indexes[name] = (values_of, {})
        for key, obj in self.items.items():
            self._add_to_index(name, key, obj)

    def by_index(self, name: str, value: str) -> list[T]:
        found = self._indexes[name][1].get(value)
        return list(found.values()) if found else []

    def in_namespace(self, namespace: str) -> list[T]:
        """Return the objects in a namespace."""
        self.add_index("namespace", _by_namespace)
        return self.by_index("namespace", namespace)

    def controlled_by(self, uid: str) -> list[T]:
        """Return the objects whose controller has this uid."""
        self.add_index("controller", _by_controller)
        return self.by_index("controller", uid)

    def orphans(self, namespace: str) -> list[T]:
        """Return the objects in a namespace that have no controller."""
        self.add_index("controller", _by_controller)
        return self.by_index("controller", _ORPHANS + namespace)

    def add_handler(self, handler: Handler[T]) -> None:
        self._handlers.append(handler)
        for obj in tuple(self.items.values()):
            self._call_all((handler,), None, obj, _revision_of(obj))

    def remove_handler(self, handler: Handler[T]) -> None:
        # A new list: a handler may remove itself while the list is iterated.
        self._handlers = [each for each in self._handlers if each is not handler]

    def on_relist(self, call: Callable[[], None]) -> None:
        """Register a callback for relists.

        A relist happens when a watch could not be resumed; handlers do not see objects that appeared and disappeared in
        between.
        """
        self._relist_callbacks.append(call)

    def resync(self) -> None:
        """Call every handler for every cached object, as if it had just been added."""
        trigger = Triggers((), "resync")
        for obj in tuple(self.items.values()):
            self._call_all(self._handlers, None, obj, trigger)

    # -- list and watch --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """List and watch until cancelled. Errors of the server are retried."""
        current_run.set(None)  # a reconcile may have started this task
        pause = _INITIAL_BACKOFF
        while True:
            started = self._clock.monotonic()
            try:
                await self._list_and_watch()
            except Expired:
                self._expired = True
                log.info("%s: the watch expired; listing again", self._resource)
            except (ApiError, Unreachable) as error:
                log.warning("cannot list or watch %s, retrying: %s", self._resource, error)
                self._failed(error)
            if self._clock.monotonic() - started > _RESET_AFTER:
                pause = _INITIAL_BACKOFF
                continue
            self.retry_at = self._clock.monotonic() + pause
            await self._clock.sleep(pause)
            self.retry_at = None
            pause = min(pause * 2, _MAX_BACKOFF)

    def _failed(self, error: Exception) -> None:
        self.error = str(error) or type(error).__name__
        if self.failing_since is None:
            self.failing_since = self._clock.monotonic()

    async def _list_and_watch(self) -> None:
        async with await self._start() as watch:
            self.error, self.failing_since = "", None
            if not self._must_list or await self._receive_initial_events(watch):
                return await self._follow(watch)
        return await self._list_and_watch()  # this time with a list

    async def _follow(self, watch: WatchStream) -> None:
        async for kind, obj in watch:
            if kind == "DELETED":
                self._remove(key_of(obj), obj)
            elif kind != "BOOKMARK":
                self._put(key_of(obj), obj)
            self.resource_version = watch.resource_version
            del obj  # the last object would be kept until the next event

    @property
    def _must_list(self) -> bool:
        return self._expired or not self.resource_version

    async def _start(self) -> WatchStream:
        """Return a watch that continues the cache, or one that begins with the current objects."""
        if self._must_list:
            # Any revision will do at first. If the one that was seen is compacted, the newest: never an older one.
            at_least = "" if self._expired else "0"
            if self._initial_events:
                try:
                    return await self._watch(at_least, send_initial_events=True).__aenter__()
                except _NO_INITIAL_EVENTS as error:
                    self._initial_events = False
                    log.debug("%s: no watch with initial events, listing instead: %s", self._resource, error)
            found = await self._reader.list(self._resource, **self._list_options, resource_version=at_least)
            self._set_all(found.items, found.resource_version)
        return self._watch(self.resource_version)

    def _watch(self, resource_version: str, *, send_initial_events: bool = False) -> WatchStream:
        return self._reader.watch(
            self._resource,
            **self._list_options,
            resource_version=resource_version,
            send_initial_events=send_initial_events,
        )

    async def _receive_initial_events(self, watch: WatchStream) -> bool:
        """Set the cache to the initial events of a watch, and return True. If the watch fails or does not send them all
        in time, leave the cache as it is, use lists from now on, and return False. Raises Expired."""
        self._initial_events = False
        reason = "the watch did not send them all"
        try:
            received = await within(self._clock, _INITIAL_EVENTS_LIMIT, _initial_objects(watch))
        except Expired:
            raise
        except (TimeoutError, ApiError) as error:
            # A kube-apiserver on an etcd without progress requests accepts the watch, and ends it with an error.
            received, reason = None, str(error) or reason
        if received is None:
            log.info("%s: no initial events, listing instead: %s", self._resource, reason)
            return False
        self._initial_events = True
        self._set_all(received, watch.resource_version)
        return True

    # -- cache -----------------------------------------------------------------------------------------------------

    def _set_all(self, items: Iterable[Any], resource_version: str) -> None:
        """Make these objects, which are all of this revision, the content of the cache."""
        self._replace(items, "relist" if self.synced.is_set() else self.first_list)
        self.resource_version = resource_version
        self._expired = False
        if self.synced.is_set():
            for call in self._relist_callbacks:
                call()
        self.synced.set()

    def _replace(self, items: Iterable[Any], besides: str) -> None:
        listed = {key_of(obj): obj for obj in items}
        for key in [key for key in self.items if key not in listed]:
            self._remove(key, self.items[key], Triggers((), besides))  # the revision of the deletion is not known
        for key, obj in listed.items():
            self._put(key, obj, besides)

    def _put(self, key: str, obj: Any, besides: str = "") -> None:
        if self._transform is not None:
            obj = self._transform(obj)
        old = self.items.get(key)
        if old is not None:
            before, after = old["metadata"], obj["metadata"]
            if before["uid"] != after["uid"]:
                # Deleted and recreated between two lists: two objects, two notifications.
                self._remove(key, old, _trigger_of(obj, besides))
                old = None
            elif before["resourceVersion"] == after["resourceVersion"]:
                return
            else:
                self._remove_from_indexes(key, old)
        self.items[key] = obj
        for name in self._indexes:
            self._add_to_index(name, key, obj)
        if self._handlers:
            self._call_all(self._handlers, old, obj, _trigger_of(obj, besides))

    def _remove(self, key: str, last: Any, trigger: Trigger | None = None) -> None:
        """Remove an object. `last` is its last state, with the revision of the deletion unless `trigger` is given."""
        old = self.items.pop(key, None)
        if old is not None:
            self._remove_from_indexes(key, old)
            if trigger is None:
                trigger = _revision_of(last)
            self._call_all(self._handlers, last if self._transform is None else self._transform(last), None, trigger)

    def _add_to_index(self, name: str, key: str, obj: T) -> None:
        values_of, index = self._indexes[name]
        for value in values_of(obj):
            index.setdefault(value, {})[key] = obj

    def _remove_from_indexes(self, key: str, obj: T) -> None:
        for values_of, index in self._indexes.values():
            for value in values_of(obj):
                held = index.get(value)
                if held is not None:
                    held.pop(key, None)
                    if not held:
                        del index[value]

    def _call_all(self, handlers: Iterable[Handler[T]], old: T | None, new: T | None, trigger: Trigger | None) -> None:
        """Call handlers; `trigger` is that of the keys which they add to queues."""
        before, delivery.cause = delivery.cause, trigger
        try:
            for handler in handlers:
                try:
                    handler(old, new)
                except Exception:  # an exception in one handler must not affect the others
                    log.exception("an event handler of %s failed", self._resource)
        finally:
            delivery.cause = before


async def _initial_objects(watch: WatchStream) -> Iterable[Any] | None:
    """Return the objects that the initial events of a watch add up to; None if the watch ends before they do."""
    received: dict[str, Any] = {}
    async for kind, obj in watch:
        if kind == "DELETED":
            received.pop(key_of(obj), None)
        elif kind != "BOOKMARK":
            received[key_of(obj)] = obj
        elif (obj["metadata"].get("annotations") or {}).get(INITIAL_EVENTS_END) == "true":
            return received.values()
    return None


def _trigger_of(obj: ObjView, besides: str) -> Trigger | None:
    revision = _revision_of(obj)
    return revision if not besides else Triggers((revision,) if revision else (), besides)


def _revision_of(obj: ObjView) -> int | None:
    """Return the revision of an object; None if it is not a number, which other servers may send."""
    try:
        return int(obj["metadata"]["resourceVersion"]) or None
    except (KeyError, ValueError):
        return None
