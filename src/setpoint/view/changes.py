"""The fields that differ between two states of an object, and their short form for people.

Items of a list are compared by their identifying field (the name of a container, the type of a condition) if they all
have one; other lists are compared as a whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from setpoint.meta.objects import ObjView

Path = tuple[str, ...]
"""The names of the fields on the way to a field; an item of a list is `[name=web]`."""


class _Absent:
    """The value of a field that does not exist."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()
_IGNORED_FIELDS = {("metadata", "resourceVersion"), ("metadata", "managedFields"), ("metadata", "generation")}
_IDENTIFYING = ("name", "type", "uid", "key", "ip")
_CONDITIONS = ("status", "conditions")
_EXPANDED: dict[Path, Any] = {
    _CONDITIONS: [],
    ("metadata", "labels"): {},
    ("metadata", "annotations"): {},
    ("status",): {},
    ("data",): {},
    ("spec", "taints"): [],
    ("metadata", "ownerReferences"): [],
}
"""Fields whose parts are compared also if one of the objects lacks them, with their empty values."""
_MIN_ALTERNATIONS = 3
"""Alternating changes of a field by two writers, from this number on, are a conflict."""
_MAX_VALUE_LENGTH = 60
_MAX_SHORT_VALUE = 48
_ROUTINE = ("lastTransitionTime", "lastUpdateTime", "lastProbeTime", "lastHeartbeatTime", "observedGeneration")
"""Last names of fields that change along with others and say nothing on their own."""


class FieldChange(NamedTuple):
    path: Path
    """The path of the changed field; empty if the object itself was created or deleted."""
    old: Any
    new: Any


def changes(before: ObjView | None, now: ObjView | None) -> list[FieldChange]:
    """Return the changed fields in the order of the objects, without managedFields, resourceVersion and generation.

    An object that is created or deleted (None before or now) is one change with an empty path."""
    if before is None or now is None:
        return [FieldChange((), ABSENT if before is None else True, ABSENT if now is None else True)]
    return list(_differences((), before, now))


def _differences(path: Path, old: Any, new: Any) -> Iterator[FieldChange]:
    if old == new or path in _IGNORED_FIELDS:
        return
    if path in _EXPANDED:
        old, new = (_EXPANDED[path] if each is ABSENT or each is None else each for each in (old, new))
    if isinstance(old, list) and isinstance(new, list):
        old, new = _by_identity(old, new)
    if isinstance(old, dict) and isinstance(new, dict):
        for name in {**old, **new}:
            yield from _differences((*path, name), old.get(name, ABSENT), new.get(name, ABSENT))
    else:
        yield FieldChange(path, old, new)


def _by_identity(old: list[Any], new: list[Any]) -> tuple[Any, Any]:
    """Return lists whose items have an identifying field as maps by that field; other lists unchanged."""
    for field in _IDENTIFYING:
        named = [
            {f"[{field}={each[field]}]": each for each in items if isinstance(each, dict) and field in each}
            for items in (old, new)
        ]
        if len(named[0]) == len(old) and len(named[1]) == len(new):
            return named[0], named[1]
    return old, new


# -- conflicts ---------------------------------------------------------------------------------------------------------


class WriteConflict(NamedTuple):
    key: str
    path: Path
    values: tuple[tuple[str, Any], ...]
    """The writers, each with the value that it wrote last."""
    alternations: int


def write_conflicts(
    written: Iterable[tuple[str, str, Sequence[FieldChange]]], at_least: int = _MIN_ALTERNATIONS
) -> list[WriteConflict]:
    """Return the conflicts among the writes (key, writer, changes), the worst first.

    There is one for each object and set of writers: other fields tend to follow it."""
    histories: dict[tuple[str, Path], list[tuple[str, Any]]] = {}
    for key, writer, changed in written:
        for change in changed:
            histories.setdefault((key, change.path), []).append((writer, change.new))
    found: dict[tuple[str, frozenset[str]], WriteConflict] = {}
    for (key, path), history in histories.items():
        alternations = sum(one[0] != other[0] for one, other in pairwise(history))
        if alternations < at_least or not _reverts(history):
            continue
        values = dict(history)
        conflict = WriteConflict(key, path, tuple(values.items()), alternations)
        known = found.get((key, frozenset(values)))
        if known is None or _priority(conflict) > _priority(known):
            found[(key, frozenset(values))] = conflict
    return sorted(found.values(), key=lambda each: -each.alternations)


