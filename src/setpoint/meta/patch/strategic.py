"""Strategic merge patch: a merge patch that knows from the type which lists merge, by which key, and which replace.

Directives in the patch: `$patch` (replace, delete) in a map or list item, `$retainKeys` in a map,
`$setElementOrder/<list>` and `$deleteFromPrimitiveList/<list>` beside a list. Parts that are new to the document are
added as given, without nulls and deletions: directives deeper inside them stay, and the decoder reports them.
"""

from __future__ import annotations

from operator import is_
from typing import Any

from setpoint.meta.goformat import kind_of, plain, quote, type_name
from setpoint.meta.patch.element_order import index_key, interleave, partition
from setpoint.meta.patch.errors import PatchRefused, PatchUndecodable, PatchUnprocessable
from setpoint.meta.schema import Field, Shape, Type

DIRECTIVE = "$patch"
RETAIN_KEYS = "$retainKeys"
SET_ORDER = "$setElementOrder"
DELETE_LIST = "$deleteFromPrimitiveList"

GONE = object()
"""Marks a value that was deleted completely."""


def apply_strategic(type_: Type, doc: dict[str, Any], patch: Any) -> dict[str, Any]:
    """Return the patched document; `doc` itself if the patch changes nothing. A patch of null changes nothing."""
    if patch is None:
        return doc
    if type(patch) is not dict:
        raise PatchUndecodable(
            f"json: cannot unmarshal {kind_of(patch)} into Go value of type map[string]interface {{}}"
        )
    return _merge_map(type_, doc, patch)


def _merge_map(type_: Type | None, doc: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    if DIRECTIVE in patch:
        return whole_map(patch)
    merged = doc
    for key in patch:
        if key[:1] == "$":
            merged = _retain_keys(doc, patch)
            merged, patch = _ordered_lists(type_, merged, patch)
            break
    for name, value in patch.items():
        key, is_delete_list = name, False
        if name.startswith(DELETE_LIST):
            key, is_delete_list = _listed_field(name, DELETE_LIST), True
        current = merged.get(key, GONE)
        if value is None:
            if current is not GONE:
                merged = _without(merged, doc, key)
            continue
        if current is GONE or type(current) is not type(value):
            if is_delete_list:
                continue
            new = _fresh(value)
            if new is GONE:
                if current is not GONE:
                    merged = _without(merged, doc, key)
                continue
        elif type(value) is dict:
            field = _field(type_, key)
            new = value if "replace" in field.patch_strategy else _merge_map(field.type, current, value)
        elif type(value) is list:
            new = _merge_list_field(_list_field(type_, key), current, value, is_delete_list)
        elif value == current:
            continue
        else:
            new = value
        if new is not current:
            if merged is doc:
                merged = dict(doc)
            merged[key] = new
    return merged


def _without(merged: dict[str, Any], doc: dict[str, Any], key: str) -> dict[str, Any]:
    if merged is doc:
        merged = dict(doc)
    del merged[key]
    return merged


def whole_map(patch: dict[str, Any]) -> dict[str, Any]:
    directive = patch[DIRECTIVE]
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != DIRECTIVE}
    if directive == "delete":
        return {}
    raise PatchRefused(_bad_directive(patch))


def _bad_directive(patch: dict[str, Any]) -> str:
    directive = patch[DIRECTIVE]
    if type(directive) is not str:
        # Go's %s of something that is no string.
        name = "<nil>" if directive is None else f"{type_name(directive)}={plain(directive)}"
        return f"unknown patch type: %!s({name}) in map: {plain(patch)}"
    return f"unknown patch type: {directive} in map: {plain(patch)}"


