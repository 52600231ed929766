"""ControllerRevisions: the numbered templates of a StatefulSet or DaemonSet.

A revision holds a patch that restores the template; `kubectl rollout undo` applies it unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import orjson

from setpoint.client import Client
from setpoint.client.interface import ResourceRef
from setpoint.client.resources import builtin
from setpoint.controllers.ownership import Claim, controller_reference
from setpoint.meta.errors import NotFound
from setpoint.meta.selectors import from_label_selector
from setpoint.reconcile import Informer

Obj = dict[str, Any]

REVISIONS = builtin("controllerrevisions", "apps")
REVISION_LABEL = "controller-revision-hash"
"""The Pod label that holds the revision of its template."""


def data_of(owner: Obj) -> Obj:
    return {"spec": {"template": {**owner["spec"]["template"], "$patch": "replace"}}}


def template_in(revision: Obj) -> Obj:
    template: Obj = (revision.get("data") or {}).get("spec", {}).get("template") or {}
    return {key: value for key, value in template.items() if key != "$patch"}


def has_template_of(owner: Obj, revision: Obj) -> bool:
    return bool(revision.get("data") == data_of(owner))


def number(revision: Obj) -> int:
    return int(revision.get("revision", 0))


def in_order(revisions: Iterable[Obj]) -> list[Obj]:
    """Sort by number, and by age where numbers are equal."""
    return sorted(
        revisions,
        key=lambda each: (number(each), each["metadata"].get("creationTimestamp", ""), each["metadata"]["name"]),
    )


def revision_of(owner: Obj, name: str, labels: dict[str, str], count: int) -> Obj:
    meta: Obj = {
        "name": name,
        "namespace": owner["metadata"]["namespace"],
        "labels": labels,
        "ownerReferences": [controller_reference(owner)],
    }
    if owner["metadata"].get("annotations"):
        meta["annotations"] = owner["metadata"]["annotations"]
    # In the order of the keys: clients compare it byte by byte with a template of their own.
    data = orjson.loads(orjson.dumps(data_of(owner), option=orjson.OPT_SORT_KEYS))
    return {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": meta, "data": data, "revision": count}


class History:
    """The revisions of the owners of one resource."""

    def __init__(self, client: Client, resource: ResourceRef, revisions: Informer) -> None:
        self._client = client
        self._resource = resource
        self._revisions = revisions

    async def of(self, owner: Obj) -> list[Obj]:
        """Adopt and release revisions, then return those of the owner in order."""
        meta = owner["metadata"]
        selector = from_label_selector(owner["spec"]["selector"])
        claim = Claim(self._client, self._resource, owner, REVISIONS, selector)
        found = [*self._revisions.controlled_by(meta["uid"]), *self._revisions.orphans(meta["namespace"])]
        return in_order(await claim.claimed(found))

    async def renumber(self, revision: Obj, count: int) -> Obj:
        """Make a revision the newest again after a rollback to it."""
        if number(revision) == count:
            return revision
        return await self._client.update({**revision, "revision": count})

    async def drop(self, revision: Obj) -> None:
        meta = revision["metadata"]
        with suppress(NotFound):
            await self._client.delete(REVISIONS, meta["name"], meta["namespace"], uid=meta["uid"])
