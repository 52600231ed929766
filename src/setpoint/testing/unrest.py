"""Who goes on writing what, in words: fights over a field, loops that never end, and the rest."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import orjson

from setpoint.cluster.journal import Written

_TURNS = 3
"""Two that change a field in turns, more often than this, fight over it."""
_MOST_LINES, _MOST_FIELDS = 8, 2
_LONGEST_VALUE = 60
_WITHOUT_MEANING = {("metadata", "resourceVersion"), ("metadata", "managedFields"), ("metadata", "generation")}
_IDENTIFYING = ("name", "type", "uid", "key", "ip")
_NOTHING = object()

Path = tuple[str, ...]


class Change(NamedTuple):
    path: Path
    """Empty: the object itself came or went."""
    old: Any
    new: Any


class Fight(NamedTuple):
    key: str
    path: Path
    wants: tuple[tuple[str, Any], ...]
    """Who, and what they last made of it."""
    turns: int


def diagnosis(written: Sequence[Written], operators: Collection[str] = ()) -> str:
    """Return a line for each culprit, the worst first.

    Operators under test come before the cluster's own controllers: those mostly react to what an operator does."""
    changes = [(each, changes_of(each)) for each in written]
    fought = fights(changes)
    lines = [_Line({who for who, _ in each.wants}, math.inf, _fight_line(each, operators)) for each in fought]
    again = recreations(written)
    lines += [_Line({who}, count, _recreation_line(who, key, count, operators)) for (who, key), count in again.items()]
    explained = {(who, each.key) for each in fought for who, _ in each.wants} | {*again}
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


def recreations(written: Sequence[Written], at_least: int = _TURNS) -> dict[tuple[str, str], int]:
    """Return how often each (writer, key) was deleted and created again by that same writer, if `at_least` so often."""
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


# -- fights -----------------------------------------------------------------------------------------------------------


def fights(changes: Sequence[tuple[Written, Sequence[Change]]], turns: int = _TURNS) -> list[Fight]:
    """The worst first; of each object and each pair the first field only: the others tend to follow it."""
    histories: dict[tuple[str, Path], list[tuple[str, Any]]] = {}
    for written, changed in changes:
        for change in changed:
            histories.setdefault((written.key, change.path), []).append((written.who, change.new))
    found: dict[tuple[str, frozenset[str]], Fight] = {}
    for (key, path), history in histories.items():
        in_turn = sum(one[0] != other[0] for one, other in pairwise(history))
        if in_turn < turns or not _comes_back(history):
            continue
        wants = dict(history)
        fight = Fight(key, path, tuple(wants.items()), in_turn)
        known = found.get((key, frozenset(wants)))
        if known is None or _worth(fight) > _worth(known):
            found[(key, frozenset(wants))] = fight
    return sorted(found.values(), key=lambda each: -each.turns)


def _comes_back(history: Sequence[tuple[str, Any]]) -> bool:
    """Whether somebody undoes what another did: counters that several count up are no fight."""
    values = [json.dumps(value, sort_keys=True) if value is not _NOTHING else "" for _, value in history]
    return any(value in values[:at] for at, value in enumerate(values) if at and value != values[at - 1])


def _worth(fight: Fight) -> tuple[bool, int]:
    """What was asked for comes before what was found."""
    return fight.path[:1] != ("status",), fight.turns


def _fight_line(fight: Fight, operators: Collection[str]) -> str:
    if not fight.path:
        wants = ", ".join(
            f"{_named(who, operators)} {'deletes' if value is _NOTHING else 'creates'} it" for who, value in fight.wants
        )
        return f"fight over {shown(fight.key)}: {wants}; {fight.turns} times in turn"
    wants = ", ".join(
        f"{_named(who, operators)} {'removes it' if value is _NOTHING else f'writes {_value(value)}'}"
        for who, value in fight.wants
    )
    return f"fight over {_path(fight.path)} of {shown(fight.key)}: {wants}; {fight.turns} times in turn"


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


# -- what a write changed ---------------------------------------------------------------------------------------------


def changes_of(written: Written) -> list[Change]:
    if written.before is None or written.now is None:
        return [Change((), _there(written.before), _there(written.now))]
    return list(_differences((), orjson.loads(written.before), orjson.loads(written.now)))


def _there(value: bytes | None) -> Any:
    return _NOTHING if value is None else True


def _differences(path: Path, old: Any, new: Any) -> Iterator[Change]:
    if old == new or path in _WITHOUT_MEANING:
        return
    if isinstance(old, list) and isinstance(new, list):
        old, new = _by_name(old, new)
    if isinstance(old, dict) and isinstance(new, dict):
        for name in {**old, **new}:
            yield from _differences((*path, name), old.get(name, _NOTHING), new.get(name, _NOTHING))
    else:
        yield Change(path, old, new)


def _by_name(old: list[Any], new: list[Any]) -> tuple[Any, Any]:
    """Lists of things that have names, as maps; others as they are."""
    for field in _IDENTIFYING:
        named = [
            {f"[{field}={each[field]}]": each for each in items if isinstance(each, dict) and field in each}
            for items in (old, new)
        ]
        if len(named[0]) == len(old) and len(named[1]) == len(new):
            return named[0], named[1]
    return old, new


# -- words ------------------------------------------------------------------------------------------------------------


def shown(key: str) -> str:
    """`deployments.apps default/web` for the key of one."""
    group, plural, *rest = key.split("/")
    return f"{plural if group == 'core' else f'{plural}.{group}'} {'/'.join(rest)}"


def _path(path: Path) -> str:
    return ".".join(path).replace(".[", "[")


def _value(value: Any) -> str:
    if value is _NOTHING:
        return "nothing"
    text = json.dumps(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
