"""Generation of strategic merge patches: from one document to another, and from the last applied, the new and the live
object (the three-way patch of client-side apply).

Written as the reference writes them: the same patch for the same documents, down to the directives that do nothing.
What a type does not know is merged as a map or replaced as a list.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from setpoint.meta.goformat import plain
from setpoint.meta.objects import Obj
from setpoint.meta.patch.element_order import index_key, interleave, partition, sorted_by
from setpoint.meta.patch.errors import PatchRefused, PatchUndecodable
from setpoint.meta.patch.strategic import (
    DELETE_LIST,
    DIRECTIVE,
    GONE,
    RETAIN_KEYS,
    SET_ORDER,
    element_type,
    whole_map,
    without_directives,
)
from setpoint.meta.schema import Shape, Type


class _Options(NamedTuple):
    additions: bool = True
    """Whether to include additions and changes."""
    deletions: bool = True
    set_order: bool = True
    retain_keys: bool = False


class _Known(NamedTuple):
    """The schema's information about a field."""

    type: Type | None = None
    strategy: str = ""
    retain_keys: bool = False
    merge_key: str = ""


def two_way_strategic(type_: Type | None, original: Obj, modified: Obj) -> Obj:
    """Return the patch that makes `modified` of `original`."""
    return _diff_maps(type_, original, modified, _Options())


def three_way_strategic(
    type_: Type | None, original: Obj, modified: Obj, current: Obj, *, overwrite: bool = True
) -> Obj:
    """Return the patch to `current` that sets what `modified` has and removes what only `original` had.

    Without `overwrite`, a field that was changed differently in the meantime is a conflict: raises PatchRefused."""
    delta = _diff_maps(type_, current, modified, _Options(deletions=False))
    gone = _diff_maps(type_, original, modified, _Options(additions=False))
    patch = _combine(type_, gone, delta)
    if not overwrite:
        changed = _diff_maps(type_, original, current, _Options(set_order=False))
        if _maps_conflict(type_, patch, changed):
            raise PatchRefused(conflict_text(patch, changed))
    return patch


def conflict_text(patch: Obj, changed: Obj) -> str:
    # Imported here, because YAML costs start-up time and conflicts are rare.
    from setpoint.meta.body import dump_yaml

    return (
        f"patch:\n{dump_yaml(patch).decode()}\nconflicts with changes made from original to current:\n"
        f"{dump_yaml(changed).decode()}\n"
    )


def same(left: Any, right: Any) -> bool:
    """Return whether two values are equal as JSON: 1, 1.0 and true are three values."""
    if type(left) is not type(right):
        return False
    if type(left) is dict:
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if type(left) is list:
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def _known(type_: Type | None, name: str) -> _Known:
    if type_ is None:
        return _Known()
    if type_.shape is not Shape.STRUCT:
        return _Known(type_.item) if type_.shape is Shape.MAP else _Known()
    field = type_.fields.get(name)
    if field is None:
        return _Known()
    strategy = "replace" if "replace" in field.patch_strategy else "merge" if "merge" in field.patch_strategy else ""
    return _Known(field.type, strategy, "retainKeys" in field.patch_strategy, field.merge_key)


# -- the difference of two documents ----------------------------------------------------------------------------------


def _diff_maps(type_: Type | None, original: Obj, modified: Obj, options: _Options) -> Obj:
    patch: Obj = {}
    for key, new in modified.items():
        if key not in original:
            if options.additions:
                patch[key] = new
            continue
        old = original[key]
        if key == DIRECTIVE:
            if type(old) is not str or type(new) is not str:
                raise PatchRefused(f"invalid value for special key: {DIRECTIVE}")
            if old != new:
                patch[key] = new
        elif type(old) is not type(new):
            if options.additions:
                patch[key] = new
        elif type(old) is dict:
            _diff_member(_known(type_, key), key, old, new, patch, options)
        elif type(old) is list:
            _diff_list_member(_known(type_, key), key, old, new, patch, options)
        elif old != new and options.additions:
            patch[key] = new
    if options.deletions:
        patch |= {key: None for key in original if key not in modified}
    retained = [key for key, new in modified.items() if new is not None] if options.retain_keys else []
    if retained and (patch or any(old is not None and key not in modified for key, old in original.items())):
        patch[RETAIN_KEYS] = sorted(retained)
    return patch


