"""The structure of a kubeconfig: the order of its fields, and which of them are secret."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from typing import Any

from setpoint.cli.failures import Failed
from setpoint.cli.flags import read_bool
from setpoint.cli.kubeconfig_files import SECTIONS, Entry, Settings
from setpoint.meta.objects import Obj

Shape = dict[str, Any]
STRING, BOOL, BYTES, STRINGS, ANY = "string", "bool", "bytes", "strings", "any"

CLUSTER: Shape = {
    "server": STRING,
    "tls-server-name": STRING,
    "insecure-skip-tls-verify": BOOL,
    "certificate-authority": STRING,
    "certificate-authority-data": BYTES,
    "proxy-url": STRING,
    "disable-compression": BOOL,
    "extensions": ANY,
}
EXEC: Shape = {
    "command": STRING,
    "args": STRINGS,
    "env": ANY,
    "apiVersion": STRING,
    "installHint": STRING,
    "provideClusterInfo": BOOL,
    "interactiveMode": STRING,
}
PROVIDER: Shape = {"name": STRING, "config": ANY}
USER: Shape = {
    "client-certificate": STRING,
    "client-certificate-data": BYTES,
    "client-key": STRING,
    "client-key-data": BYTES,
    "token": STRING,
    "tokenFile": STRING,
    "as": STRING,
    "as-uid": STRING,
    "as-groups": STRINGS,
    "as-user-extra": ANY,
    "username": STRING,
    "password": STRING,
    "auth-provider": PROVIDER,
    "exec": EXEC,
    "extensions": ANY,
}
CONTEXT: Shape = {"cluster": STRING, "user": STRING, "namespace": STRING, "extensions": ANY}
SHAPES = {"clusters": CLUSTER, "users": USER, "contexts": CONTEXT}
PREFERENCES: Shape = {"colors": BOOL, "extensions": ANY}
_ALWAYS = {
    id(CLUSTER): ("server",),
    id(CONTEXT): ("cluster", "user"),
    id(EXEC): ("command", "args", "env", "provideClusterInfo"),
    id(PROVIDER): ("name", "config"),
}
_HIDDEN = {
    "token": "REDACTED",
    "password": "REDACTED",
    "client-key-data": "DATA+OMITTED",
    "client-certificate-data": "DATA+OMITTED",
    "certificate-authority-data": "DATA+OMITTED",
}
_OLD_PLUGINS = ("client.authentication.k8s.io/v1beta1", "client.authentication.k8s.io/v1alpha1")


def document(settings: Settings, *, secrets: bool) -> Obj:
    """Return the settings as one file."""
    made: Obj = {"kind": "Config", "apiVersion": "v1"}
    if settings.preferences:
        made["preferences"] = settings.preferences
    for section, inner in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
        entries = [
            {"name": name, inner: _shown(entry.body, SHAPES[section], secrets)}
            for name, entry in sorted(settings.section(section).items())
        ]
        made[section] = entries or None
    made["current-context"] = settings.current_context
    if settings.extensions:
        made["extensions"] = settings.extensions
    return made


def _shown(body: Obj, shape: Shape, secrets: bool) -> Obj:
    made: Obj = {}
    for key, kind in shape.items():
        value = body.get(key)
        if isinstance(kind, dict) and isinstance(value, dict):
            made[key] = _shown(value, kind, secrets)
        elif value:
            made[key] = value if secrets else _HIDDEN.get(key, value)
        elif key in _ALWAYS.get(id(shape), ()):
            made[key] = "" if kind == STRING else False if kind == BOOL else None
    if shape is EXEC and not made.get("interactiveMode") and made.get("apiVersion") in _OLD_PLUGINS:
        made["interactiveMode"] = "IfAvailable"
    return made


def minify(settings: Settings, context: str) -> None:
    """Remove everything that the given or current context does not need."""
    name = settings.current_context = context or settings.current_context
    if not name:
        raise Failed("current-context must exist in order to minify")
    if name not in settings.contexts:
        raise Failed(f"cannot locate context {name}")
    chosen = settings.contexts[name]
    settings.contexts = {name: chosen}
    for section, key in (("clusters", "cluster"), ("users", "user")):
        wanted = chosen.body.get(key)
        if wanted and wanted not in settings.section(section):
            raise Failed(f"cannot locate {key} {wanted}")
        setattr(settings, section, {wanted: settings.section(section)[wanted]} if wanted else {})


def flatten(settings: Settings) -> None:
    """Embed the content of files."""
    for section, keys in (("users", ("client-certificate", "client-key")), ("clusters", ("certificate-authority",))):
        for name, entry in settings.section(section).items():
            settings.section(section)[name] = _flat(entry, keys)


def _flat(entry: Entry, keys: tuple[str, ...]) -> Entry:
    body = dict(entry.body)
    for key in keys:
        if not (path := body.pop(key, "")):
            continue
        if body.get(f"{key}-data"):
            raise Failed("cannot have values for both path and contents")
        place = entry.origin.parent / path if entry.origin is not None else path
        with open(place, "rb") as file:
            body[f"{key}-data"] = b64encode(file.read()).decode()
    return entry._replace(body=body)


# -- single properties ----------------------------------------------------------------------------------------------


def set_property(settings: Settings, path: str, value: str, *, raw_bytes: bool = False) -> None:
    """Set one property by a path such as `clusters.my.cluster.server`; names may contain dots."""
    section, name, keys = _steps(path)
    if section == "current-context":
        settings.current_context = value
        return
    if section == "preferences":
        if not name:
            raise Failed("can't set a map to a value: preferences")
        settings.preferences[name] = _value(PREFERENCES[name], value, raw_bytes)
        return
    entries = settings.section(section)
    if not keys:
        raise Failed(f"can't set a map to a value: {path}")
    entry = entries.get(name, Entry({}))
    body = inner = dict(entry.body)
    shape: Any = SHAPES[section]
    for key in keys[:-1]:
        inner[key] = dict(inner.get(key) or {})
        inner, shape = inner[key], shape[key]
    kind = shape[keys[-1]] if isinstance(shape, dict) else STRING
    inner[keys[-1]] = _value(kind, value, raw_bytes)
    entries[name] = entry._replace(body=body)


def unset_property(settings: Settings, path: str) -> None:
    section, name, keys = _steps(path)
    if section == "current-context":
        settings.current_context = ""
    elif section == "preferences":
        settings.preferences = {key: value for key, value in settings.preferences.items() if name and key != name}
    elif not name:
        setattr(settings, section, {})
    elif not keys:
        settings.section(section).pop(name, None)
    elif name not in settings.section(section):
        raise Failed(f"current map key `{name}` is invalid")
    else:
        entry = settings.section(section)[name]
        body = inner = dict(entry.body)
        for key in keys[:-1]:
            inner[key] = dict(inner.get(key) or {})
            inner = inner[key]
        inner.pop(keys[-1], None)
        settings.section(section)[name] = entry._replace(body=body)


def _steps(path: str) -> tuple[str, str, list[str]]:
    """Return the section, the name in it, and the path inside. Raise Failed."""
    section, *parts = path.split(".")
    if section == "current-context":
        if parts:
            raise Failed(f"unable to parse one or more field values of {path}")
        return section, "", []
    if section == "preferences":
        if len(parts) > 1 or (parts and parts[0] not in PREFERENCES):
            raise Failed(f"unable to parse {path} after [{{preferences}}]")
        return section, parts[0] if parts else "", []
    if section not in SECTIONS:
        raise Failed(f"unable to parse {path} after [] at api.Config: {_known((*SECTIONS, 'current-context'))}")
    shape: Any = SHAPES[section]
    at = next((index for index, part in enumerate(parts) if index and part in shape), len(parts))
    name, keys = ".".join(parts[:at]), parts[at:]
    for key in keys:
        if shape == ANY:
            return section, name, [*keys[: keys.index(key)], ".".join(keys[keys.index(key) :])]
        if not isinstance(shape, dict):
            raise Failed(f"unable to parse one or more field values of {path}")
        if key not in shape:
            raise Failed(f"unable to parse {path}: there is no {key}; {_known(shape)}")
        shape = shape[key]
    return section, name, keys


def _known(names: Any) -> str:
    return "there are " + ", ".join(sorted(names))


def _value(kind: Any, value: str, raw_bytes: bool) -> Any:
    if kind == BOOL:
        try:
            return read_bool(value) if value else False
        except ValueError as error:
            raise Failed(str(error)) from None
    if kind == BYTES:
        if raw_bytes:
            return b64encode(value.encode("utf-8", "surrogateescape")).decode()
        try:
            b64decode(value, validate=True)
        except (NotBase64, ValueError):
            raise Failed("error decoding input value: illegal base64 data") from None
        return value
    if kind == STRINGS:
        raise Failed("unrecognized slice type. string")
    if isinstance(kind, dict):
        raise Failed("a group of settings cannot be set to a value: name one of " + ", ".join(sorted(kind)))
    return value
