"""Generate ConfigMaps and Secrets from literals and files, and the hash suffix of their names."""

from __future__ import annotations

import posixpath
from base64 import b64encode
from hashlib import sha256
from typing import Any

from setpoint.cli.failures import Failed
from setpoint.cli.kustomize.loading import Loader, texts
from setpoint.cli.kustomize.resource import Resource
from setpoint.meta.goformat import quote
from setpoint.meta.gojson import compact
from setpoint.meta.names import config_map_key, env_var_name
from setpoint.meta.objects import Obj

_BEHAVIORS = ("", "unspecified", "create", "merge", "replace")
_LINE = 70
_LETTERS = str.maketrans("013ae", "ghkmt")


def generate(loader: Loader, kind: str, given: Obj, options: Any) -> Resource:
    """Generate the object of one entry of `configMapGenerator` or `secretGenerator`. Raise Failed."""
    name = str(given.get("name") or "")
    if not name:
        raise Failed("a configmap must have a name")
    behavior = str(given.get("behavior") or "")
    if behavior not in _BEHAVIORS:
        behavior = ""
    meta: Obj = {"name": name}
    if given.get("namespace"):
        meta["namespace"] = str(given["namespace"])
    obj: Obj = {"apiVersion": "v1", "kind": kind, "metadata": meta}
    chosen = _options(given.get("options"), options)
    for field in ("labels", "annotations"):
        if chosen[field]:
            meta[field] = dict(chosen[field])
    if chosen["immutable"]:
        obj["immutable"] = True
    _fill(obj, _pairs(loader, name, given), str(given.get("type") or ""))
    return Resource(obj, behavior=behavior, hashed=not chosen["disableNameSuffixHash"])


def _options(own: Any, common: Any) -> dict[str, Any]:
    """Merge options; those of the entry override the common ones."""
    own, common = own or {}, common or {}
    made: dict[str, Any] = {
        name: {**texts(common.get(name), name), **texts(own.get(name), name)} for name in ("labels", "annotations")
    }
    return made | {name: bool(own.get(name) or common.get(name)) for name in ("immutable", "disableNameSuffixHash")}


def _pairs(loader: Loader, name: str, given: Obj) -> dict[str, bytes]:
    found: list[tuple[str, bytes]] = []
    envs = [*(given.get("envs") or ()), *([given["env"]] if given.get("env") else ())]
    for path in envs:
        found += _env_lines(loader.bytes(str(path)))
    for literal in given.get("literals") or ():
        key, equals, value = str(literal).partition("=")
        if not equals or not key:
            raise Failed(
                f"loading KV pairs: literal sources {_listed(given['literals'])}: invalid literal source {literal}, "
                "expected key=value"
            )
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        found.append((key, value.encode("utf-8", "surrogateescape")))
    for source in given.get("files") or ():
        key, path = _file_source(str(source))
        try:
            found.append((key, loader.bytes(path)))
        except Failed as error:
            raise Failed(f"loading KV pairs: file sources: {_listed(given['files'])}: {error}") from None
    pairs: dict[str, bytes] = {}
    for key, data in found:
        if config_map_key(key):
            raise Failed(f"{quote(key)} is not a valid key name for a ConfigMap or Secret")
        if key in pairs:
            raise Failed(f"configmap {name} illegally repeats the key `{key}`")
        pairs[key] = data
    return pairs


def _listed(values: Any) -> str:
    return f"[{' '.join(map(str, values))}]"


def _env_lines(data: bytes) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for at, line in enumerate(data.split(b"\n")):
        try:
            text = line.removesuffix(b"\r").decode()
        except UnicodeDecodeError:
            raise Failed(f"line {at} has invalid utf8 bytes") from None
        if at == 0:
            text = text.removeprefix("\ufeff")
        text = text.lstrip()
        if not text or text.startswith("#"):
            continue
        key, _, value = text.partition("=")
        if problems := env_var_name(key):
            raise Failed(f"{quote(key)} is not a valid key name: {problems[0]}")
        found.append((key, value.encode()))
    return found


def _file_source(source: str) -> tuple[str, str]:
    key, equals, path = source.partition("=")
    if not equals:
        return posixpath.basename(source), source
    if "=" in path:
        raise Failed(f"source {quote(source)} key name or file path contains '='")
    if not key:
        raise Failed(f"missing key name for file path {quote(path)} in source {quote(source)}")
    if not path:
        raise Failed(f"missing file path for key name {quote(key)} in source {quote(source)}")
    return key, path


def _fill(obj: Obj, pairs: dict[str, bytes], type_: str) -> None:
    if obj["kind"] == "Secret":
        obj["type"] = type_ or "Opaque"
        if pairs:
            obj["data"] = {key: _base64(data) for key, data in pairs.items()}
        return
    for key, data in pairs.items():
        try:
            obj.setdefault("data", {})[key] = data.decode()
        except UnicodeDecodeError:
            obj.setdefault("binaryData", {})[key] = _base64(data)
    if "data" in obj and not obj["data"]:
        del obj["data"]


def _base64(data: bytes) -> str:
    """Encode as base64, wrapped into lines if it is long."""
    text = b64encode(data).decode()
    if len(text) < _LINE:
        return text
    return "".join(text[at : at + _LINE] + "\n" for at in range(0, len(text), _LINE))


def name_hash(obj: Obj) -> str:
    """Return the hash of ten letters of the content. The name is not part of it, because kustomize reads it from a
    wrong field."""
    known = {"kind": obj["kind"], "name": "", "data": obj.get("data", "")}
    if obj["kind"] == "Secret":
        known["type"] = obj.get("type", "")
    other = "stringData" if obj["kind"] == "Secret" else "binaryData"
    if isinstance(obj.get(other), dict):
        known[other] = obj[other]
    return sha256(compact(known).encode()).hexdigest()[:10].translate(_LETTERS)
