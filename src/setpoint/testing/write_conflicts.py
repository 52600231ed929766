"""Describe the writers that keep a cluster from settling: conflicts over a field, endless loops, and other writes."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import orjson

from setpoint.cluster.journal import Written

_MIN_ALTERNATIONS = 3
"""Alternating changes of a field by two writers, from this number on, are a conflict."""
_MOST_LINES, _MOST_FIELDS = 8, 2
_LONGEST_VALUE = 60
_IGNORED_FIELDS = {("metadata", "resourceVersion"), ("metadata", "managedFields"), ("metadata", "generation")}
_IDENTIFYING = ("name", "type", "uid", "key", "ip")
_ABSENT = object()

Path = tuple[str, ...]


class Change(NamedTuple):
    path: Path
    """The path of the changed field; empty if the object itself was created or deleted."""
    old: Any
    new: Any


class WriteConflict(NamedTuple):
    key: str
    path: Path
    values: tuple[tuple[str, Any], ...]
    """The writers, each with the value that it wrote last."""
    alternations: int


def diagnosis(written: Sequence[Written], operators: Collection[str] = ()) -> str:
    """Return a line for each active writer, the most active first.

    Operators under test come before the cluster's own controllers, which mostly react to an operator's changes.
    """
    changes = [(each, changes_of(each)) for each in written]
    conflicts = write_conflicts(changes)
    lines = [_Line({who for who, _ in each.values}, math.inf, _conflict_line(each, operators)) for each in conflicts]
    again = recreations(written)
    lines += [_Line({who}, count, _recreation_line(who, key, count, operators)) for (who, key), count in again.items()]
    explained = {(who, each.key) for each in conflicts for who, _ in each.values} | {*again}
    lines += _loop_lines(changes, explained, operators)
    lines.sort(key=lambda line: (line.who.isdisjoint(operators), -line.writes))
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES:] = [_Line(set(), 0, f"and {len(lines) - _MOST_LINES} more")]
    return "\n".join("  " + line.text for line in lines)


class _Line(NamedTuple):
    who: set[str]
    writes: float
    text: str


def _named(who: str, operators: Collection[str]) -> str:
    return f"operator {who}" if who in operators else who


# -- recreations ------------------------------------------------------------------------------------------------------


def recreations(written: Sequence[Written], at_least: int = _MIN_ALTERNATIONS) -> dict[tuple[str, str], int]:
    """Return how often each (writer, key) was deleted and created again by the same writer, at least `at_least`
    times."""
    deleted: Counter[tuple[str, str]] = Counter()
    created: Counter[tuple[str, str]] = Counter()
    for each in written:
        if each.now is None:
            deleted[each.who, each.key] += 1
        elif each.before is None:
            created[each.who, each.key] += 1
    both = {which: min(count, created[which]) for which, count in deleted.items()}
    return {which: count for which, count in both.items() if count >= at_least}


def _recreation_line(who: str, key: str, count: int, operators: Collection[str]) -> str:
    return f"{_named(who, operators)} deletes and recreates {shown(key)}, {_times(count)}"


# -- conflicts ---------------------------------------------------------------------------------------------------------


def write_conflicts(
    changes: Sequence[tuple[Written, Sequence[Change]]], at_least: int = _MIN_ALTERNATIONS
) -> list[WriteConflict]:
    """Return the conflicts, the worst first; for each object and set of writers one field only, as others tend to
    follow it."""
    histories: dict[tuple[str, Path], list[tuple[str, Any]]] = {}
    for written, changed in changes:
        for change in changed:
            histories.setdefault((written.key, change.path), []).append((written.who, change.new))
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
    values = [json.dumps(value, sort_keys=True) if value is not _ABSENT else "" for _, value in history]
    return any(value in values[:at] for at, value in enumerate(values) if at and value != values[at - 1])


def _priority(conflict: WriteConflict) -> tuple[bool, int]:
    """Return the sort key that prefers a field of the desired state to one of the status."""
    return conflict.path[:1] != ("status",), conflict.alternations


def _conflict_line(conflict: WriteConflict, operators: Collection[str]) -> str:
    if not conflict.path:
        values = ", ".join(
            f"{_named(who, operators)} {'deletes' if value is _ABSENT else 'creates'} it"
            for who, value in conflict.values
        )
        return f"fight over {shown(conflict.key)}: {values}; {conflict.alternations} times in turn"
    values = ", ".join(
        f"{_named(who, operators)} {'removes it' if value is _ABSENT else f'writes {_value(value)}'}"
        for who, value in conflict.values
    )
    field = _path(conflict.path)
    return f"fight over {field} of {shown(conflict.key)}: {values}; {conflict.alternations} times in turn"


# -- loops ------------------------------------------------------------------------------------------------------------


def _loop_lines(
    changes: Sequence[tuple[Written, Sequence[Change]]],
    explained: Collection[tuple[str, str]],
    operators: Collection[str],
) -> list[_Line]:
    """Describe the writes of the (writer, key) pairs that are not `explained` already."""
    updates: dict[tuple[str, str], list[Sequence[Change]]] = {}
    others: dict[tuple[str, str, str], list[str]] = {}
    for written, changed in changes:
        if (written.who, written.key) in explained:
            continue
        if written.before is not None and written.now is not None:
            updates.setdefault((written.who, written.key), []).append(changed)
        else:
            verb, folder = "creates" if written.before is None else "deletes", written.key.rpartition("/")[0]
            others.setdefault((written.who, verb, folder), []).append(written.key)
    lines = [
        _Line({who}, len(each), _update_line(_named(who, operators), key, each)) for (who, key), each in updates.items()
    ]
    lines += [
        _Line({who}, len(each), _other_line(_named(who, operators), verb, each))
        for (who, verb, _), each in others.items()
    ]
    return lines


def _update_line(who: str, key: str, all_changes: Sequence[Sequence[Change]]) -> str:
    often: Counter[Path] = Counter(change.path for changes in all_changes for change in changes)
    last = {change.path: change for changes in all_changes for change in changes}
    fields = [
        f"{_path(path)} from {_value(last[path].old)} to {_value(last[path].new)}"
        for path, _ in often.most_common(_MOST_FIELDS)
    ]
    return f"{who} writes {shown(key)}, {_times(len(all_changes))}: {', '.join(fields) or 'managedFields alone'}"


def _other_line(who: str, verb: str, keys: Sequence[str]) -> str:
    more = "" if len(keys) == 1 else f" and {len(keys) - 1} more of these"
    return f"{who} {verb} {shown(keys[-1])}{more}"


# -- changed fields ----------------------------------------------------------------------------------------------------


def changes_of(written: Written) -> list[Change]:
    if written.before is None or written.now is None:
        return [Change((), _there(written.before), _there(written.now))]
    return list(_differences((), orjson.loads(written.before), orjson.loads(written.now)))


def _there(value: bytes | None) -> Any:
    return _ABSENT if value is None else True


def _differences(path: Path, old: Any, new: Any) -> Iterator[Change]:
    if old == new or path in _IGNORED_FIELDS:
        return
    if isinstance(old, list) and isinstance(new, list):
        old, new = _by_name(old, new)
    if isinstance(old, dict) and isinstance(new, dict):
        for name in {**old, **new}:
            yield from _differences((*path, name), old.get(name, _ABSENT), new.get(name, _ABSENT))
    else:
        yield Change(path, old, new)


def _by_name(old: list[Any], new: list[Any]) -> tuple[Any, Any]:
    """Return lists whose items have an identifying field as maps by that field; other lists unchanged."""
    for field in _IDENTIFYING:
        named = [
            {f"[{field}={each[field]}]": each for each in items if isinstance(each, dict) and field in each}
            for items in (old, new)
        ]
        if len(named[0]) == len(old) and len(named[1]) == len(new):
            return named[0], named[1]
    return old, new


# -- formatting --------------------------------------------------------------------------------------------------------


def shown(key: str) -> str:
    """Format a store key: `deployments.apps default/web`."""
    group, plural, *rest = key.split("/")
    return f"{plural if group == 'core' else f'{plural}.{group}'} {'/'.join(rest)}"


def _path(path: Path) -> str:
    return ".".join(path).replace(".[", "[")


def _value(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    text = json.dumps(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
