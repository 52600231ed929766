"""The current and update revisions of a StatefulSet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from setpoint.client import Client
from setpoint.controllers.hashing import revision_hash
from setpoint.controllers.history import REVISIONS, History, data_of, has_template_of, number, revision_of
from setpoint.meta.errors import AlreadyExists

Obj = dict[str, Any]

_HASH_LABEL = "controller.kubernetes.io/hash"
_LONGEST_PREFIX = 223


class Revisions(NamedTuple):
    current: Obj
    update: Obj
    collisions: int

    @property
    def names(self) -> tuple[str, str]:
        return self.current["metadata"]["name"], self.update["metadata"]["name"]


async def revisions_of(client: Client, history: History, stateful_set: Obj, known: Sequence[Obj]) -> Revisions:
    """Return the revisions; `known` is sorted. If the template changed, create a revision, or renumber an equal old
    one."""
    status = stateful_set.get("status") or {}
    collisions = int(status.get("collisionCount") or 0)
    following = number(known[-1]) + 1 if known else 1
    equal = [revision for revision in known if has_template_of(stateful_set, revision)]
    if equal and equal[-1] is known[-1]:
        update = known[-1]
    elif equal:
        update = await history.renumber(equal[-1], following)
    else:
        update, collisions = await _create(client, stateful_set, following, collisions)
    named = (revision for revision in known if revision["metadata"]["name"] == status.get("currentRevision"))
    return Revisions(next(named, update), update, collisions)


async def _create(client: Client, stateful_set: Obj, count: int, collisions: int) -> tuple[Obj, int]:
    meta, data = stateful_set["metadata"], data_of(stateful_set)
    labels = dict((stateful_set["spec"]["template"].get("metadata") or {}).get("labels") or {})
    labels[_HASH_LABEL] = revision_hash(data, collisions)
    while True:
        name = f"{meta['name'][:_LONGEST_PREFIX]}-{revision_hash(data, collisions)}"
        try:
            return await client.create(revision_of(stateful_set, name, labels, count)), collisions
        except AlreadyExists:
            # From an earlier reconcile that the cache does not show yet, or a hash collision.
            there = await client.get(REVISIONS, name, meta["namespace"])
            if has_template_of(stateful_set, there):
                return there, collisions
            collisions += 1


def beyond_limit(
    stateful_set: Obj, known: Iterable[Obj], revisions: Revisions | None, in_use: Iterable[str]
) -> list[Obj]:
    """Return the oldest unreferenced revisions beyond the history limit."""
    live = {*in_use, *(revisions.names if revisions is not None else ())}
    unused = [revision for revision in known if revision["metadata"]["name"] not in live]
    limit = int(stateful_set["spec"].get("revisionHistoryLimit", 10))
    return unused[: max(0, len(unused) - limit)] if limit >= 0 else []
