"""ControllerRevisions: the numbered templates of a StatefulSet or DaemonSet, and the hashes that name templates.

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
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.selectors import from_label_selector
from setpoint.reconcile import Informer

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of hashes: no vowels, and none that are easily confused."""
_FNV_OFFSET, _FNV_PRIME, _FNV_MASK = 0x811C9DC5, 0x01000193, 0xFFFFFFFF
_ESCAPED = {"&": "\\u0026", "<": "\\u003c", ">": "\\u003e", "\u2028": "\\u2028", "\u2029": "\\u2029"}
REVISIONS = builtin("controllerrevisions", "apps")
REVISION_LABEL = "controller-revision-hash"
"""The Pod label that holds the revision of its template."""


def canonical_json(value: Any) -> bytes:
    """Encode with sorted keys and upstream's escapes, which yields the same bytes as upstream."""
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    for character, escape in _ESCAPED.items():
        text = text.replace(character, escape)
    return text.encode()


def template_hash(template: ObjView, collisions: int | None) -> str:
    """Hash a Pod template; `collisions` varies the hash when an earlier one was in use."""
    text = canonical_json(template)
    if collisions is not None:
        text += collisions.to_bytes(8, "little")
    value = _FNV_OFFSET
    for byte in text:
        value = ((value ^ byte) * _FNV_PRIME) & _FNV_MASK
    return _safe(value)


def revision_hash(data: ObjView, collisions: int) -> str:
    value = _FNV_OFFSET
    for byte in canonical_json(data) + str(collisions).encode():
        value = ((value * _FNV_PRIME) & _FNV_MASK) ^ byte
    return _safe(value)


def _safe(number: int) -> str:
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(number))


# -- revisions --------------------------------------------------------------------------------------------------------


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

    def __init__(self, client: Client, resource: ResourceRef, revisions: Informer[Obj]) -> None:
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
