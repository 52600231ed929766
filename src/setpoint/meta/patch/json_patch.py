"""JSON Patch (RFC 6902): application as in the reference's library, and generation."""

from __future__ import annotations

import re
from typing import Any

from setpoint.meta.goformat import kind_of, quote
from setpoint.meta.patch.errors import PatchTooLarge, PatchUndecodable, PatchUnprocessable
from setpoint.meta.patch.strategic_diff import same

MAX_OPERATIONS = 10_000
MAX_COPIED_BYTES = 3 * 1024 * 1024

_STRING_FIELDS = ("op", "path", "from")
_FIELDS = frozenset({"op", "path", "from", "value"})
_INDEX = re.compile(r"[+-]?0*[0-9]{1,18}")


def decode_json_patch(patch: Any, *, strict: bool = True) -> list[Any]:
    """Return the operations of a decoded JSON document, or raise an error if it is not a patch.

    `strict` is how the server decodes unless field validation is off: the types of all operations are checked first.
    """
    if patch is None:
        return []
    target = "[]handlers.jsonPatchOp" if strict else "jsonpatch.Patch"
    prefix = "error decoding patch: " if strict else ""
    if type(patch) is not list:
        raise PatchUndecodable(f"{prefix}json: cannot unmarshal {kind_of(patch)} into Go value of type {target}")
    element = "handlers.jsonPatchOp" if strict else "jsonpatch.Operation"
    for op in patch:
        if type(op) is dict:
            if strict:
                for name in _STRING_FIELDS:
                    value = op.get(name)
                    if value is not None and type(value) is not str:
                        raise PatchUndecodable(
                            f"{prefix}json: cannot unmarshal {kind_of(value)} into Go struct field "
                            f"jsonPatchOp.{name} of type string"
                        )
        elif op is not None:
            raise PatchUndecodable(f"{prefix}json: cannot unmarshal {kind_of(op)} into Go value of type {element}")
    return patch


def unknown_operation_fields(operations: list[Any]) -> list[str]:
    """Return strict decoding errors for members that no operation has."""
    return [
        f"json patch unknown field {quote(f'[{index}].{name}')}"
        for index, op in enumerate(operations)
        if type(op) is dict and not op.keys() <= _FIELDS
        for name in op
        if name not in _FIELDS
    ]


def apply_json_patch(doc: Any, patch: bytes | list[Any]) -> Any:
    """Return the patched document. Raises PatchUndecodable, PatchTooLarge or PatchUnprocessable."""
    import orjson  # slow to load; clients that send other patches do not need it

    if isinstance(patch, bytes):
        try:
            operations = decode_json_patch(orjson.loads(patch))
        except orjson.JSONDecodeError:
            raise PatchUndecodable("invalid JSON patch") from None
    else:
        operations = patch
    if len(operations) > MAX_OPERATIONS:
        raise PatchTooLarge(
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        )
    run = _Run(doc)
    try:
        for operation in operations:
            run.step(operation or {})
    except (RecursionError, orjson.JSONEncodeError):
        # Operations can nest values deeper than any body could.
        raise PatchUnprocessable("exceeded max depth") from None
    return run.doc


