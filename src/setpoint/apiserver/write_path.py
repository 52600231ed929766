"""The path of every write: read, change, admit, prepare, commit, answer.

1. Read. The current object comes from the watch cache.
2. Change. The caller computes the desired object from the current one. For a creation it passes the object, for a
   deletion its options.
3. Admit. Mutating admission may change the desired object or deny the write.
4. Prepare. Hooks reserve what the write needs beyond the object, the strategy of the kind prepares and validates the
   object, and validating admission has the last word.
5. Commit. One transaction of the store, on condition that the object is still at the revision that was read. The
   transaction records the cause of the write. If another write was faster, the path starts again with the new object.
6. Answer. The object as this transaction stored it.

Handlers, the server's own writes (`internal_writes.py`) and its repairs all take this path. A write that changes
nothing is not committed. A dry run ends before the commit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import orjson

from setpoint.apiserver.admission.plugin import Attributes, SubresourceView
from setpoint.apiserver.cache_entry import CorruptEntry, Entry, Expected, entry_of
from setpoint.apiserver.corrupt_objects import CorruptObject, not_corrupt
from setpoint.apiserver.deletion import check_preconditions, lost_last_finalizer, mark_deleted
from setpoint.apiserver.encoding import stamp_offset
from setpoint.apiserver.filters.authorize import Decision, Problem, access_of, forbidden
from setpoint.apiserver.options import DeleteOptions, revision_problem
from setpoint.apiserver.preparation import (
    fill_system_fields,
    match_namespace,
    prepare_create,
    prepare_update,
    put_in_order,
    restore_field,
    stored_form,
    unshare,
)
from setpoint.apiserver.registry import Registry, uid_conflict
from setpoint.apiserver.request_context import RequestContext
from setpoint.kinds.strategy import Strategy
from setpoint.meta import chunked_json
from setpoint.meta.apply import retain_times
from setpoint.meta.errors import AlreadyExists, Conflict, InternalError, Invalid, PlainServerError
from setpoint.meta.field import Errors, invalid
from setpoint.meta.names import path_segment
from setpoint.meta.objects import Obj
from setpoint.store.interface import CompareFailed, Delete, Op, Put
from setpoint.wire.message import ObjectRequest

Change = Callable[[Obj | None], Awaitable[Obj]]
"""Maps the stored object, or None if there is none, to the desired one: a new dict in the stored version."""

_GENERATE_ATTEMPTS = 8
_CONTENDED_ATTEMPTS = 64


class _Exists(AlreadyExists):
    """The store already has an object of this name. Other AlreadyExists errors come from admission or hooks."""


class WritePath:
    """One write to one resource. Make a new one for each write."""

    __slots__ = ("_admission", "_cache", "_ctx", "_encoding", "_hooks", "_registry", "_resource")

    def __init__(self, ctx: RequestContext, registry: Registry) -> None:
        self._ctx = ctx
        self._registry = registry
        self._resource = registry.resource
        self._encoding = registry.encoding
        self._cache = registry.cache
        self._hooks = registry.hooks
        self._admission = registry.env.admission

    # -- create ---------------------------------------------------------------------------------------------------

    async def create(self, obj: Obj, *, replaces: int = 0) -> Entry:
        """Store a new object and return it as stored.

        `obj` is decoded and in the stored version, has its defaults and managedFields, and belongs to this write.
        `replaces` is the revision of the object that it replaces; 0 means that there must be none."""
        attrs = self.attributes("CREATE", obj, None, obj["metadata"].get("name", ""))
        await self._admission.mutate(attrs)
        meta = obj["metadata"]
        if meta.get("name") or not meta.get("generateName"):
            return await self._create(obj, attrs, replaces)
        requested, candidate, ids = orjson.dumps(obj), obj, self._registry.env.ids
        for _ in range(_GENERATE_ATTEMPTS):
            # The base is truncated so that the whole name is a valid label.
            suffix = ids.suffix() if self._registry.strategy.generates_names else ""
            name = meta["generateName"][: 58 if suffix else None] + suffix
            candidate["metadata"]["name"] = name
            attrs.obj = candidate
            try:
                return await self._create(candidate, attrs)
            except AlreadyExists:
                candidate = orjson.loads(requested)  # the previous candidate has been prepared for the store
        error = AlreadyExists.of(self._resource.group, self._resource.plural, name)
        error.message += ", the server was not able to generate a unique name for the object"
        assert error.details is not None
        error.details["retryAfterSeconds"] = 1
        raise error

    async def _create(self, obj: Obj, attrs: Attributes, replaces: int = 0) -> Entry:
        """Prepare, commit and answer the creation of an object that has a name and has passed mutating admission."""
        ctx, hooks = self._ctx, self._hooks
        has_revision = bool(obj["metadata"].get("resourceVersion")) and not ctx.dry_run
        fill_system_fields(obj["metadata"], self._registry.env.ids, ctx.timestamp)
        requested = orjson.dumps(obj) if hooks.contended else b""
        for attempt in range(_CONTENDED_ATTEMPTS):
            operations = await self._prepare_create(obj, attrs)
            if has_revision:  # upstream's store rejects it, after all other validation
                hooks.release(ctx, obj)
                raise PlainServerError("resourceVersion should not be set on objects to be created")
            name = obj["metadata"]["name"]
            key = self._registry.key(ctx.target.namespace, name)
            if ctx.dry_run:
                if (existing := self._cache.get(key)) is not None:
                    raise self._exists(name, existing)
                return await self._dry_run_entry(key, obj)
            try:
                return await self._commit(key, obj, replaces, operations)
            except CompareFailed as failure:
                hooks.release(ctx, obj)
                if failure.key == key:
                    found = failure.current
                    raise self._exists(name, entry_of(found) if found is not None else None) from None
                if not requested or attempt == _CONTENDED_ATTEMPTS - 1:
                    raise self._conflict(name) from None
                obj = attrs.obj = orjson.loads(requested)
        raise AssertionError("unreachable")

    async def _prepare_create(self, obj: Obj, attrs: Attributes) -> list[Op]:
        """Prepare and validate; return the operations that hooks add to the transaction. A failure releases what hooks
        have reserved."""
        ctx, hooks, strategy, meta = self._ctx, self._hooks, self._registry.strategy, obj["metadata"]
        match_namespace(self._resource, ctx, meta)
        strategy_ctx = ctx.strategy_context()
        if strategy.has_generation:
            meta["generation"] = 1
        operations = await hooks.before_create(ctx, obj)
        try:
            errs = await ctx.compute(prepare_create, self._resource, obj, strategy_ctx)
            if hooks.validates:
                errs[:0] = await hooks.validate(ctx, obj, None, not errs)
            if not errs:
                # The loosest rule for names, in case that of the kind is looser still.
                errs += [invalid("metadata.name", meta["name"], text) for text in path_segment(meta["name"])]
            if errs:
                raise await self._invalid(meta, errs)
            for text in await ctx.compute(strategy.warnings_on_create, obj, strategy_ctx):
                ctx.warn(text)
            attrs.name = meta["name"]
            if ctx.verb != "create":
                await self._authorize_create()
            await self._admission.validate(attrs)
        except BaseException:
            hooks.release(ctx, obj)
            raise
        return operations

    async def _authorize_create(self) -> None:
        """A PUT or an apply of an absent object creates it, which needs the right to create. Raises Forbidden."""
        access = access_of(self._ctx)._replace(verb="create")
        decision, reason = await self._registry.env.authorizer.decide(access)
        if isinstance(reason, Problem):
            raise InternalError.of(reason)
        if decision is not Decision.ALLOW:
            raise forbidden(access, reason)

    def _exists(self, name: str, entry: Entry | None) -> AlreadyExists:
        error = _Exists.of(self._resource.group, self._resource.plural, name)
        if entry is not None and not isinstance(entry, CorruptEntry) and entry.obj["metadata"].get("deletionTimestamp"):
            error.message = f"object is being deleted: {error.message}"
        return error

    # -- update ---------------------------------------------------------------------------------------------------

    async def update(
        self,
        name: str,
        change: Change,
        *,
        strategy: Strategy | None = None,
        create: bool = False,
        check_uid: bool = True,
        admit: bool = True,
        view: SubresourceView | None = None,
    ) -> tuple[Entry, bool]:
        """Return the object as stored and whether it was created. `change` may be called several times.

        `strategy` replaces that of the subresource or of the kind. `create`: an absent object is created (apply).
        `check_uid`: a uid in the object is a precondition (PUT), not a field like others. `admit`: whether admission is
        called; not for changes that the server computes after it was called. `view` is what admission sees instead of
        the object."""
        ctx, registry, encoding, cache = self._ctx, self._registry, self._encoding, self._cache
        strategy = strategy or registry.strategy.subresources.get(ctx.target.subresource, registry.strategy)
        key = registry.key(ctx.target.namespace, name)
        lost_creations = 0
        while True:
            # 1. read
            entry = cache.get(key)
            if entry is None:
                if not (create or strategy.allow_create_on_update):
                    raise registry.not_found(name)
                obj = await change(None)
                if check_uid:
                    self.check_uid(name, obj["metadata"], "")
                try:
                    return await self._create_by_update(name, obj), True
                except _Exists:
                    # It was created concurrently: this is an update now, or, if it was deleted again, a creation.
                    lost_creations += 1
                    if cache.stopped or lost_creations == _CONTENDED_ATTEMPTS:
                        raise
                    continue
            if encoding.remote:
                await encoding.ready((entry,))
            try:
                live = await self._registry.live(entry, ctx.worker)
            except CorruptObject as error:
                raise error.for_writers() from None
            ctx.size = max(ctx.size, entry.size)
            ctx.hold(live)
            # 2. change
            obj = await change(live)
            if check_uid:
                self.check_uid(name, obj["metadata"], live["metadata"]["uid"])
            if not ctx.target.subresource:
                await ctx.compute(unshare, obj, live)
            # 3. admit
            attrs = self.attributes("UPDATE", obj, live, name)
            attrs.view = view
            if admit:
                await self._admission.mutate(attrs)
            # 4. prepare
            self._check_revision(name, obj, entry)
            operations = await self._prepare_update(obj, live, strategy, attrs, admit)
            # 5. commit and 6. answer
            if lost_last_finalizer(obj, live) and registry.strategy.removable(obj):
                return await self._remove(key, entry, obj), False
            if ctx.dry_run:
                return await self._dry_run_entry(key, obj, entry.revision), False
            obj = await ctx.compute(retain_times, live, obj)
            same = await ctx.compute(encoding.same, obj, live, ctx.size > chunked_json.LARGE)
            if same and not await self._needs_rewrite(entry, obj):
                self._hooks.release(ctx, obj)
                return entry, False
            try:
                return await self._commit(key, obj, entry.revision, operations), False
            except CompareFailed:
                self._hooks.release(ctx, obj)
                if cache.stopped:
                    raise self._conflict(name) from None

    async def _prepare_update(
        self, obj: Obj, live: Obj, strategy: Strategy, attrs: Attributes, admit: bool
    ) -> list[Op]:
        """Do for an update what `_prepare_create` does for a creation."""
        ctx, hooks, meta = self._ctx, self._hooks, obj["metadata"]
        match_namespace(self._resource, ctx, meta)
        strategy_ctx = ctx.strategy_context()
        restore_field(meta, live["metadata"], "generation")
        operations = await hooks.before_update(ctx, obj, live)
        try:
            errs = await ctx.compute(prepare_update, self._resource, obj, live, strategy, strategy_ctx)
            if hooks.validates:
                errs[:0] = await hooks.validate(ctx, obj, live, not errs)
            if errs:
                raise await self._invalid(meta, errs)
            for text in await ctx.compute(strategy.warnings_on_update, obj, live, strategy_ctx):
                ctx.warn(text)
            put_in_order(obj)
            if admit:
                await self._admission.validate(attrs)
        except BaseException:
            hooks.release(ctx, obj)
            raise
        return operations

    async def _create_by_update(self, name: str, obj: Obj) -> Entry:
        meta, resource = obj["metadata"], self._resource
        if meta.get("uid"):
            text = f"uid mismatch: the provided object specified uid {meta['uid']}, and no existing object was found"
            raise Conflict.of(resource.group, resource.plural, name, text)
        attrs = self.attributes("CREATE", obj, None, name)
        await self._admission.mutate(attrs)
        # There is no object whose revision it could be; it only has to be well-formed.
        given = obj["metadata"].pop("resourceVersion", "")
        if given and (problem := revision_problem(given)):
            raise PlainServerError(problem)
        return await self._create(obj, attrs)

    def check_uid(self, name: str, meta: Obj, actual: str) -> None:
        """Raise Conflict if the metadata has another uid than `actual`, that of the stored object (empty: none)."""
        given = meta.get("uid")
        if given and given != actual:
            raise uid_conflict(self._resource, self._ctx.target.namespace, name, given, actual, self._ctx.dry_run)

    def _check_revision(self, name: str, obj: Obj, entry: Entry) -> None:
        meta, current = obj["metadata"], str(entry.revision)
        given = meta.get("resourceVersion", "")
        if given in ("", "0"):
            if not self._registry.strategy.allow_unconditional_update:
                error = invalid("metadata.resourceVersion", 0, "must be specified for an update")
                raise Invalid.of(self._resource.group, self._resource.plural, name, [error])
            meta["resourceVersion"] = current
        elif problem := revision_problem(given):
            raise PlainServerError(problem)
        elif given != current:
            raise self._conflict(name)

    async def _needs_rewrite(self, entry: Entry, obj: Obj) -> bool:
        """Return whether an unchanged object has to be written: it is encrypted with a key that is being replaced, or
        its kind writes the first update after a creation in any case."""
        env = self._registry.env
        if env.needs_rewrite is not None and await env.needs_rewrite(entry.key):
            return True
        if not self._registry.strategy.writes_after_create(obj):
            return False
        stored = await env.store.get(entry.key)
        return stored is not None and stored.mod_revision == stored.create_revision == entry.revision

    # -- delete ---------------------------------------------------------------------------------------------------

    async def delete(
        self, name: str, options: DeleteOptions, *, admit: bool = True, one_of_many: bool = False
    ) -> tuple[Entry, bool]:
        """Return the object in its last state and whether it is removed now.

        An object with finalizers or a grace period is only marked as deleted. `admit`: whether admission is called;
        with `one_of_many` it gets no name. An object that this write has marked may be removed by its node before this
        write removes it, which completes the deletion. Without a mark of its own, an absent object is NotFound."""
        ctx, registry, encoding, cache = self._ctx, self._registry, self._encoding, self._cache
        key = registry.key(ctx.target.namespace, name)
        marked: Entry | None = None  # the object as this write has marked it
        while True:
            # 1. read
            entry = cache.get(key)
            if marked is not None and (entry is None or _uid(entry) != _uid(marked)):
                return marked, True
            if entry is None:
                raise registry.not_found(name)
            if encoding.remote:
                await encoding.ready((entry,))
            live = await registry.live(entry, ctx.worker)
            ctx.size = max(ctx.size, entry.size)
            check_preconditions(self._resource, live, options)
            # 3. admit
            if admit:
                attrs = self.attributes("DELETE", None, live, "" if one_of_many else name)
                attrs.delete_options = options.as_sent(ctx.dry_run)
                await self._admission.mutate(attrs)
                await self._admission.validate(attrs)
            if cache.get(key) is not entry:
                continue
            # 2. change: the mark
            obj, removes = mark_deleted(ctx, registry.strategy, live, options)
            if obj is live:
                return entry, False
            # 5. commit and 6. answer
            if ctx.dry_run:
                return await ctx.compute(encoding.entry, key, obj or live, entry.revision), removes
            try:
                if obj is not None:
                    # Marked before it is removed, so that watchers see the end of its grace period.
                    entry = marked = await self._commit(key, obj, entry.revision)
                    if not removes:
                        return marked, False
                operations = await self._hooks.before_delete(ctx, encoding.live(entry))
                revision, _ = await registry.env.transactions.commit(ctx, [Delete(key, entry.revision), *operations])
            except CompareFailed:
                if cache.stopped:
                    if marked is not None:
                        return marked, True
                    raise registry.not_found(name) from None
                continue
            return (entry.at_revision(revision) if registry.strategy.returns_deleted else entry), True

    async def delete_corrupt(self, name: str) -> None:
        """Remove an object that cannot be read, without preconditions, admission, finalizers and hooks, which would
        have to read it. Raises Conflict if it can be read."""
        ctx, registry = self._ctx, self._registry
        key = registry.key(ctx.target.namespace, name)
        while True:
            entry = self._cache.get(key)
            if entry is None:
                raise registry.not_found(name)
            if not isinstance(entry, CorruptEntry):
                raise not_corrupt(self._resource, key, name)
            if ctx.dry_run:
                return
            try:
                await registry.env.transactions.commit(ctx, [Delete(key, entry.revision)])
            except CompareFailed:
                continue
            return

    async def _remove(self, key: str, entry: Entry, obj: Obj) -> Entry:
        """Remove a deleted object that lost its last finalizer, and return its last state."""
        if not self._ctx.dry_run:
            operations = await self._hooks.before_delete(self._ctx, self._encoding.live(entry))
            try:
                await self._registry.env.transactions.commit(self._ctx, [Delete(key, entry.revision), *operations])
            except CompareFailed as failure:
                if failure.key != key or failure.current is not None:
                    raise self._conflict(entry.obj["metadata"]["name"]) from None
        return await self._dry_run_entry(key, obj, entry.revision)

    # -- admit ----------------------------------------------------------------------------------------------------

    def attributes(self, operation: str, obj: Obj | None, old: Obj | None, name: str) -> Attributes:
        """Return what admission sees of this write."""
        ctx = self._ctx
        attrs = Attributes(
            operation=operation,
            resource=self._resource,
            subresource=ctx.target.subresource,
            namespace=ctx.target.namespace,
            name=name,
            obj=obj,
            old=old,
            user=ctx.user,
            now=ctx.now,
            dry_run=ctx.dry_run,
            query=ctx.query,
            warnings=ctx.warnings,
        )
        if ctx.audit is not None:
            attrs.audit, attrs.audit_objects = ctx.audit.annotations, ctx.audit.includes_objects
        return attrs

    async def admit(self, operation: str, obj: Obj, name: str, subresource: str, dry_run: bool | None = None) -> None:
        """Call admission for an object that is not stored: a Binding, an Eviction, the options of a connection.

        `dry_run` is that of the request, if the object itself has another."""
        attrs = self.attributes(operation, obj, None, name)
        attrs.subresource = subresource
        if dry_run is not None:
            attrs.dry_run = dry_run
        await self._admission.mutate(attrs)
        await self._admission.validate(attrs)

    # -- commit and answer ----------------------------------------------------------------------------------------

    async def _commit(self, key: str, obj: Obj, expected_revision: int, operations: Sequence[Op] = ()) -> Entry:
        """Store the object, which is shared from now on and must not be changed. Return it as this transaction stored
        it. Raises CompareFailed."""
        ctx, registry, encoding, cache = self._ctx, self._registry, self._encoding, self._cache
        ctx.hold(obj)
        form = stored_form(obj)
        dumped = await registry.dump(form, ctx.size, ctx.worker)
        value, stamp = await ctx.compute(stamp_offset, dumped)
        # Readers of decoded objects need not decode what was just encoded: all watchers, or the writer alone.
        shareable, watched = ctx.may_share_object and registry.is_closed, bool(cache.object_watches)
        if watched and not shareable and ctx.size > chunked_json.LARGE:
            form, shareable = await ctx.compute(chunked_json.read, dumped), True
        if (shareable and watched) or encoding.final_as:
            cache.expect(key, Expected(form, value, stamp, shareable and watched, encoding.final_as))
        try:
            revision, results = await registry.env.transactions.commit(
                ctx, [Put(key, value, expected_revision, stamp), *operations]
            )
        finally:
            cache.drop_expected(key, value)
        stored = results[0]
        assert stored is not None
        # The cache may hold a later write already: the answer is the revision of this one.
        entry = cache.get(key)
        shares_with_writer = shareable and not watched and isinstance(ctx.request, ObjectRequest)
        if shares_with_writer or entry is None or entry.revision != revision:
            entry = Entry(stored)
            entry.adopt(Expected(form, value, stamp, shareable, encoding.final_as))
        if encoding.remote:
            await encoding.ready((entry,))
        return entry

    async def _invalid(self, meta: Obj, errs: Errors) -> Invalid:
        """Return the refusal of an object with these errors."""
        group, kind = self._registry.error_group, self._resource.kind
        return await self._ctx.compute(Invalid.of, group, kind, meta.get("name", ""), errs)

    async def _dry_run_entry(self, key: str, obj: Obj, revision: int = 0) -> Entry:
        """Return the answer of a write that is not stored, or no longer."""
        put_in_order(obj)
        if revision:
            obj["metadata"]["resourceVersion"] = str(revision)
        else:
            obj["metadata"].pop("resourceVersion", None)
        return await self._ctx.compute(self._encoding.entry, key, obj, revision)

    def _conflict(self, name: str) -> Conflict:
        return Conflict.modified(self._resource.group, self._resource.plural, name)


def _uid(entry: Entry) -> str:
    """Return the uid of an entry, empty if the object cannot be read."""
    return "" if isinstance(entry, CorruptEntry) else str(entry.obj["metadata"]["uid"])
