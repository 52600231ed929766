"""The life of an object, the same for every kind: create, update, delete over a Store, with the kind's own Strategy.

A write reads the current object from the cache, works out the new one, and swaps it in if nobody was faster; if
somebody was, it starts again from what is there now, unless the client insisted on a revision. Nothing is written when
nothing changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import orjson

from setpoint.apiserver.admission.plugin import Attributes, Chain, Shape
from setpoint.apiserver.call import Call
from setpoint.apiserver.corrupt import CorruptObject
from setpoint.apiserver.encoding import Encoding, stamp_offset
from setpoint.apiserver.fencing import Fencing
from setpoint.apiserver.filters.authorize import AuthorizerChain
from setpoint.apiserver.http.message import ObjectRequest
from setpoint.apiserver.options import revision_problem
from setpoint.apiserver.preparation import prepare_create, prepare_update
from setpoint.apiserver.storage_paths import wrong_uid
from setpoint.apiserver.stored_form import cause, put_in_order, stored_form
from setpoint.apiserver.turns import Turns
from setpoint.apiserver.watch_cache import CorruptEntry, Entry, Expected, Obj, ResourceCache, entry_of
from setpoint.apiserver.write_hooks import Hooks
from setpoint.kinds.catalog import Resource
from setpoint.kinds.strategy import Strategy
from setpoint.meta.apply import keep_times
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import AlreadyExists, BadRequest, Conflict, Invalid, NotFound, PlainServerError
from setpoint.meta.field import invalid
from setpoint.meta.free_form import is_closed
from setpoint.meta.goformat import quote
from setpoint.meta.lease_term import TERM_HEADER
from setpoint.meta.names import path_segment
from setpoint.store.interface import CompareFailed, Delete, KeyValue, Op, Put, Store

_GENERATE_ATTEMPTS = 8
_CONTENDED_ATTEMPTS = 64
_SYSTEM_FIELDS = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")


@dataclass(slots=True)
class Environment:
    """What all registries of one server share."""

    store: Store
    clock: Clock
    turns: Turns
    ids: Ids
    admission: Chain
    authorizer: AuthorizerChain
    hooks: dict[tuple[str, str], Hooks] = field(default_factory=dict)
    stale: Callable[[str], Awaitable[bool]] | None = None
    """Whether the value under a key should be written once more, though nothing in it has changed."""
    fencing: Fencing = field(init=False)

    def __post_init__(self) -> None:
        self.fencing = Fencing(self.store)


Change = Callable[[Obj | None], Awaitable[Obj]]
"""From the stored object (None: there is none) to the wanted one, a fresh dict in the stored version."""

_NO_HOOKS = Hooks()


class _Present(AlreadyExists):
    """The store has an object of this name, whatever others may refuse with the same words."""


class Registry:
    def __init__(self, resource: Resource, encoding: Encoding, cache: ResourceCache, env: Environment) -> None:
        self.resource = resource
        self.encoding = encoding
        self.cache = cache
        self.env = env
        self.hooks = env.hooks.get((resource.group, resource.plural), _NO_HOOKS)

    @property
    def strategy(self) -> Strategy:
        return self.resource.strategy

    @property
    def error_group(self) -> str:
        """The group under which an invalid object is reported: that of the form in which it is kept."""
        return self.resource.storage[0]

    def key(self, namespace: str, name: str) -> str:
        """Raises BadRequest for a name that could mean something else in a path."""
        if "%" in name or "/" in name or name in (".", ".."):
            raise BadRequest(f"Name parameter invalid: {quote(name)}: {';'.join(path_segment(name))}")
        return f"{self.cache.prefix}{namespace}/{name}" if self.resource.namespaced else self.cache.prefix + name

    def not_found(self, name: str) -> NotFound:
        return NotFound.of(self.resource.group, self.resource.plural, name)

    def get(self, namespace: str, name: str) -> Entry:
        entry = self.cache.get(self.key(namespace, name))
        if entry is None:
            raise self.not_found(name)
        return entry

    def fields_of(self, entry: Entry) -> dict[str, str]:
        """What field selectors see."""
        obj = self.encoding.live(entry)
        meta = obj["metadata"]
        fields = {"metadata.name": meta.get("name", "")}
        if self.resource.namespaced:
            fields["metadata.namespace"] = meta.get("namespace", "")
        fields.update(self.strategy.selectable_fields(obj))
        return fields

    def attributes(self, call: Call, operation: str, obj: Obj | None, old: Obj | None, name: str) -> Attributes:
        attrs = Attributes(
            operation=operation,
            resource=self.resource,
            subresource=call.target.subresource,
            namespace=call.target.namespace,
            name=name,
            obj=obj,
            old=old,
            user=call.user,
            now=call.now,
            dry_run=call.dry_run,
            query=call.query,
            warnings=call.warnings,
        )
        if call.audit is not None:
            attrs.audit, attrs.audit_objects = call.audit.annotations, call.audit.tells_objects
        return attrs

    # -- create ---------------------------------------------------------------------------------------------------

    async def create(self, call: Call, obj: Obj) -> Entry:
        """`obj`: decoded, defaulted, its own (nobody else's) dict, in the stored version; managedFields are set."""
        attrs = self.attributes(call, "CREATE", obj, None, obj["metadata"].get("name", ""))
        await self.env.admission.mutate(attrs)
        meta = obj["metadata"]
        if meta.get("name") or not meta.get("generateName"):
            return await self._create(call, obj, attrs)
        as_asked, candidate = orjson.dumps(obj), obj
        for _ in range(_GENERATE_ATTEMPTS):
            # The base is cut so that the whole name stays a valid label.
            suffix = self.env.ids.suffix() if self.strategy.generates_names else ""
            candidate_name = meta["generateName"][: 58 if suffix else None] + suffix
            candidate["metadata"]["name"] = candidate_name
            attrs.obj = candidate
            try:
                return await self._create(call, candidate, attrs)
            except AlreadyExists:
                # The candidate is used up: it has been prepared for the store.
                candidate = orjson.loads(as_asked)
        raise self._name_exhausted(candidate_name)

    def _name_exhausted(self, name: str) -> AlreadyExists:
        error = AlreadyExists.of(self.resource.group, self.resource.plural, name)
        error.message += ", the server was not able to generate a unique name for the object"
        assert error.details is not None
        error.details["retryAfterSeconds"] = 1
        return error

    def fill_metadata(self, obj: Obj, now: str) -> None:
        meta = obj["metadata"]
        for name in _SYSTEM_FIELDS:
            meta.pop(name, None)
        meta["uid"] = self.env.ids.uid()
        meta["creationTimestamp"] = now

    async def _create(self, call: Call, obj: Obj, attrs: Attributes) -> Entry:
        meta = obj["metadata"]
        refused = bool(meta.get("resourceVersion")) and not call.dry_run
        self.fill_metadata(obj, call.moment)
        as_asked = orjson.dumps(obj) if self.hooks.contended else b""
        for attempt in range(_CONTENDED_ATTEMPTS):
            operations = await prepare_create(self, call, obj, attrs)
            if refused:  # by the store, so to speak: whoever has something against the object comes first
                self.hooks.release(call, obj)
                raise PlainServerError("resourceVersion should not be set on objects to be created")
            name = obj["metadata"]["name"]
            key = self.key(call.target.namespace, name)
            if call.dry_run:
                if (found_now := self.cache.get(key)) is not None:
                    raise self._exists(name, found_now)
                return self._imagined(key, obj)
            try:
                return await self.put(call, key, obj, 0, operations)
            except CompareFailed as failure:
                self.hooks.release(call, obj)
                if failure.key == key:
                    found = failure.current
                    raise self._exists(name, entry_of(found) if found is not None else None) from None
                if not as_asked or attempt == _CONTENDED_ATTEMPTS - 1:
                    raise Conflict.modified(self.resource.group, self.resource.plural, name) from None
                obj = attrs.obj = orjson.loads(as_asked)
        raise AssertionError("unreachable")

    def _exists(self, name: str, entry: Entry | None) -> AlreadyExists:
        """Return the refusal of a creation; `entry` is what is there already."""
        error = _Present.of(self.resource.group, self.resource.plural, name)
        if entry is not None and not isinstance(entry, CorruptEntry) and entry.obj["metadata"].get("deletionTimestamp"):
            error.message = f"object is being deleted: {error.message}"
        return error

    # -- update ---------------------------------------------------------------------------------------------------

    async def update(
        self,
        call: Call,
        name: str,
        change: Change,
        *,
        strategy: Strategy | None = None,
        create: bool = False,
        retry: bool = True,
        check_uid: bool = True,
        admit: bool = True,
        shape: Shape | None = None,
    ) -> tuple[Entry, bool]:
        """Returns the object as it now is and whether it was created. `change` may be called several times.

        `create`: an absent object is created (apply). `retry`: whether a lost race starts over, or is a conflict.
        `check_uid`: a uid in the object is a precondition (it is for a PUT) rather than a field like others.
        `admit`: whether admission is asked; not for what the server itself works out after it was asked.
        `shape`: as what admission sees the object, if not as itself."""
        main = self.strategy
        strategy = strategy or main
        key = self.key(call.target.namespace, name)
        lost = 0  # creations
        while True:
            entry = self.cache.get(key)
            if entry is None and not (create or strategy.allow_create_on_update):
                raise self.not_found(name)
            if entry is None:
                obj = await change(None)
                if check_uid:
                    self.check_uid(call, name, obj["metadata"], "")
                try:
                    return await self._create_by_update(call, name, obj), True
                except _Present:
                    # Somebody created it meanwhile: now it is an update, or, if it is gone again, another creation.
                    lost += 1
                    if self.cache.ended or lost == _CONTENDED_ATTEMPTS:
                        raise
                    continue
            if self.encoding.remote:
                await self.encoding.ready((entry,))
            try:
                live = self.encoding.live(entry)
            except CorruptObject as error:
                raise error.for_writers() from None
            call.size = max(call.size, len(entry.value))
            obj = await change(live)
            if check_uid:
                self.check_uid(call, name, obj["metadata"], live["metadata"]["uid"])
            if not call.target.subresource:
                await call.work(_unshare, obj, live)
            attrs = self.attributes(call, "UPDATE", obj, live, name)
            attrs.shape = shape
            if admit:
                await self.env.admission.mutate(attrs)
            self._check_versions(name, obj, entry)
            operations = await prepare_update(self, call, obj, live, strategy, attrs, admit)
            if _should_remove(obj, live) and main.removable(obj):
                return await self._remove_emptied(call, key, entry, obj), False
            if call.dry_run:
                return self._imagined(key, obj, entry.revision), False
            obj = await call.work(keep_times, live, obj)
            if await call.work(self.encoding.same, obj, live) and not await self._needs_writing(entry, obj):
                self.hooks.release(call, obj)
                return entry, False
            try:
                return await self.put(call, key, obj, entry.revision, operations), False
            except CompareFailed as failure:
                self.hooks.release(call, obj)
                if (not retry and failure.key == key) or self.cache.ended:
                    raise Conflict.modified(self.resource.group, self.resource.plural, name) from None

    async def _needs_writing(self, entry: Entry, obj: Obj) -> bool:
        """Though nothing has changed: nobody has written the object since its creation, and until then its kind makes
        it different each time; or it is encrypted with a key that is on its way out."""
        stale = self.env.stale
        if stale is not None and await stale(entry.key):
            return True
        if not self.strategy.writes_after_create(obj):
            return False
        stored = await self.env.store.get(entry.key)
        return stored is not None and stored.mod_revision == stored.create_revision == entry.revision

    def check_uid(self, call: Call, name: str, meta: Obj, found: str) -> None:
        """A uid in what a PUT brings is a precondition; `found`: that of the object, if there is one."""
        given = meta.get("uid")
        if given and given != found:
            raise wrong_uid(self.resource, call.target.namespace, name, given, found, call.dry_run)

    def _check_versions(self, name: str, obj: Obj, entry: Entry) -> None:
        meta = obj["metadata"]
        given = meta.get("resourceVersion", "")
        current = str(entry.revision)
        if given in ("", "0"):
            if not self.strategy.allow_unconditional_update:
                error = invalid("metadata.resourceVersion", 0, "must be specified for an update")
                raise Invalid.of(self.resource.group, self.resource.plural, name, [error])
            meta["resourceVersion"] = current
        elif problem := revision_problem(given):
            raise PlainServerError(problem)
        elif given != current:
            raise Conflict.modified(self.resource.group, self.resource.plural, name)

    async def _create_by_update(self, call: Call, name: str, obj: Obj) -> Entry:
        meta = obj["metadata"]
        if meta.get("uid"):
            raise Conflict.of(
                self.resource.group, self.resource.plural, name,
                f"uid mismatch: the provided object specified uid {meta['uid']}, and no existing object was found",
            )  # fmt: skip
        attrs = self.attributes(call, "CREATE", obj, None, name)
        await self.env.admission.mutate(attrs)
        # There is nothing that it could be the version of; it only has to be one.
        given = obj["metadata"].pop("resourceVersion", "")
        if given and (problem := revision_problem(given)):
            raise PlainServerError(problem)
        return await self._create(call, obj, attrs)

    async def _remove_emptied(self, call: Call, key: str, entry: Entry, obj: Obj) -> Entry:
        """The last finalizer of a deleted object is gone: so is the object."""
        if not call.dry_run:
            operations = await self.hooks.before_delete(call, self.encoding.live(entry))
            try:
                await self.commit(call, [Delete(key, entry.revision), *operations])
            except CompareFailed as failure:
                if failure.key != key or failure.current is not None:
                    raise Conflict.modified(
                        self.resource.group, self.resource.plural, entry.obj["metadata"]["name"]
                    ) from None
        return self._imagined(key, obj, entry.revision)

    # -- shared ---------------------------------------------------------------------------------------------------

    async def commit(self, call: Call, ops: Sequence[Op]) -> tuple[int, Sequence[KeyValue | None]]:
        """Do these operations in one transaction, if the caller may still make it. Raises CompareFailed."""
        term = call.request.headers.get(TERM_HEADER)
        if term is None:
            return await self.env.store.txn(ops, self.cause(call))
        return await self.env.fencing.commit(term, ops, self.cause(call))

    async def put(self, call: Call, key: str, obj: Obj, expect: int, operations: Sequence[Op] = ()) -> Entry:
        """Store the object, which from now on is shared: nobody changes it any more. Return it as this transaction
        stored it. Raises CompareFailed."""
        form, encoding = stored_form(obj), self.encoding
        dumped = await encoding.dump_remote(form) if encoding.remote else encoding.dump(form)
        value, stamp = stamp_offset(dumped)
        # Those who want it decoded need not decode what was encoded just now: all who watch, or the writer alone.
        # Where nobody does, bytes are enough.
        shareable, watched = call.hands_over and self.is_closed, bool(self.cache.object_watches)
        if (shareable and watched) or encoding.final_as:
            self.cache.expect(key, Expected(form, value, stamp, shareable and watched, encoding.final_as))
        try:
            revision, results = await self.commit(call, [Put(key, value, expect, stamp), *operations])
        finally:
            self.cache.expect_no_more(key, value)
        stored = results[0]
        assert stored is not None
        # By now the cache may hold a later write of somebody else: only the very revision is this write.
        entry = self.cache.get(key)
        keeps_decoded = shareable and not watched and isinstance(call.request, ObjectRequest)
        if keeps_decoded or entry is None or entry.revision != revision:
            entry = Entry(key, stored.value, revision)
            entry.take(Expected(form, value, stamp, shareable, encoding.final_as))
        if encoding.remote:
            await encoding.ready((entry,))
        return entry

    @cached_property
    def is_closed(self) -> bool:
        """No part of such an object is taken as it comes: all its containers were made by the decoder."""
        return is_closed(self.resource.type)

    def encode(self, obj: Obj) -> bytes:
        return self.encoding.dump(stored_form(obj))

    def _imagined(self, key: str, obj: Obj, revision: int = 0) -> Entry:
        """The answer of a write that is not (or no longer) stored."""
        put_in_order(obj)
        if revision:
            obj["metadata"]["resourceVersion"] = str(revision)
        else:
            obj["metadata"].pop("resourceVersion", None)
        return self.encoding.entry(key, obj, revision)

    def cause(self, call: Call) -> bytes:
        return cause(call.request.headers.get("user-agent", ""), call.user.name, call.verb)


def _unshare(obj: Obj, old: Obj) -> None:
    """Copies of what `obj` has in common with the stored object: from here on admission and the kind may change it.
    (Writes through a subresource change nothing but their own part.)"""
    for key, value in obj.items():
        if value is old.get(key) and isinstance(value, dict | list):
            obj[key] = orjson.loads(orjson.dumps(value))


def _should_remove(obj: Obj, old: Obj) -> bool:
    old_meta = old["metadata"]
    return bool(
        not obj["metadata"].get("finalizers")
        and old_meta.get("deletionTimestamp")
        and not old_meta.get("deletionGracePeriodSeconds")
    )