class _Run:
    """One application of a patch. Containers are copied on first write; `_owned` holds the ids of those copies.

    An id in `_owned` may outlive its container, but whatever is allocated during the run belongs to the run as well.
    """

    def __init__(self, doc: Any) -> None:
        self.doc = doc
        self._owned: set[int] = set()
        self._copied = 0

    def step(self, operation: dict[str, Any]) -> None:
        kind = operation.get("op")
        method = _METHODS.get(kind) if type(kind) is str else None
        if method is None:
            raise PatchUnprocessable(f"Unexpected kind: {kind if type(kind) is str else 'unknown'}")
        method(self, operation)

    def _add(self, operation: dict[str, Any]) -> None:
        path = _text(operation, "path", "add operation failed to decode path: missing value")
        container, key = self._container(path)
        if container is None:
            raise PatchUnprocessable(f'add operation does not apply: doc is missing path: "{path}": missing value')
        _insert(container, key, operation.get("value"), f"error in add for path: '{path}': ")

    def _remove(self, operation: dict[str, Any]) -> None:
        path = _text(operation, "path", "remove operation failed to decode path: missing value")
        container, key = self._container(path)
        if container is None:
            raise PatchUnprocessable(f'remove operation does not apply: doc is missing path: "{path}": missing value')
        _delete(container, key, f"error in remove for path: '{path}': ")

    def _replace(self, operation: dict[str, Any]) -> None:
        path = _text(operation, "path", "replace operation failed to decode path: operation missing path field: ")
        value = operation.get("value")
        if path == "":
            if type(value) not in (dict, list):
                raise PatchUnprocessable("replace operation value must be object or array: %!w(<nil>)")
            self.doc = value
            return
        container, key = self._container(path)
        if container is None:
            raise PatchUnprocessable(f"replace operation does not apply: doc is missing path: {path}: missing value")
        if type(container) is dict:
            container[key] = value
            return
        try:
            index = _index(key, len(container), "")
        except PatchUnprocessable:
            raise PatchUnprocessable(
                f"replace operation does not apply: doc is missing key: {path}: missing value"
            ) from None
        container[index] = value

    def _move(self, operation: dict[str, Any]) -> None:
        source = _text(operation, "from", "move operation failed to decode from: operation, missing from field: ")
        container, key = self._container(source)
        if container is None:
            raise PatchUnprocessable(
                f"move operation does not apply: doc is missing from path: {source}: missing value"
            )
        value = _get(container, key, f"error in move for path: '{key}': ")
        _delete(container, key, f"error in move for path: '{key}': ")
        path = _text(operation, "path", "move operation failed to decode path: operation missing path field: ")
        container, key = self._container(path)
        if container is None:
            raise PatchUnprocessable(
                f"move operation does not apply: doc is missing destination path: {path}: missing value"
            )
        _insert(container, key, value, f"error in move for path: '{path}': ")

    def _test(self, operation: dict[str, Any]) -> None:
        path = _text(operation, "path", "test operation failed to decode path: operation missing path field: ")
        if path == "":
            found = self.doc
        else:
            container, key = self._container(path, write=False)
            if container is None:
                raise PatchUnprocessable(f"test operation does not apply: is missing path: {path}: missing value")
            found = _get(container, key, f"error in test for path: '{path}': ")
        if not _same(found, operation.get("value")):
            raise PatchUnprocessable(f"testing value {path} failed: test failed")

    def _copy(self, operation: dict[str, Any]) -> None:
        source = _text(operation, "from", "copy operation failed to decode from: operation, missing from field: ")
        container, key = self._container(source, write=False)
        if container is None:
            raise PatchUnprocessable(
                f"copy operation does not apply: doc is missing from path: {source}: missing value"
            )
        value = _get(container, key, f"error in copy for from: '{source}': ")
        path = _text(operation, "path", "copy operation failed to decode path: missing value")
        container, key = self._container(path)
        if container is None:
            raise PatchUnprocessable(
                f"copy operation does not apply: doc is missing destination path: {path}: missing value"
            )
        if value is not None:
            import orjson  # as in `apply_json_patch`

            encoded = orjson.dumps(value)
            self._copied += len(encoded)
            if self._copied > MAX_COPIED_BYTES:
                raise PatchUnprocessable(
                    "Unable to complete the copy, the accumulated size increase of copy is "
                    f"{self._copied}, exceeding the limit {MAX_COPIED_BYTES}"
                )
            if type(value) in (dict, list):
                # A separate copy, because the original may be a copy of this run that is modified later.
                value = orjson.loads(encoded)
        _insert(container, key, value, "error while adding value during copy: ")

    def _container(self, path: str, *, write: bool = True) -> tuple[Any, str]:
        """Return the container that the last part of the path points into, ready to be written to, and that last
        part."""
        parts = path.split("/")
        if len(parts) < 2:
            return None, ""
        if "~" in path:
            parts = [part.replace("~1", "/").replace("~0", "~") for part in parts]
        node = self.doc
        if not write:
            for part in parts[1:-1]:
                node = _child(node, part)
            return (node, parts[-1]) if type(node) in (dict, list) else (None, "")
        node = self.doc = self._own(node)
        for part in parts[1:-1]:
            child = _child(node, part)
            if type(child) not in (dict, list):
                return None, ""
            if id(child) not in self._owned:
                child = self._own(child)
                if type(node) is dict:
                    node[part] = child
                else:
                    node[int(part)] = child
            node = child
        return node, parts[-1]

    def _own(self, container: Any) -> Any:
        if id(container) in self._owned or type(container) not in (dict, list):
            return container
        copied = container.copy()
        self._owned.add(id(copied))
        return copied


_METHODS = {
    "add": _Run._add,
    "remove": _Run._remove,
    "replace": _Run._replace,
    "move": _Run._move,
    "test": _Run._test,
    "copy": _Run._copy,
}


def _text(operation: dict[str, Any], name: str, problem: str) -> str:
    value = operation.get(name)
    if type(value) is not str:
        raise PatchUnprocessable(problem if problem.endswith("missing value") else problem + "missing value")
    return value


def _child(node: Any, part: str) -> Any:
    """Return the child on the way to a path's end; None if there is none, since null leads nowhere either."""
    if type(node) is dict:
        return node.get(part)
    if type(node) is list and _INDEX.fullmatch(part):
        index = int(part)
        if -len(node) <= index < len(node):
            return node[index]
    return None


def _index(key: str, size: int, problem: str) -> int:
    """Return the index that `key` means in a list of `size` items."""
    if not _INDEX.fullmatch(key):
        why = "value out of range" if key.lstrip("+-").isdigit() else "invalid syntax"
        raise PatchUnprocessable(f"{problem}strconv.Atoi: parsing {quote(key)}: {why}")
    index = int(key)
    if not -size <= index < size:
        raise PatchUnprocessable(f"{problem}Unable to access invalid index: {index}: invalid index referenced")
    return index + size if index < 0 else index


def _get(container: Any, key: str, problem: str) -> Any:
    return container.get(key) if type(container) is dict else container[_index(key, len(container), problem)]


def _insert(container: Any, key: str, value: Any, problem: str) -> None:
    if type(container) is dict:
        container[key] = value
    elif key == "-":
        container.append(value)
    else:
        if not _INDEX.fullmatch(key):
            problem += f"value was not a proper array index: '{key}': "
        container.insert(_index(key, len(container) + 1, problem), value)


def _delete(container: Any, key: str, problem: str) -> None:
    if type(container) is list:
        del container[_index(key, len(container), problem)]
    elif key in container:
        del container[key]
    else:
        raise PatchUnprocessable(f"{problem}Unable to remove nonexistent key: {key}: missing value")


def _same(left: Any, right: Any) -> bool:
    """Return whether two values are equal as JSON: 1, 1.0 and true are three values."""
    if type(left) is not type(right):
        return False
    if type(left) is dict:
        return left.keys() == right.keys() and all(_same(value, right[key]) for key, value in left.items())
    if type(left) is list:
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)


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