def _reverts(history: Sequence[tuple[str, Any]]) -> bool:
    """Return whether a value is written again after another replaced it: counters that several writers increment do not
    conflict."""
    values = [json.dumps(value, sort_keys=True) if value is not ABSENT else "" for _, value in history]
    return any(value in values[:at] for at, value in enumerate(values) if at and value != values[at - 1])


def _priority(conflict: WriteConflict) -> tuple[bool, int]:
    """Return the sort key that prefers a field of the desired state to one of the status."""
    return conflict.path[:1] != ("status",), conflict.alternations


# -- text --------------------------------------------------------------------------------------------------------------


def path_text(path: Path) -> str:
    """Return the full path: `spec.containers[name=web].image`."""
    return ".".join(path).replace(".[", "[")


def value_text(value: Any) -> str:
    """Return a value as JSON of limited length."""
    if value is ABSENT:
        return "nothing"
    text = json.dumps(value)
    return text if len(text) <= _MAX_VALUE_LENGTH else text[: _MAX_VALUE_LENGTH - 3] + "..."


def summary(changed: Sequence[FieldChange], most: int = 3) -> str:
    """Return the changes on one line: those of the desired state first, and at most `most` of them.

    `spec.replicas 4 -> 3`, `image nginx:1.27 -> nginx:1.28`, `Ready False -> True`"""
    texts = short_texts(changed)
    more = len(texts) - most
    if more == 1:
        most, more = most + 1, 0
    return ", ".join(texts[:most]) + (f" and {more} more fields" if more > 0 else "")


def short_texts(changed: Iterable[FieldChange]) -> list[str]:
    """Return a short text for each change, the desired state first. Times and other fields that accompany a change are
    left out unless there is nothing else."""
    found = [each for each in changed if each.path]
    if any(_requests_deletion(each) for each in found):
        found = [each for each in found if each.path != ("metadata", "deletionGracePeriodSeconds")]
    has_condition = any(_condition_part(each.path) in ("", "status") for each in found)
    chosen = [
        each
        for each in found
        if each.path[-1] not in _ROUTINE
        and "uncountedTerminatedPods" not in each.path
        and (_condition_part(each.path) in (None, "", "status") or not has_condition)
        and not _is_time(each)
        and not is_bookkeeping(each)
    ]
    chosen = chosen or found
    images = sum(_is_image(each.path) for each in chosen)
    ordered = sorted(chosen, key=_place)
    return list(dict.fromkeys(short_text(each, several_images=images > 1) for each in ordered))


_ORDER = {"spec": 0, "data": 0, "stringData": 0, "metadata": 2, "status": 3}
_FIRST_CONDITIONS = ("Ready", "Available", "Complete", "Failed", "Progressing")


def _place(change: FieldChange) -> tuple[int, int]:
    """Return the sort key of a change: the desired state first, in the status the usual conditions and the phase."""
    within = len(_FIRST_CONDITIONS) + 1
    if _condition_part(change.path) is not None:
        name = _item(change.path[2])
        within = _FIRST_CONDITIONS.index(name) if name in _FIRST_CONDITIONS else within
    elif change.path == ("status", "phase"):
        within -= 1
    return _ORDER.get(change.path[0], 1), within


def short_text(change: FieldChange, *, several_images: bool = False) -> str:
    """Return one change in a short form."""
    if _requests_deletion(change):
        return "deletion requested"
    name, old, new = short_path(change.path, several_images=several_images), change.old, change.new
    if _condition_part(change.path) == "":
        old, new = ((each if each is ABSENT else each.get("status", ABSENT)) for each in (old, new))
    was, is_ = old not in (ABSENT, None), new not in (ABSENT, None)
    if any(_is_large(each) for each in (old, new)):
        return f"{name} {'changed' if was and is_ else 'added' if is_ else 'removed'}"
    if not was:
        return f"{name} set to {short_value(new)}"
    if not is_:
        return f"{name} removed (was {short_value(old)})"
    return f"{name} {short_value(old)} -> {short_value(new)}"


