"""DELETE, for every kind: preconditions, grace, finalizers, garbage-collection policy.

An object with finalizers or a grace period is only marked; it goes when the last finalizer is removed (see
`Registry.update`) or when its node says that it has stopped.
"""

from __future__ import annotations

from datetime import timedelta

from setpoint.apiserver.call import Call
from setpoint.apiserver.corrupt import readable
from setpoint.apiserver.options import DeleteOptions
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.watch_cache import CorruptEntry, Entry, Obj
from setpoint.meta.errors import Conflict
from setpoint.meta.times import format_time, parse_time
from setpoint.store.interface import CompareFailed, Delete

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"


async def delete(
    call: Call, registry: Registry, name: str, options: DeleteOptions, *, admit: bool = True, one_of_many: bool = False
) -> tuple[Entry, bool]:
    """Return the object as it was last seen and whether it is gone now. `admit`: whether admission is asked, which has
    no name to go by if this is `one_of_many`.

    An object that this call has marked may be removed by its node before this call removes it. That completes the
    deletion: the answer is the object as it was marked. Without a mark of its own, an absent object is NotFound."""
    key = registry.key(call.target.namespace, name)
    ours: Entry | None = None  # the object as this call has marked it
    while True:
        entry = registry.cache.get(key)
        if ours is not None and (entry is None or _uid(registry, entry) != _uid(registry, ours)):
            return ours, True
        if entry is None:
            raise registry.not_found(name)
        if registry.encoding.remote:
            await registry.encoding.ready((entry,))
        old = registry.encoding.live(entry)
        _check_preconditions(registry, old, options)
        if admit:
            attrs = registry.attributes(call, "DELETE", None, old, "" if one_of_many else name)
            attrs.delete_options = options.as_sent(call.dry_run)
            await registry.env.admission.mutate(attrs)
            await registry.env.admission.validate(attrs)
        if registry.cache.get(key) is not entry:
            continue
        obj, now_gone = _mark(call, registry, old, options)
        if obj is not None and not now_gone:
            if obj is old:
                return entry, False
            if call.dry_run:
                return registry.encoding.entry(key, obj, entry.revision), False
            marked = await _write(call, registry, key, entry, obj)
            if marked is None:
                continue
            return marked, False
        if call.dry_run:
            return registry.encoding.entry(key, obj or old, entry.revision), True
        if obj is not None:
            # The last sight of a Pod: marked first, so that watchers see its grace end, then removed.
            marked = await _write(call, registry, key, entry, obj)
            if marked is None:
                continue
            entry = ours = marked
        operations = await registry.hooks.before_delete(call, registry.encoding.live(entry))
        try:
            revision, _ = await registry.commit(call, [Delete(key, entry.revision), *operations])
        except CompareFailed:
            if registry.cache.ended:
                if ours is not None:
                    return ours, True
                raise registry.not_found(name) from None
            continue
        return (entry.restamped(revision) if registry.strategy.returns_deleted else entry), True


def _uid(registry: Registry, entry: Entry) -> str:
    """Return the uid of an entry, empty if the object cannot be read."""
    return "" if isinstance(entry, CorruptEntry) else str(entry.obj["metadata"]["uid"])


async def delete_unread(call: Call, registry: Registry, name: str) -> None:
    """One that cannot be read, and only such: without preconditions, admission, finalizers and whatever else would
    have to look at it."""
    key = registry.key(call.target.namespace, name)
    while True:
        entry = registry.cache.get(key)
        if entry is None:
            raise registry.not_found(name)
        if not isinstance(entry, CorruptEntry):
            raise readable(registry.resource, key, name)
        if call.dry_run:
            return
        try:
            await registry.commit(call, [Delete(key, entry.revision)])
        except CompareFailed:
            continue
        return


async def _write(call: Call, registry: Registry, key: str, entry: Entry, obj: Obj) -> Entry | None:
    """None: somebody was faster."""
    try:
        return await registry.put(call, key, obj, entry.revision)
    except CompareFailed:
        return None


def wrong_uid(given: str, actual: str) -> str:
    return (
        f"the UID in the precondition ({given}) does not match the UID in record ({actual}). "
        "The object might have been deleted and then recreated"
    )