def _diff_member(known: _Known, key: str, old: Obj, new: Obj, patch: Obj, options: _Options) -> None:
    if known.strategy == "replace":
        if options.additions:
            patch[key] = new
        return
    found = _diff_maps(known.type, old, new, options._replace(retain_keys=known.retain_keys))
    if found:
        patch[key] = found


def _diff_list_member(known: _Known, key: str, old: list[Any], new: list[Any], patch: Obj, options: _Options) -> None:
    if known.strategy != "merge":
        if options.additions and not same(old, new):
            patch[key] = new
        return
    item = known.type.item if known.type is not None else None
    changes, deletions, order = _diff_lists(
        item, known.merge_key, old, new, options._replace(retain_keys=known.retain_keys)
    )
    if changes:
        patch[key] = changes
    if deletions:
        patch[f"{DELETE_LIST}/{key}"] = deletions
    if order:
        patch[f"{SET_ORDER}/{key}"] = order


def _diff_lists(
    item: Type | None, merge_key: str, original: list[Any], modified: list[Any], options: _Options
) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the changed items, the scalars to delete, and the order of the list afterwards."""
    if not original:
        return (modified if options.additions else []), [], []
    order: list[Any] = []
    if element_type(original, modified) is not dict:
        changes, deletions = _diff_scalars(original, modified, options)
        changes = sorted_by(changes, modified, None)
        # The reference sorts the original in place before it compares.
        differs = not same(sorted(original, key=plain), modified)
        if options.set_order and ((options.deletions and deletions) or (options.additions and differs)):
            order = modified
        return changes, deletions, order
    changes, deletions = _diff_items(item, merge_key, original, modified, options)
    changes = sorted_by(changes, modified, merge_key) + deletions
    moved = len(original) != len(modified) or any(
        not same(old[merge_key], new[merge_key]) for old, new in zip(original, modified)
    )
    if options.set_order and ((options.additions and (changes or moved)) or (options.deletions and changes)):
        order = [{merge_key: one[merge_key]} for one in modified]
    return changes, [], order


def _diff_scalars(original: list[Any], modified: list[Any], options: _Options) -> tuple[list[Any], list[Any]]:
    old, new = sorted(original, key=plain), sorted(modified, key=plain)
    added: list[Any] = []
    deleted: list[Any] = []
    at_old = at_new = 0
    while at_old < len(old) or at_new < len(new):
        left = plain(old[at_old]) if at_old < len(old) else None
        right = plain(new[at_new]) if at_new < len(new) else None
        if left == right:
            at_old, at_new = at_old + 1, at_new + 1
        elif left is None or (right is not None and left > right):
            if options.additions:
                added.append(new[at_new])
            at_new += 1
        else:
            if options.deletions:
                deleted.append(old[at_old])
            at_old += 1
    return added, list({index_key(one): one for one in deleted}.values())


def _diff_items(
    item: Type | None, merge_key: str, original: list[Any], modified: list[Any], options: _Options
) -> tuple[list[Any], list[Any]]:
    if not merge_key:
        raise PatchRefused("cannot merge lists without merge key")
    old, new = _by_key(original, merge_key), _by_key(modified, merge_key)
    changes: list[Any] = []
    deletions: list[Any] = []
    at_old = at_new = 0
    while at_old < len(old) or at_new < len(new):
        left = old[at_old][0] if at_old < len(old) else None
        right = new[at_new][0] if at_new < len(new) else None
        if left == right:
            wanted = new[at_new][1]
            found = _diff_maps(item, old[at_old][1], wanted, options)
            if found:
                changes.append({**found, merge_key: wanted[merge_key]})
            at_old, at_new = at_old + 1, at_new + 1
        elif left is None or (right is not None and left > right):
            if options.additions:
                changes.append(new[at_new][1])
            at_new += 1
        else:
            if options.deletions:
                deletions.append({merge_key: old[at_old][1][merge_key], DIRECTIVE: "delete"})
            at_old += 1
    return changes, deletions


def _by_key(items: list[Obj], merge_key: str) -> list[tuple[str, Obj]]:
    for item in items:
        if merge_key not in item:
            raise PatchRefused(f"map: {plain(item)} does not contain declared merge key: {merge_key}")
    return sorted(((plain(item[merge_key]), item) for item in items), key=lambda one: one[0])


# -- two patches made one ---------------------------------------------------------------------------------------------


def _combine(type_: Type | None, first: Obj, second: Obj) -> Obj:
    """Combine two patches: deletions, then additions. Nulls and directives are retained."""
    if DIRECTIVE in second:
        return whole_map(second)
    merged, rest = dict(first), dict(second)
    if RETAIN_KEYS in rest:
        keys = rest.pop(RETAIN_KEYS)
        if not same(merged.setdefault(RETAIN_KEYS, keys), keys):
            raise PatchRefused(
                f"{plain(merged[RETAIN_KEYS])} and {plain(keys)} are not deep equal: this may happen when calculating "
                "the 3-way diff patch"
            )
    for name in [name for name in rest if name.startswith(SET_ORDER)]:
        order = rest.pop(name)
        if not same(merged.setdefault(name, order), order):
            raise PatchUndecodable("invalid patch format of setElementOrder list")
        _combine_ordered(type_, name.partition("/")[2], order, merged, rest)
    for key, new in rest.items():
        if key.startswith(DELETE_LIST):
            merged[key] = new
            continue
        old = merged.get(key, GONE)
        if new is None or old is GONE or type(old) is not type(new):
            combined = without_directives(new)
        elif type(new) is dict:
            known = _known(type_, key)
            combined = new if known.strategy == "replace" else _combine(known.type, old, new)
        elif type(new) is list:
            combined = _combine_lists(_known(type_, key), old, new)
        else:
            combined = new
        if combined is GONE:
            merged.pop(key, None)
        else:
            merged[key] = combined
    return merged


def _combine_ordered(type_: Type | None, key: str, order: list[Any], merged: Obj, rest: Obj) -> None:
    """Merge a list that has an element order beside it, in that order, and remove it from `rest`."""
    known = _known(type_, key)
    first, second = merged.get(key), rest.get(key)
    if first is None and second is None:
        return
    if second is None:
        items: list[Any] = first or []
    elif first is None:
        items = without_directives(second)
    else:
        items = _combine_lists(known, first, second)
    ours, theirs = partition(items, order, known.merge_key)
    merged[key] = interleave(ours, theirs, order, first or [], known.merge_key or None)
    rest.pop(key, None)


def _combine_lists(known: _Known, first: list[Any], second: list[Any]) -> list[Any]:
    if known.strategy != "merge" or not (first or second):
        return second if known.strategy != "merge" else first
    if element_type(first, second) is not dict:
        items = list({index_key(one): one for one in (*first, *second)}.values())
        ours, theirs = partition(items, second, "")
        return interleave(ours, theirs, second, first, None)
    item = known.type.item if known.type is not None else None
    items = list(first)
    for change in second:
        at = next((at for at, one in enumerate(items) if same(one.get(known.merge_key), change[known.merge_key])), None)
        if at is None:
            items.append(change)
        else:
            items[at] = _combine(item, items[at], change)
    ours, theirs = partition(items, second, known.merge_key)
    return interleave(ours, theirs, second, first, known.merge_key)


# -- changes made differently -----------------------------------------------------------------------------------------


def _maps_conflict(type_: Type | None, left: Obj, right: Obj) -> bool:
    return any(
        _values_conflict(_known(type_, key), value, right[key])
        for key, value in left.items()
        if key not in (DIRECTIVE, RETAIN_KEYS) and key in right
    )


def _values_conflict(known: _Known, left: Any, right: Any) -> bool:
    if type(left) is dict:
        if type(right) is not dict or left.get(DIRECTIVE) != right.get(DIRECTIVE):
            return True
        return known.strategy != "replace" and _maps_conflict(known.type, left, right)
    if type(left) is list:
        return type(right) is not list or _lists_conflict(known, left, right)
    return not same(left, right)


def _lists_conflict(known: _Known, left: list[Any], right: list[Any]) -> bool:
    of_maps = element_type(left, right) is dict
    item = _Known(known.type.item if known.type is not None else None)
    if known.strategy == "merge":
        if not of_maps:
            return False
        theirs = {plain(one[known.merge_key]): one for one in right}
        return any(
            _values_conflict(item, one, theirs[plain(one[known.merge_key])])
            for one in left
            if plain(one[known.merge_key]) in theirs
        )
    if len(left) != len(right):
        return True
    if not of_maps:
        left, right = sorted(left, key=plain), sorted(right, key=plain)
    return any(_values_conflict(item, mine, other) for mine, other in zip(left, right))