def _retain_keys(doc: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return `doc` without the keys that `$retainKeys` does not list."""
    if RETAIN_KEYS not in patch:
        return doc
    keys = patch[RETAIN_KEYS]
    if type(keys) is not list:
        raise PatchUndecodable("invalid patch format of retainKeys")
    retained = {key for key in keys if type(key) is str}
    for key, value in patch.items():
        if value is None or key == RETAIN_KEYS or key.startswith((DELETE_LIST, SET_ORDER)):
            continue
        if key not in retained:
            raise PatchUndecodable("invalid patch format of retainKeys")
    return {key: value for key, value in doc.items() if key in retained}


def _ordered_lists(
    type_: Type | None, doc: dict[str, Any], patch: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Merge the lists that have a `$setElementOrder`; return the document and the rest of the patch."""
    rest = {key: value for key, value in patch.items() if key != RETAIN_KEYS and not key.startswith(SET_ORDER)}
    merged = doc
    for name, order in patch.items():
        if not name.startswith(SET_ORDER):
            continue
        _require_list(order)
        key = _listed_field(name, SET_ORDER)
        current, patched = doc.get(key, GONE), rest.get(key, GONE)
        if current is not GONE:
            _require_list(current)
        if patched is not GONE:
            _require_list(patched)
        field = _list_field(type_, key)
        _check_order(patched if patched is not GONE else [], order, field.merge_key)
        server_order = current if current is not GONE else []
        if patched is GONE:
            if current is GONE:
                continue
            items = current
        elif current is GONE:
            items = [kept for item in patched if (kept := without_directives(item)) is not GONE]
        else:
            server_order = list(current)
            items = _merge_list_field(field, current, patched, False, server_order)
        present = current if current is not GONE else []
        ours, theirs = partition(items, order, field.merge_key)
        is_map = element_type(present, patched if patched is not GONE else []) is dict
        merge_key = field.merge_key if is_map else None
        rest.pop(key, None)
        ordered = interleave(ours, theirs, order, server_order, merge_key)
        if not _identical(ordered, present) or current is GONE:
            if merged is doc:
                merged = dict(doc)
            merged[key] = ordered
    return merged, rest


def _check_order(patched: list[Any], order: list[Any], merge_key: str) -> None:
    """Validate that the patch's items are in the relative order of `order`; deletions need not be."""
    if not patched or not order:
        return
    items = patched
    if merge_key:
        for item in patched:
            _require_map(item)
        items = [item for item in patched if item.get(DIRECTIVE) != "delete"]
    at = 0
    for wanted in order:
        while at < len(items) and type(items[at]) is dict and DIRECTIVE in items[at]:
            at += 1
        if at == len(items):
            return
        if _same_element(items[at], wanted, merge_key):
            at += 1
    if at < len(items):
        raise PatchRefused(
            f"The order in patch list:\n{plain(patched)}\n doesn't match {SET_ORDER} list:\n{plain(order)}\n"
        )


def _same_element(left: Any, right: Any, merge_key: str) -> bool:
    if not merge_key:
        return index_key(left) == index_key(right)
    for item in (left, right):
        _require_map(item)
        if merge_key not in item:
            raise PatchRefused(_no_merge_key(item, merge_key))
    return index_key(left[merge_key]) == index_key(right[merge_key])


def _merge_list_field(
    field: Field,
    current: list[Any],
    patched: list[Any],
    is_delete_list: bool,
    server_order: list[Any] | None = None,
) -> list[Any]:
    # A list of deletions works the same for every strategy of the field.
    if is_delete_list or "merge" in field.patch_strategy:
        return _merge_list(field, current, patched, is_delete_list, server_order)
    return patched


def _merge_list(
    field: Field, current: list[Any], patched: list[Any], is_delete_list: bool, server_order: list[Any] | None
) -> list[Any]:
    """Merge two lists, and update `server_order`, a copy of `current`, to the document's order afterwards.

    The reference merges in place: deleted items are removed from that order, and new ones take the places that
    became free."""
    if not current and not patched:
        return current
    if element_type(current, patched) is not dict:
        if is_delete_list:
            unwanted = {index_key(item) for item in patched}
            remaining = [item for item in current if index_key(item) not in unwanted]
            return current if len(remaining) == len(current) else remaining
        union = list({index_key(item): item for item in (*current, *patched)}.values())
        ours, theirs = partition(union, patched, field.merge_key)
        ordered = interleave(ours, theirs, patched, current, None)
        return current if ordered == current else ordered
    merge_key = field.merge_key
    if not merge_key:
        raise PatchRefused(f"cannot merge lists without merge key for {_go_kind(field.type.item)}")
    server, changes, replaced = _special_items(current, patched, merge_key, server_order)
    items = list(server)
    positions: dict[Any, int] = {}
    for at, item in enumerate(items):
        if type(item) is dict and merge_key in item:
            positions.setdefault(index_key(item[merge_key]), at)
    for change in changes:
        if merge_key not in change:
            raise PatchRefused(_no_merge_key(change, merge_key))
        found = positions.get(index_key(change[merge_key]))
        if found is None:
            positions[index_key(change[merge_key])] = len(items)
            items.append(change)
            if not replaced:
                _fill_free_place(server_order, len(items) - 1, change)
        else:
            items[found] = _merge_map(field.type.item, items[found], change)
    ours, theirs = partition(items, changes, merge_key)
    ordered = interleave(ours, theirs, changes, server, merge_key)
    return current if _identical(ordered, current) else ordered


def _identical(left: list[Any], right: list[Any]) -> bool:
    return len(left) == len(right) and all(map(is_, left, right))


def _fill_free_place(server_order: list[Any] | None, place: int, item: Any) -> None:
    if server_order is not None and place < len(server_order):
        server_order[place] = item


def _special_items(
    current: list[Any], patched: list[Any], merge_key: str, server_order: list[Any] | None
) -> tuple[list[Any], list[dict[str, Any]], bool]:
    """Return the list after its `$patch` items took effect, the patch without them, and whether it replaces the
    list."""
    changes: list[dict[str, Any]] = []
    replace = False
    server = current
    for item in patched:
        if DIRECTIVE not in item:
            changes.append(item)
            continue
        directive = item[DIRECTIVE]
        if directive == "delete":
            if merge_key not in item:
                raise PatchRefused(_no_merge_key(item, merge_key))
            unwanted = index_key(item[merge_key])
            server = [old for old in server if merge_key not in old or index_key(old[merge_key]) != unwanted]
            if server_order is not None:
                server_order[: len(server)] = server
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            raise PatchRefused("merging lists cannot yet be specified in the patch")
        else:
            raise PatchRefused(_bad_directive(item))
    return (changes, [], True) if replace else (server, changes, False)


def element_type(*lists: list[Any]) -> type:
    """Return the one type of all items."""
    found: type | None = None
    for items in lists:
        for item in items:
            if found is None:
                found = type(item)
                if found is list:
                    raise PatchUnprocessable("lists of lists are not supported")
            elif type(item) is not found:
                raise PatchRefused(f"list element types are not identical: {plain(lists)}")
    if found is None:
        raise PatchRefused("no elements in any of the given slices")
    return found


def _fresh(value: Any) -> Any:
    """Return a value that is new to the document: without null members and without maps that carry a `$patch`."""
    if type(value) not in (dict, list) or _is_plain(value):
        return value
    return without_directives(_without_nulls(value))


def _is_plain(value: Any) -> bool:
    """Return whether the value contains no null and no `$patch`."""
    if type(value) is dict:
        if DIRECTIVE in value or None in value.values():
            return False
        value = value.values()
    for member in value:
        kind = type(member)
        if (kind is dict or kind is list) and not _is_plain(member):
            return False
    return True


def _without_nulls(value: Any) -> Any:
    if type(value) is dict:
        return {key: _without_nulls(member) for key, member in value.items() if member is not None}
    if type(value) is list:
        return [_without_nulls(item) for item in value]
    return value


def without_directives(value: Any) -> Any:
    if type(value) is dict:
        if DIRECTIVE in value:
            return GONE
        return {key: kept for key, member in value.items() if (kept := without_directives(member)) is not GONE}
    if type(value) is list:
        return [kept for item in value if (kept := without_directives(item)) is not GONE]
    return value


def _field(type_: Type | None, name: str) -> Field:
    """Return the field of a struct. As in the reference, it is looked up only where a map or list is merged."""
    if type_ is None or type_.shape not in (Shape.STRUCT, Shape.ANY):
        raise PatchRefused(f"merging an object in json but data type is not struct, instead is: {_go_kind(type_)}")
    field = type_.fields.get(name)
    if field is None:
        folded = name.casefold()
        field = next((field for field in type_.fields.values() if field.name.casefold() == folded), None)
    if field is None:
        struct = (type_.name or type_.go).rpartition(".")[2] if type_.go != "any" else "RawExtension"
        raise PatchRefused(f"unable to find api field in struct {struct} for the json field {quote(name)}")
    return field


def _list_field(type_: Type | None, name: str) -> Field:
    field = _field(type_, name)
    if field.type.shape is not Shape.LIST:
        raise PatchRefused("expected slice or array type, but got: struct")
    if field.type.item is not None and field.type.item.shape is Shape.LIST:
        raise PatchRefused("unexpected slice of slice")
    return field


_GO_KINDS = {
    Shape.STRUCT: "struct",
    Shape.QUANTITY: "struct",
    Shape.TIME: "struct",
    Shape.MICROTIME: "struct",
    Shape.DURATION: "struct",
    Shape.INT_OR_STRING: "struct",
    Shape.ANY: "struct",
    Shape.MAP: "map",
    Shape.LIST: "slice",
    Shape.BYTES: "slice",
    Shape.FLOAT: "float64",
}


def _go_kind(type_: Type | None) -> str:
    return "struct" if type_ is None else _GO_KINDS.get(type_.shape, type_.shape.value)


def _listed_field(name: str, prefix: str) -> str:
    """Return `containers` for `$setElementOrder/containers`."""
    directive, slash, key = name.partition("/")
    if not slash or directive != prefix:
        what = "setElementOrder list" if prefix == SET_ORDER else "primitive list"
        raise PatchUndecodable(f"invalid patch format of {what}")
    return key


def _require_list(value: Any) -> None:
    if type(value) is not list:
        raise PatchRefused(f"expected a []interface {{}}, but received a {_go_type(value)}")


def _require_map(value: Any) -> None:
    if type(value) is not dict:
        raise PatchRefused(f"expected a map[string]interface {{}}, but received a {_go_type(value)}")


def _go_type(value: Any) -> str:
    return "%!s(<nil>)" if value is None else type_name(value)


def _no_merge_key(item: dict[str, Any], merge_key: str) -> str:
    return f"map: {plain(item)} does not contain declared merge key: {merge_key}"
