"""Ownership seen through the `scale` subresource: of the scaled object only the number of replicas counts."""

from __future__ import annotations

from collections.abc import Mapping

from setpoint.meta.apply.field_set import contains, difference, from_paths
from setpoint.meta.apply.managers import Entry, Managers, encode, id_of, make_entry, trusted, with_fields

SCALE_VERSION = "autoscaling/v1"
_REPLICAS_IN_SCALE = ("f:spec", "f:replicas")

ReplicasPaths = Mapping[str, tuple[str, ...] | None]
"""Path of the replicas in the scaled kind, by version; None if that version has no scale subresource."""


def to_scale(entries: list[Entry], paths: ReplicasPaths) -> list[Entry]:
    """Return the managedFields of a Scale, from those of the scaled object."""
    owners: Managers = {}
    for who, entry in trusted(entries).items():
        path = paths.get(entry["apiVersion"])
        if path is not None and contains(entry["fieldsV1"], path):
            owners[who] = make_entry(who, SCALE_VERSION, from_paths(_REPLICAS_IN_SCALE), entry.get("time"))
    return encode(owners)


def to_parent(entries: list[Entry], scale_entries: list[Entry], api_version: str, paths: ReplicasPaths) -> list[Entry]:
    """Return the managedFields of the scaled object after its Scale was written with `scale_entries`.

    As upstream, an updater that retained the replicas is recorded as their new owner in its old entry, without a time.
    """
    scaled = trusted(scale_entries)
    parents = trusted(entries)
    after: Managers = {}
    for who, entry in parents.items():
        version = entry["apiVersion"]
        if version not in paths:
            continue
        path = paths[version]
        if path is None or not contains(entry["fieldsV1"], path) or scaled.pop(who, None) is not None:
            after[who] = entry
            continue
        left = difference(entry["fieldsV1"], from_paths(path))
        if left:
            after[who] = with_fields(entry, left)
    path = paths[api_version]
    assert path is not None
    for who, entry in scaled.items():
        if contains(entry["fieldsV1"], _REPLICAS_IN_SCALE):
            time = parents[who].get("time") if who in parents else None
            after[id_of(entry)] = make_entry(who, api_version, from_paths(path), time)
    return encode(after)
