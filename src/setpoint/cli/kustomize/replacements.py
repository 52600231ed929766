"""Copy values between objects: `replacements`, and the older `vars`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from setpoint.cli.failures import Failed
from setpoint.cli.kustomize.field_specs import FieldSpec, visit
from setpoint.cli.kustomize.loading import Loader
from setpoint.cli.kustomize.resource import Gvk, Id, Resource
from setpoint.cli.kustomize.resource_map import ResourceMap, Selector
from setpoint.meta.body import BodyError, parse_yaml
from setpoint.meta.goformat import plain
from setpoint.meta.yaml_scalar import resolve

Setter = Callable[[Any], None]


def split(path: str) -> list[str]:
    """Split at dots, except within brackets or after a backslash."""
    parts, part, depth, escaped = list[str](), "", 0, False
    for char in path:
        if escaped:
            part += char if char == "." else f"\\{char}"
            escaped = False
        elif char == "\\":
            escaped = True
        elif char == "." and depth == 0:
            parts.append(part)
            part = ""
        else:
            depth += (char == "[") - (char == "]")
            part += char
    return [each for each in (*parts, part) if each]


def lookup(value: Any, parts: list[str]) -> Any:
    """Return the value at a path; None if there is none."""
    for part in parts:
        if isinstance(value, dict):
            value = value.get(_key(part))
        elif isinstance(value, list):
            found = [value[at] for at in _items(value, part)]
            value = found[0] if found else None
        else:
            return None
    return value


def places(value: Any, parts: list[str], create: Callable[[], Any] | None) -> Iterator[tuple[Any, Setter]]:
    """Yield every value of the path with a function that sets it. `create` creates missing values."""
    part, rest = parts[0], parts[1:]
    keys: list[Any]
    if isinstance(value, list):
        keys = _items(value, part)
        if not keys and create is not None and part.startswith("["):
            name, _, wanted = part[1:-1].partition("=")
            value.append({name: wanted} if name else wanted)
            keys = [len(value) - 1]
    elif isinstance(value, dict):
        keys = list(value) if part == "*" else [_key(part)]
        if keys and keys[0] not in value and part != "*":
            if create is None:
                return
            value[keys[0]] = ([] if _is_item(rest[0]) else {}) if rest else create()
    else:
        return
    for key in keys:
        if rest:
            yield from places(value[key], rest, create)
        else:
            yield value[key], lambda new, key=key: value.__setitem__(key, new)  # type: ignore[misc]


def _is_item(part: str) -> bool:
    return part.startswith("[") or part.isdigit()


def _key(part: str) -> str:
    return part[1:-1] if part.startswith("[") and part.endswith("]") and "=" not in part else part


def _items(value: list[Any], part: str) -> list[int]:
    if part == "*":
        return list(range(len(value)))
    if part == "-":
        return [len(value) - 1] if value else []
    if part.isdigit():
        if int(part) >= len(value):
            raise Failed(f"index {part} specified but only {len(value)} elements found")
        return [int(part)]
    if part.startswith("[") and "=" in part:
        name, _, wanted = part[1:-1].partition("=")
        return [
            at
            for at, item in enumerate(value)
            if str(item.get(name) if name and isinstance(item, dict) else item) == wanted
        ]
    return []


_NAME = "metadata.name"
_REFERENCE = re.compile(r"\$(\$|\(([^)]*)\))")


def replace(resources: ResourceMap, loader: Loader, given: Any) -> None:
    """Apply an entry of `replacements`: the replacement itself, or a file with one or several."""
    if not given.get("path"):
        _replace(resources, given)
        return
    if given.get("source") or given.get("targets"):
        raise Failed("cannot specify both path and inline replacement")
    try:
        found, _ = parse_yaml(loader.bytes(str(given["path"])))
    except BodyError as error:
        raise Failed(f"{given['path']}: {error}") from None
    for one in found if isinstance(found, list) else [found]:
        if not isinstance(one, dict):
            raise Failed("unsupported replacement type encountered within replacement path")
        _replace(resources, one)


def _replace(resources: ResourceMap, given: dict[str, Any]) -> None:
    if not given.get("targets") or ("source" not in given and "sourceValue" not in given):
        raise Failed("replacements must specify a source and at least one target")
    value = _value(resources, given)
    for target in given["targets"]:
        if not target.get("select"):
            raise Failed("target must specify resources to select")
        chosen = Selector.read(target["select"])
        rejected = [Selector.read(one) for one in target.get("reject") or ()]
        for one in resources.all:
            if _is_chosen(one, chosen, rejected):
                _copy(one, value, target)


def _value(resources: ResourceMap, given: dict[str, Any]) -> Any:
    if "sourceValue" in given:
        if given.get("source"):
            raise Failed("value and resource selectors are mutually exclusive")
        return str(given["sourceValue"])
    source = given["source"]
    wanted = Selector.read(source)
    gvk = Gvk(wanted.kind, wanted.group, wanted.version)

    def matches(found: Id) -> bool:
        return (
            (not wanted.name or wanted.name == found.name)
            and (not wanted.namespace or wanted.namespace == found.namespace)
            and gvk.selects(found)
        )

    found = resources.matching(matches)
    shown = f"{gvk}/{wanted.name or '[noName]'}.{wanted.namespace or '[noNs]'}"
    path = source.get("fieldPath") or _NAME
    if len(found) != 1:
        quoted_path = f":{source['fieldPath']}" if source.get("fieldPath") else ""
        raise Failed(f"{'multiple matches for selector' if found else 'nothing selected by'} {shown}{quoted_path}")
    value = lookup(found[0].obj, split(path))
    if value is None or value in ({}, [], ""):
        raise Failed(f"fieldPath `{path}` is missing for replacement source {shown}")
    options = source.get("options") or {}
    if not options.get("delimiter"):
        return deepcopy(value)
    if isinstance(value, dict | list):
        raise Failed("delimiter option can only be used with scalar nodes")
    parts, index = _text(value).split(options["delimiter"]), options.get("index") or 0
    if not 0 <= index < len(parts):
        raise Failed(f"options.index {index} is out of bounds for value {_text(value)}")
    return parts[index]


def _is_chosen(one: Resource, chosen: Selector, rejected: list[Selector]) -> bool:
    if not chosen.matches_metadata(one):
        return False
    for each in rejected:
        if (each.labels or each.annotations) and each.matches_metadata(one):
            return False
        if not each.names_nothing and any(each.matches_id(found) for found in one.ids):
            return False
    return any(chosen.matches_id(found) for found in one.ids)


def _copy(one: Resource, value: Any, target: dict[str, Any]) -> None:
    options = target.get("options") or {}
    created: list[Any] = []

    def make() -> Any:
        fresh = type(value)() if isinstance(value, dict | list) else None
        created.append(fresh)
        return fresh

    for path in target.get("fieldPaths") or (_NAME,):
        found = list(places(one.obj, split(path), make if options.get("create") else None))
        if not found:
            what = "find or create" if options.get("create") else "find"
            raise Failed(f'unable to {what} field "{path}" in replacement target')
        for current, put in found:
            put(_fitted(current, value, options))


def _fitted(current: Any, value: Any, options: dict[str, Any]) -> Any:
    """Convert a scalar to the type of the current value."""
    if options.get("delimiter"):
        if isinstance(current, dict | list):
            raise Failed("delimiter option can only be used with scalar nodes")
        parts, index = _text(current).split(options["delimiter"]), options.get("index") or 0
        if index < 0:
            parts = [_text(value), *parts]
        elif index >= len(parts):
            parts = [*parts, _text(value)]
        else:
            parts[index] = _text(value)
        value = options["delimiter"].join(parts)
    if isinstance(value, dict | list) or isinstance(current, dict | list):
        return deepcopy(value)
    if isinstance(current, str):
        return _text(value)
    return resolve(_text(value)).value if isinstance(value, str) else value


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else plain(value)


# -- variables --------------------------------------------------------------------------------------------------------


def note_variables(resources: ResourceMap, known: dict[str, dict[str, Any]], given: list[Any]) -> None:
    """Register `vars` with their source objects, by current or former name."""
    for one in given:
        name, ref = str(one.get("name") or ""), one.get("objref") or {}
        if name in known and known[name] != one:
            raise Failed(f"var '{name}' already encountered")
        known[name] = one
        wanted = Selector.read(ref)

        def matches(found: Id, wanted: Selector = wanted) -> bool:
            same = (found.group, found.version, found.kind, found.name) == wanted[:4]
            return same and wanted.namespace in ("", found.namespace)

        found = resources.matching(matches)
        if len(found) > 1:
            raise Failed(f"found {len(found)} resId matches for var {name} (unable to disambiguate)")
        for each in found:
            each.variables.append(name)


def resolve_variables(resources: ResourceMap, known: dict[str, dict[str, Any]], specs: list[FieldSpec]) -> None:
    if not known:
        return
    values: dict[str, Any] = {}
    for name, given in known.items():
        source = next((one for one in resources.all if name in one.variables), None)
        if source is None:
            raise Failed(f"var '{name}' cannot be mapped to a field in the set of known resources")
        path = (given.get("fieldref") or {}).get("fieldPath") or (given.get("fieldref") or {}).get("fieldpath") or _NAME
        values[name] = lookup(source.obj, split(path.replace("[", ".").replace("]", "")))
        if values[name] is None:
            raise Failed(f"field specified in var '{name}' not found in corresponding resource")

    def filled(found: Any) -> Any:
        if isinstance(found, list):
            return [filled(item) for item in found]
        if isinstance(found, dict):
            return {key: filled(value) if isinstance(value, str) else value for key, value in found.items()}
        return _expanded(found, values) if isinstance(found, str) else found

    for one in resources.all:
        for spec in specs:
            visit(one.obj, spec, filled)


def _expanded(text: str, values: dict[str, Any]) -> Any:
    whole = _REFERENCE.fullmatch(text)
    if whole and whole[2] in values and not isinstance(values[whole[2]], dict | list):
        return values[whole[2]]

    def put(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        value = values.get(match[2])
        return match[0] if value is None or isinstance(value, dict | list) else _text(value)

    return _REFERENCE.sub(put, text)
