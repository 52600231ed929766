"""A write that changes nothing but the times in managedFields is no write."""

from __future__ import annotations

from typing import Any

Obj = dict[str, Any]


def keep_times(live: Obj, new: Obj) -> Obj:
    """Return `new` with the times of `live` in its managedFields if it differs from `live` in those times only.

    For a finished object, after defaults and admission; a caller then finds it equal to `live`.
    """
    old_entries = live["metadata"].get("managedFields") or []
    entries = new["metadata"].get("managedFields") or []
    if not entries or len(entries) != len(old_entries) or entries == old_entries:
        return new
    if any(_timeless(entry) != _timeless(old) for entry, old in zip(entries, old_entries)):
        return new
    settled = {**new, "metadata": {**new["metadata"], "managedFields": old_entries}}
    return settled if settled == live else new


def _timeless(entry: Obj) -> Obj:
    return {name: value for name, value in entry.items() if name != "time"}