def wrong_version(given: str, actual: str) -> str:
    return (
        f"the ResourceVersion in the precondition ({given}) does not match the ResourceVersion in record ({actual}). "
        "The object might have been modified"
    )


def _check_preconditions(registry: Registry, old: Obj, options: DeleteOptions) -> None:
    meta, resource = old["metadata"], registry.resource
    if options.uid is not None and options.uid != meta["uid"]:
        raise Conflict.of(
            resource.group, resource.kind, meta["name"],
            wrong_uid(options.uid, meta["uid"]),
        )  # fmt: skip
    if options.revision is not None and options.revision != meta["resourceVersion"]:
        raise Conflict.of(
            resource.group, resource.kind, meta["name"],
            wrong_version(options.revision, meta["resourceVersion"]),
        )  # fmt: skip


def _mark(call: Call, registry: Registry, old: Obj, options: DeleteOptions) -> tuple[Obj | None, bool]:
    """The object with its deletion marked (the old one itself: nothing to do; None: no mark needed), and whether it
    may go at once."""
    strategy, meta = registry.strategy, dict(old["metadata"])
    obj = {**old, "metadata": meta}
    if strategy.begin_deletion(obj, call.moment):
        return obj, False
    grace = options.grace if options.grace is None or options.grace >= 0 else 1
    graceful = False
    current = meta.get("deletionGracePeriodSeconds")
    wanted = strategy.grace_period(old, grace)
    if wanted is not None and meta.get("deletionTimestamp"):
        if current:
            if grace is None or grace >= current:
                return old, False
            _shorten(call, meta, current, grace)
            graceful = True
    elif wanted is not None:
        meta["deletionTimestamp"] = format_time(call.now + timedelta(seconds=wanted))
        meta["deletionGracePeriodSeconds"] = wanted
        _next_generation(meta)
        graceful = True
    finalizers = _finalizers(registry, meta, options)
    if finalizers != meta.get("finalizers", []):
        if finalizers:
            meta["finalizers"] = finalizers
        else:
            meta.pop("finalizers", None)
    pending = bool(finalizers) or not strategy.removable(obj)
    if graceful:
        return obj, not pending and not meta["deletionGracePeriodSeconds"]
    if not pending:
        return None, True
    if not meta.get("deletionTimestamp"):
        _next_generation(meta)
        meta["deletionTimestamp"] = format_time(call.now)
    elif parse_time(meta["deletionTimestamp"]) > call.now:
        meta["deletionTimestamp"] = format_time(call.now)
    meta["deletionGracePeriodSeconds"] = 0
    strategy.mark_deleted(obj)
    return (old, False) if obj == old else (obj, False)


def _shorten(call: Call, meta: Obj, current: int, grace: int) -> None:
    moment = parse_time(meta["deletionTimestamp"]) - timedelta(seconds=current) + timedelta(seconds=grace)
    if moment < call.now:
        moment = call.now
        if grace:
            grace = 1
    meta["deletionTimestamp"] = format_time(moment)
    meta["deletionGracePeriodSeconds"] = grace


def _next_generation(meta: Obj) -> None:
    if meta.get("generation"):
        meta["generation"] += 1


def _finalizers(registry: Registry, meta: Obj, options: DeleteOptions) -> list[str]:
    """What the chosen propagation policy makes of the finalizers."""
    have = meta.get("finalizers", [])
    strategy = registry.strategy
    if not strategy.collects_garbage:
        return list(have)
    if options.orphan is not None:
        orphan, foreground = options.orphan, False
    elif options.propagation is not None:
        orphan, foreground = options.propagation == "Orphan", options.propagation == "Foreground"
    else:
        first = next((name for name in have if name in (ORPHAN, FOREGROUND)), "")
        orphan = first == ORPHAN or (not first and strategy.orphans_by_default)
        foreground = first == FOREGROUND
    kept = [name for name in have if name not in (ORPHAN, FOREGROUND)]
    if orphan:
        kept.append(ORPHAN)
    if foreground:
        kept.append(FOREGROUND)
    return list(have) if set(kept) == set(have) else kept
