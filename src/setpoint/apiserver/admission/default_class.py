"""Which of several classes is the default: the newest of those that say so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from setpoint.apiserver.admission.plugin import Obj


def default_class(classes: Iterable[Obj], annotations: Sequence[str]) -> str:
    """Its name; empty: there is none."""
    names: list[tuple[str, str]] = [
        (found["metadata"].get("creationTimestamp", ""), found["metadata"]["name"])
        for found in classes
        if any((found["metadata"].get("annotations") or {}).get(key) == "true" for key in annotations)
    ]
    if not names:
        return ""
    newest = max(made for made, _ in names)
    return min(name for made, name in names if made == newest)
