"""The rules of graceful deletion: preconditions, grace period, finalizers and propagation policy.

An object with finalizers or a grace period is only marked. It is removed when its last finalizer is removed, or when
its node confirms that it has stopped.
"""

from __future__ import annotations

from datetime import timedelta

from setpoint.apiserver.options import DeleteOptions
from setpoint.apiserver.request_context import RequestContext
from setpoint.kinds.catalog import Resource
from setpoint.kinds.strategy import Strategy
from setpoint.meta.errors import Conflict
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_time, parse_time

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"


def lost_last_finalizer(obj: Obj, live: Obj) -> bool:
    """Return whether the stored object waits only for its finalizers, and the new state has none."""
    meta = live["metadata"]
    return bool(
        not obj["metadata"].get("finalizers")
        and meta.get("deletionTimestamp")
        and not meta.get("deletionGracePeriodSeconds")
    )


def uid_mismatch(given: str, actual: str) -> str:
    return (
        f"the UID in the precondition ({given}) does not match the UID in record ({actual}). "
        "The object might have been deleted and then recreated"
    )


def revision_mismatch(given: str, actual: str) -> str:
    return (
        f"the ResourceVersion in the precondition ({given}) does not match the ResourceVersion in record ({actual}). "
        "The object might have been modified"
    )


def check_preconditions(resource: Resource, old: Obj, options: DeleteOptions) -> None:
    """Raise Conflict if the object is not the one, or not in the state, that the client wants to delete."""
    meta = old["metadata"]
    if options.uid is not None and options.uid != meta["uid"]:
        raise Conflict.of(
            resource.group,
            resource.kind,
            meta["name"],
            uid_mismatch(options.uid, meta["uid"]),
        )
    if options.revision is not None and options.revision != meta["resourceVersion"]:
        raise Conflict.of(
            resource.group,
            resource.kind,
            meta["name"],
            revision_mismatch(options.revision, meta["resourceVersion"]),
        )


def mark_deleted(ctx: RequestContext, strategy: Strategy, old: Obj, options: DeleteOptions) -> tuple[Obj | None, bool]:
    """Return the object marked as deleted and whether it is to be removed now.

    The object is `old` itself if it is marked already, and None if it needs no mark."""
    meta = dict(old["metadata"])
    obj = {**old, "metadata": meta}
    if strategy.begin_deletion(obj, ctx.timestamp):
        return obj, False
    grace = options.grace if options.grace is None or options.grace >= 0 else 1
    graceful = False
    current = meta.get("deletionGracePeriodSeconds")
    wanted = strategy.grace_period(old, grace)
    if wanted is not None and meta.get("deletionTimestamp"):
        if current:
            if grace is None or grace >= current:
                return old, False
            _shorten(ctx, meta, current, grace)
            graceful = True
    elif wanted is not None:
        meta["deletionTimestamp"] = format_time(ctx.now + timedelta(seconds=wanted))
        meta["deletionGracePeriodSeconds"] = wanted
        _next_generation(meta)
        graceful = True
    finalizers = _finalizers(strategy, meta, options)
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
        meta["deletionTimestamp"] = format_time(ctx.now)
    elif parse_time(meta["deletionTimestamp"]) > ctx.now:
        meta["deletionTimestamp"] = format_time(ctx.now)
    meta["deletionGracePeriodSeconds"] = 0
    strategy.mark_deleted(obj)
    return (old, False) if obj == old else (obj, False)


def _shorten(ctx: RequestContext, meta: Obj, current: int, grace: int) -> None:
    moment = parse_time(meta["deletionTimestamp"]) - timedelta(seconds=current) + timedelta(seconds=grace)
    if moment < ctx.now:
        moment = ctx.now
        if grace:
            grace = 1
    meta["deletionTimestamp"] = format_time(moment)
    meta["deletionGracePeriodSeconds"] = grace


def _next_generation(meta: Obj) -> None:
    if meta.get("generation"):
        meta["generation"] += 1


def _finalizers(strategy: Strategy, meta: Obj, options: DeleteOptions) -> list[str]:
    """Return the finalizers with those of the propagation policy."""
    have = meta.get("finalizers", [])
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
    others = [name for name in have if name not in (ORPHAN, FOREGROUND)]
    if orphan:
        others.append(ORPHAN)
    if foreground:
        others.append(FOREGROUND)
    return list(have) if set(others) == set(have) else others
