"""Load kustomization files and the files they name, confined to their directory."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath
from typing import Any

from setpoint.cli.failures import Failed
from setpoint.cli.files import CommandFiles, is_file, reason
from setpoint.meta.body import BodyError, parse_yaml
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj

FILE_NAMES = ("kustomization.yaml", "kustomization.yml", "Kustomization")
KUSTOMIZATION = ("kustomize.config.k8s.io/v1beta1", "Kustomization")
COMPONENT = ("kustomize.config.k8s.io/v1alpha1", "Component")
_FIELDS = (
    "apiVersion",
    "kind",
    "metadata",
    "resources",
    "bases",
    "components",
    "namespace",
    "namePrefix",
    "nameSuffix",
    "labels",
    "commonLabels",
    "commonAnnotations",
    "patches",
    "patchesStrategicMerge",
    "patchesJson6902",
    "images",
    "imageTags",
    "replicas",
    "configMapGenerator",
    "secretGenerator",
    "generatorOptions",
    "replacements",
    "vars",
    "sortOptions",
    "buildMetadata",
    "configurations",
    "transformers",
)
_UNSUPPORTED = (
    "openapi",
    "crds",
    "generators",
    "validators",
    "helmGlobals",
    "helmCharts",
    "helmChartInflationGenerator",
    "inventory",
)
_GENERATOR = ("name", "namespace", "behavior", "literals", "files", "envs", "env", "options")
_PATCH = ("path", "patch", "target", "options")
_ENTRIES: dict[str, tuple[str, ...]] = {
    "images": ("name", "newName", "newTag", "tagSuffix", "digest"),
    "replicas": ("name", "count"),
    "labels": ("pairs", "includeSelectors", "includeTemplates", "fields"),
    "patches": _PATCH,
    "patchesJson6902": _PATCH,
    "replacements": ("path", "source", "targets", "sourceValue"),
    "vars": ("name", "objref", "fieldref"),
    "configMapGenerator": _GENERATOR,
    "secretGenerator": (*_GENERATOR, "type"),
}
"""The valid keys of list entries."""
_DEEPER = (
    "disableNameSuffixHash",
    "immutable",
    "group",
    "version",
    "kind",
    "name",
    "namespace",
    "apiVersion",
    "labelSelector",
    "annotationSelector",
    "allowNameChange",
    "allowKindChange",
    "select",
    "reject",
    "fieldPaths",
    "fieldPath",
    "delimiter",
    "index",
    "create",
    "order",
    "legacySortOptions",
    "orderFirst",
    "orderLast",
    "labels",
    "annotations",
    "path",
)
_FREE = ("commonLabels", "commonAnnotations", "pairs", "annotations", "metadata")
"""Fields with arbitrary keys; `labels` too, if it is not a list."""
_OLD = {
    "bases": "resources",
    "commonLabels": "labels",
    "imageTags": "images",
    "patchesJson6902": "patches",
    "patchesStrategicMerge": "patches",
    "vars": "replacements",
}
_LISTS = (
    "resources",
    "bases",
    "components",
    "labels",
    "patches",
    "patchesStrategicMerge",
    "patchesJson6902",
    "images",
    "imageTags",
    "replicas",
    "configMapGenerator",
    "secretGenerator",
    "replacements",
    "vars",
    "buildMetadata",
    "configurations",
    "transformers",
)
_REMOTE = re.compile(r"[a-z+]+://|git@|[^/]+\.(com|org|io|net)/|.*\?ref=")
_SEPARATOR = re.compile(rb"^---(?=[ \t\r\n#]|$)[^\n]*\n?", re.MULTILINE)
_DEEPEST = 100


class Loader:
    """Reads files in a directory or below it."""

    def __init__(
        self,
        files: CommandFiles,
        root: str,
        above: tuple[str, ...] = (),
        *,
        confined: bool,
        warn: Callable[[str], None],
    ) -> None:
        self.files = files
        self.root = root
        """The absolute path of the directory, without symbolic links."""
        self.warn = warn
        self._above = above
        """The kustomizations that include this one, to detect cycles."""
        self.confined = confined

    def bytes(self, name: str) -> bytes:
        if is_remote(name):
            raise Failed(f"{name}: files are not fetched from the network")
        path = self.path(name)
        try:
            data = self.files.read(path)
        except OSError as error:
            raise Failed(f"open {path}: {reason(error)}") from None
        real = self.files.resolved(path)
        if self.confined and posixpath.commonpath((real, self.root)) != self.root:
            raise Failed(f"security; file '{real}' is not in or below '{self.root}'")
        return data

    def path(self, name: str) -> str:
        return str(PurePosixPath(self.root) / name)

    def inside(self, name: str) -> Loader:
        """Return the loader of another directory. Raise Failed."""
        if is_remote(name):
            raise Failed(
                f"{name}: kustomizations are not fetched from the network; fetch it yourself and name its path"
            )
        path = self.files.resolved(self.path(name))
        found = self.files.status(path)
        if found is None:
            raise Failed(f"evalsymlink failure on '{self.path(name)}' : lstat {path}: no such file or directory")
        if not found.is_directory:
            raise Failed(f"must build at directory: not a valid directory: file is not directory: '{path}'")
        if path == self.root or path in self._above:
            raise Failed(f"cycle detected: candidate root '{path}' contains visited root '{path}'")
        if len(self._above) >= _DEEPEST:
            raise Failed(f"{path}: kustomizations are nested more than {_DEEPEST} deep")
        return Loader(self.files, path, (*self._above, self.root), confined=self.confined, warn=self.warn)


def is_remote(name: str) -> bool:
    return _REMOTE.match(name) is not None and not name.startswith((".", "/"))


def load(loader: Loader) -> tuple[Obj, str]:
    """Return the kustomization of a directory, and the name of its file. Raise Failed."""
    found = [name for name in FILE_NAMES if is_file(loader.files, loader.path(name))]
    if not found:
        listed = "', '".join(FILE_NAMES)
        raise Failed(f"unable to find one of '{listed}' in directory '{loader.root}'".replace("', 'K", "' or 'K"))
    if len(found) > 1:
        raise Failed(f"Found multiple kustomization files under: {loader.root}\n")
    try:
        given, _ = parse_yaml(loader.bytes(found[0]))
    except BodyError as error:
        raise Failed(f"invalid Kustomization: {error}") from None
    if given is None:
        given = {}
    if not isinstance(given, dict):
        raise Failed("invalid Kustomization: it is not a mapping")
    given = _recased(given)
    for old, new in _OLD.items():
        if given.get(old) is not None:
            trying = "[EXPERIMENTAL] " if old == "vars" else ""
            loader.warn(
                f"# Warning: '{old}' is deprecated. Please use '{new}' instead. {trying}Run 'kustomize edit fix' to "
                "update your Kustomization automatically."
            )
    _check(given)
    return _tidied(given), found[0]


_SPELLED = {
    name.lower(): name
    for name in (*_DEEPER, *(one for names in _ENTRIES.values() for one in names), *_UNSUPPORTED, *_FIELDS)
}


def _recased(given: Any) -> Any:
    """Return the kustomization with canonical field names, because they are case-insensitive."""
    if isinstance(given, list):
        return [_recased(item) for item in given]
    if not isinstance(given, dict):
        return given
    made: Obj = {}
    for key, value in given.items():
        name = _SPELLED.get(str(key).lower()) or str(key)
        own = name in _FREE or (name == "labels" and isinstance(value, dict))
        made[name] = value if own else _recased(value)
    return made


def _check(given: Obj) -> None:
    for name in given:
        if name in _UNSUPPORTED:
            raise Failed(f"the field {quote(name)} of kustomizations is not supported")
        if name not in _FIELDS:
            raise Failed(f"invalid Kustomization: json: unknown field {quote(name)}")
    for name in _LISTS:
        if given.get(name) is not None and not isinstance(given[name], list):
            raise Failed(f"invalid Kustomization: the field {quote(name)} is not a list")
    for name, allowed in _ENTRIES.items():
        for entry in given.get(name) or ():
            if not isinstance(entry, dict):
                raise Failed(f"invalid Kustomization: an entry of {quote(name)} is not a mapping")
            if unknown := [key for key in entry if key not in allowed]:
                raise Failed(f"invalid Kustomization: json: unknown field {quote(str(unknown[0]))}")
    for name in ("commonLabels", "commonAnnotations"):
        texts(given.get(name), name)
    kind = given.get("kind") or KUSTOMIZATION[1]
    if kind not in (KUSTOMIZATION[1], COMPONENT[1]):
        raise Failed("Failed to read kustomization file under: kind should be Kustomization or Component")
    wanted = COMPONENT[0] if kind == COMPONENT[1] else KUSTOMIZATION[0]
    if given.get("apiVersion") not in (None, "", wanted):
        raise Failed(f"apiVersion for {kind} should be {wanted}")
    if not any(value for name, value in given.items() if name not in ("apiVersion", "kind", "metadata")):
        raise Failed("kustomization.yaml is empty")


def _tidied(given: Obj) -> Obj:
    """Move deprecated fields to their new places."""
    made = {**given, "resources": [*(given.get("resources") or ()), *(given.get("bases") or ())]}
    made["images"] = [*(given.get("images") or ()), *(given.get("imageTags") or ())]
    made["kind"] = given.get("kind") or KUSTOMIZATION[1]
    return made


def texts(given: Any, what: str) -> dict[str, str]:
    """Return a mapping of strings. Raise Failed for anything else."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise Failed(f"invalid Kustomization: {what} is not a mapping")
    for key, value in given.items():
        if not isinstance(value, str):
            kind = "bool" if isinstance(value, bool) else "number" if isinstance(value, int | float) else "value"
            raise Failed(
                f"invalid Kustomization: json: cannot unmarshal {kind} into Go struct field "
                f"Kustomization.{what}.{key} of type string"
            )
    return given


