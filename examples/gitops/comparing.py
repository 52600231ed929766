"""Which fields of an object are not what they were."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from setpoint.meta.objects import Obj

_BOOKKEEPING = {"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid"}


def changed_fields(before: Obj, after: Obj) -> list[str]:
    """Paths such as `.spec.template.spec.containers[web].image`; the server's own fields do not count."""
    return list(_differences(_described(before), _described(after), ""))


def _described(obj: Obj) -> Obj:
    meta = {key: value for key, value in obj["metadata"].items() if key not in _BOOKKEEPING}
    return {**{key: value for key, value in obj.items() if key != "status"}, "metadata": meta}


def _differences(before: Any, after: Any, path: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from _differences(before.get(key), after.get(key), f"{path}.{key}")
    elif _have_names(before) and _have_names(after):
        was, now = _by_name(before), _by_name(after)
        for name in sorted(was.keys() | now.keys()):
            yield from _differences(was.get(name), now.get(name), f"{path}[{name}]")
    elif before != after:
        yield path


def _have_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) and "name" in each for each in value)


def _by_name(items: list[Obj]) -> dict[str, Obj]:
    return {str(each["name"]): each for each in items}