def _requests_deletion(change: FieldChange) -> bool:
    """Return whether the object is being deleted since this change."""
    return change.path == ("metadata", "deletionTimestamp") and change.old in (ABSENT, None)


def _is_large(value: Any) -> bool:
    """Return whether the value is a structure too large for one line."""
    return isinstance(value, dict | list) and len(json.dumps(value)) > _MAX_SHORT_VALUE


def short_path(path: Path, *, several_images: bool = False) -> str:
    """Return a path in the short form: a container's image and a condition by their own names."""
    if (part := _condition_part(path)) is not None:
        name = _item(path[2])
        return name if part in ("", "status") else f"{name} {part}"
    if _is_image(path):
        return f"image of {_item(path[-2])}" if several_images else "image"
    return "".join(f"[{_item(each)}]" if each.startswith("[") else f".{each}" for each in path).removeprefix(".")


def short_value(value: Any) -> str:
    """Return a value without quotes where none are needed, and of limited length."""
    if value is ABSENT or value is None:
        return "nothing"
    plain = isinstance(value, str) and value and value.isprintable() and not set(value) & set(" \"'")
    text = value if plain else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= _MAX_SHORT_VALUE else text[: _MAX_SHORT_VALUE - 3] + "..."


def _condition_part(path: Path) -> str | None:
    """Return the field of a condition, empty for a whole condition; None if the path is not that of a condition."""
    if path[:2] != _CONDITIONS or len(path) < 3 or not path[2].startswith("["):
        return None
    return ".".join(path[3:])


def _item(segment: str) -> str:
    """Return the identity in `[name=web]`."""
    return segment[1:-1].partition("=")[2]


def _is_image(path: Path) -> bool:
    return len(path) > 2 and path[-1] == "image" and path[-2].startswith("[") and path[-3].endswith("ontainers")


def _is_time(change: FieldChange) -> bool:
    """Return whether both values are timestamps, or one is and the other is absent in the status."""
    name = change.path[-1]
    return change.path[0] == "status" and (name.endswith(("Time", "At")))


def is_bookkeeping(change: FieldChange) -> bool:
    """Return whether the field is an annotation in which a component keeps data for itself."""
    path = change.path
    return path[:2] == ("metadata", "annotations") and len(path) == 3 and "kubernetes.io/" in path[2]


def has_path(change: FieldChange, wanted: Collection[str]) -> bool:
    """Return whether the change concerns the field whose short or full path is in `wanted`, or something in it."""
    for path in (path_text(change.path), short_path(change.path)):
        for each in wanted:
            if path == each or path.startswith((f"{each}.", f"{each}[")):
                return True
            if each.startswith((f"{path}.", f"{path}[")):
                return True  # a container of the field was added or removed as a whole
    return False


_SEGMENT = re.compile(r"([^.\[\]]{1,253})|\[([^\]]{1,253})\]")


def value_at(obj: ObjView, field: str) -> Any:
    """Return the value of a field: `spec.replicas`, `spec.containers[0].image`, `spec.containers[name=web].image`, or
    `image` for the image of the only container; ABSENT if the object has none."""
    if field == "image":
        spec = obj.get("spec") or {}
        template = (spec.get("template") or {}).get("spec") or spec
        images = {each.get("image") for each in template.get("containers") or ()}
        return images.pop() if len(images) == 1 else ABSENT
    value: Any = obj
    for name, item in _SEGMENT.findall(field):
        if name and isinstance(value, Mapping):
            value = value.get(name, ABSENT)
        elif item and isinstance(value, list):
            value = _find_item(value, item)
        else:
            return ABSENT
        if value is ABSENT:
            return ABSENT
    return value


def _find_item(items: list[Any], wanted: str) -> Any:
    if wanted.isdigit():
        return items[int(wanted)] if len(wanted) < 6 and int(wanted) < len(items) else ABSENT
    field, equals, value = wanted.partition("=")
    for item in items:
        if isinstance(item, Mapping):
            fields = (field,) if equals else _IDENTIFYING
            if any(item.get(each) == (value if equals else wanted) for each in fields):
                return item
    return ABSENT
