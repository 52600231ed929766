"""Attributes that volumes and claims share: where their class is named, how their access modes are shown."""

from __future__ import annotations

from collections.abc import Iterable

STORAGE_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_SHORT_MODES = {
    "ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP",
}  # fmt: skip


def access_modes_text(modes: Iterable[str] | None) -> str:
    present = frozenset(modes or ())
    return ",".join(short for mode, short in _SHORT_MODES.items() if mode in present)
