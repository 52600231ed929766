"""Generation of JSON patches: the operations that turn one document into another."""

from __future__ import annotations

from typing import Any

from setpoint.meta.patch.strategic_diff import same

Operation = dict[str, Any]


def json_patch_between(old: Any, new: Any) -> list[Operation]:
    """Return the patch that makes `new` of `old`; empty if they are the same as JSON."""
    operations: list[Operation] = []
    _diff(old, new, "", operations)
    return operations


def _diff(old: Any, new: Any, path: str, found: list[Operation]) -> None:
    if type(old) is dict and type(new) is dict:
        for key in old:
            if key not in new:
                found.append({"op": "remove", "path": _below(path, key)})
        for key, value in new.items():
            if key in old:
                _diff(old[key], value, _below(path, key), found)
            else:
                found.append({"op": "add", "path": _below(path, key), "value": value})
    elif type(old) is list and type(new) is list:
        _diff_lists(old, new, path, found)
    elif not same(old, new):
        found.append({"op": "replace", "path": path, "value": new})


def _diff_lists(old: list[Any], new: list[Any], path: str, found: list[Operation]) -> None:
    """Diff two lists: equal elements at both ends stay, those between are replaced in place, then added or removed."""
    start, shorter = 0, min(len(old), len(new))
    while start < shorter and same(old[start], new[start]):
        start += 1
    end = 0
    while end < shorter - start and same(old[-1 - end], new[-1 - end]):
        end += 1
    both = shorter - end
    for at in range(start, both):
        _diff(old[at], new[at], f"{path}/{at}", found)
    for at in range(len(old) - end - 1, both - 1, -1):
        found.append({"op": "remove", "path": f"{path}/{at}"})
    for at in range(both, len(new) - end):
        found.append({"op": "add", "path": f"{path}/{at}", "value": new[at]})


def _below(path: str, key: str) -> str:
    return f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
