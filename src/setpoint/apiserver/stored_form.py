"""Objects as they are stored: metadata in order, and who wrote them beside."""

from __future__ import annotations

import orjson

from setpoint.apiserver.watch_cache import Obj
from setpoint.meta.memoize import memoized

_META_ORDER = (
    "name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp",
    "deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "ownerReferences", "finalizers",
    "managedFields",
)  # fmt: skip


def stored_form(obj: Obj) -> Obj:
    """As it is stored: metadata in order, without resourceVersion."""
    put_in_order(obj)
    meta = {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}
    return {"metadata": meta} | {name: value for name, value in obj.items() if name != "metadata"}


def put_in_order(obj: Obj) -> None:
    """Metadata first, in upstream's order: the uid must come before anything a user can fill freely."""
    meta = obj["metadata"]
    ordered = {name: meta[name] for name in _META_ORDER if name in meta}
    obj["metadata"] = ordered


_LONGEST_AGENT = 256
"""Characters of a user agent that are stored with each revision."""


@memoized(maxsize=1024)
def cause(agent: str, user: str, verb: str) -> bytes:
    """Who did this; kept beside the revision."""
    return orjson.dumps({"user": user, "agent": agent[:_LONGEST_AGENT], "verb": verb})