def objects(data: bytes, source: str) -> list[Obj]:
    """Parse the objects of a text, including items of lists. Raise Failed."""
    found: list[Obj] = []
    for value in _documents(data, source):
        if value is None or value == {}:
            continue
        if not isinstance(value, dict):
            raise Failed(f"{source}: an object is a mapping, not {type(value).__name__}")
        found += _opened(value)
    for obj in found:
        if not obj.get("kind"):
            raise Failed(f"{source}: missing kind in object {obj}")
        if not (obj.get("metadata") or {}).get("name") and not str(obj["kind"]).endswith("List"):
            raise Failed(f"{source}: missing metadata.name in object {obj.get('apiVersion')} {obj['kind']}")
    return found


def _documents(data: bytes, source: str) -> Iterable[Any]:
    start = 0
    for match in (*_SEPARATOR.finditer(data), None):
        end = match.start() if match else len(data)
        if data[start:end].strip():
            try:
                # Prefixed with empty lines, so that error messages have the line number of the file.
                text = b"\n" * data.count(b"\n", 0, start) + data[start:end]
                yield parse_yaml(text, modern=True)[0]
            except BodyError as error:
                raise Failed(f"MalformedYAMLError: {error} in File: {source}") from None
        start = match.end() if match else end


def _opened(obj: Obj) -> list[Obj]:
    if not str(obj.get("kind") or "").endswith("List") or "items" not in obj:
        return [obj]
    if not isinstance(obj["items"], list | None):
        raise Failed(f"expected array in {obj['kind']}/items")
    return [found for item in obj["items"] or () if isinstance(item, dict) for found in _opened(item)]
