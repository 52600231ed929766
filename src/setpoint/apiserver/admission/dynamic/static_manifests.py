"""Webhooks and policies from files: they apply from the first request on, and cannot be changed through the API."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from setpoint.apiserver.admission.dynamic.matching import GROUP
from setpoint.apiserver.config_files import FileProblem, document, many, read_config
from setpoint.kinds.admissionregistration.rules import STATIC_SUFFIX
from setpoint.kinds.catalog import RESOURCES, Resource
from setpoint.kinds.strategy import Context
from setpoint.meta.clock import Clock
from setpoint.meta.field import Errors, aggregate_message
from setpoint.meta.goformat import quote
from setpoint.meta.objectmeta import validate_object_meta
from setpoint.meta.objects import Obj
from setpoint.meta.schema import Shape, Type

_SEPARATOR = re.compile(rb"^---([^\n]*)(?:\n|\Z)", re.MULTILINE)
_LIST = ("v1", "List")
_MAX_LIST_DEPTH = 20
_OLD_VERSIONS = {"v1beta1": ("WebhookConfiguration", "AdmissionPolicy"), "v1alpha1": ("AdmissionPolicy",)}
"""Kinds of earlier versions, by version, which are recognized but not supported."""
_SCHEMES = {
    True: "pkg/admission/plugin/webhook/manifest/loader/loader.go:41",
    False: "pkg/admission/plugin/policy/manifest/loader/validating_loader.go:35",
}
"""Upstream's names of the decoders, which its messages contain: of webhooks (True) and of policies (False)."""


class _Unsupported(FileProblem):
    """The object could be decoded but is of an unsupported kind."""


class StaticManifests:
    """The objects in the files of one plugin."""

    def __init__(self, plurals: Sequence[str], clock: Clock) -> None:
        """`plurals` names the only resources that the files may contain."""
        ours = [one for one in RESOURCES if (one.group, one.version) == (GROUP, "v1")]
        self._clock = clock
        self._wanted = {one.kind: one for one in ours if one.plural in plurals}
        self._lists = {one.list_kind: one for one in self._wanted.values()}
        self._kinds: dict[tuple[str, str], Type] = {
            _LIST: document("v1.List", items=many(Type(Shape.ANY, go="runtime.RawExtension")))
        }
        for one in ours:
            self._kinds[(one.api_version, one.kind)] = one.strategy.type
            self._kinds[(one.api_version, one.list_kind)] = document(
                f"v1.{one.list_kind}", items=many(one.strategy.type)
            )
        self._scheme = _SCHEMES[any(plural.endswith("webhookconfigurations") for plural in plurals)]
        old = {
            version: {kind for one in ours if _is_any(one.kind, parts) for kind in (one.kind, one.list_kind)}
            for version, parts in _OLD_VERSIONS.items()
        }
        self._unsupported_versions = {
            (f"{GROUP}/{version}", kind): version for version, kinds in old.items() for kind in kinds
        }
        self._objects: dict[str, list[Obj]] = {}
        self.revision = 0
        """Incremented with every load."""

    def objects_of(self, plural: str) -> Sequence[Obj]:
        """Return the objects of a resource, by name."""
        return self._objects.get(plural, ())

    def load(self, files: Sequence[tuple[str, bytes]]) -> None:
        """Replace all objects by those in these files, given as paths and contents. Raises FileProblem, and then
        changes nothing."""
        found: dict[str, dict[str, Obj]] = {one.plural: {} for one in self._wanted.values()}
        seen: dict[tuple[str, str], str] = {}
        for path, data in files:
            for text in _documents(path, data):
                try:
                    for resource, obj in self._objects_in(self._read(text)):
                        name = _check(resource, obj, path, seen)
                        found[resource.plural][name] = obj
                except FileProblem as problem:
                    raise FileProblem(f"error loading {path}: {problem}") from None
        _check_references(found)
        self._objects = {plural: [obj for _, obj in sorted(objs.items())] for plural, objs in found.items()}
        self.revision += 1

    def _read(self, text: bytes) -> Obj:
        return read_config(text, self._kinds, self._unknown)

    def _objects_in(self, read: Obj, depth: int = 0) -> list[tuple[Resource, Obj]]:
        kind = read.pop("kind")
        if (read.pop("apiVersion"), kind) == _LIST:
            if depth > _MAX_LIST_DEPTH:
                raise FileProblem(f"lists are nested more than {_MAX_LIST_DEPTH} levels deep")
            return [one for item in read.get("items") or () for one in self._item(item, depth)]
        resource = self._wanted.get(kind) or self._lists.get(kind)
        if resource is None:
            raise FileProblem(f"unsupported resource type *v1.{kind}")
        objs = [read] if kind in self._wanted else read.get("items") or ()
        return [(resource, self._valid(resource, obj)) for obj in objs]

    def _unknown(self, api_version: str, kind: str) -> FileProblem:
        if version := self._unsupported_versions.get((api_version, kind)):
            return _Unsupported(f"unsupported resource type *{version}.{kind}")
        known = f"no kind {quote(kind)} is registered for version {quote(api_version)}"
        return FileProblem(f"{known} in scheme {quote(self._scheme)}")

    def _item(self, item: Any, depth: int) -> list[tuple[Resource, Obj]]:
        text = orjson.dumps(item) if item is not None else b""
        try:
            read = self._read(text)
        except _Unsupported:
            raise
        except FileProblem as problem:
            raise FileProblem(f"failed to decode list item: {problem}") from None
        return self._objects_in(read, depth + 1)

    def _valid(self, resource: Resource, obj: Obj) -> Obj:
        strategy, meta = resource.strategy, obj.setdefault("metadata", {})
        strategy.default(obj)
        errs: Errors = []
        validate_object_meta(meta, resource.namespaced, strategy.validate_name, "metadata", errs)
        strategy.validate(obj, errs, Context(self._clock.now(), from_file=True))
        if errs:
            raise FileProblem(f"{resource.kind} {quote(meta.get('name', ''))}: {aggregate_message(errs)}")
        return obj


def _is_any(kind: str, parts: Sequence[str]) -> bool:
    return any(part in kind for part in parts)


def _documents(path: str, data: bytes) -> Iterator[bytes]:
    start = 0
    for match in (*_SEPARATOR.finditer(data), None):
        text = data[start : match.start() if match else len(data)].strip()
        if text:
            yield text
        if match:
            start, after = match.end(), match.group(1).decode("utf-8", "replace").strip()
            if after and not after.startswith("#"):
                why = f"invalid Yaml document separator: {after}"
                raise FileProblem(f"failed to split YAML documents in file {quote(path)}: {why}")


def _check(resource: Resource, obj: Obj, path: str, seen: dict[tuple[str, str], str]) -> str:
    """Check what is required of objects in files only, and return the name. Raises FileProblem."""
    name: str = obj["metadata"].get("name", "")
    if not name:
        raise FileProblem(f"resource in file {quote(path)} must have a name")
    if not name.endswith(STATIC_SUFFIX):
        raise FileProblem(f"{quote(name)} in file {quote(path)} must have a name ending with {quote(STATIC_SUFFIX)}")
    if (resource.plural, name) in seen:
        before = quote(seen[(resource.plural, name)])
        raise FileProblem(f"duplicate name {quote(name)} found in file {quote(path)} (previously seen in {before})")
    seen[(resource.plural, name)] = path
    if resource.plural.endswith("webhookconfigurations"):
        _check_webhooks(name, obj, path)
    elif resource.plural.endswith("bindings"):
        _check_binding(name, obj["spec"])
    elif obj["spec"].get("paramKind") is not None:
        raise FileProblem(f"{resource.kind} {quote(name)}: spec.paramKind is not supported for static manifests")
    return name


def _check_webhooks(name: str, obj: Obj, path: str) -> None:
    for hook in obj.get("webhooks") or ():
        if hook["clientConfig"].get("service") is not None:
            raise FileProblem(
                f"webhook {quote(hook['name'])} in {quote(name)} (file {quote(path)}): clientConfig.service is not "
                "supported for static manifests; use clientConfig.url instead"
            )


def _check_binding(name: str, spec: Obj) -> None:
    policy = spec["policyName"]
    if not policy.endswith(STATIC_SUFFIX):
        raise FileProblem(
            f"binding {quote(name)}: spec.policyName {quote(policy)} must end with {quote(STATIC_SUFFIX)}"
        )
    if spec.get("paramRef") is not None:
        raise FileProblem(f"binding {quote(name)}: spec.paramRef is not supported for static manifests")


def _check_references(found: dict[str, dict[str, Obj]]) -> None:
    for plural, bindings in found.items():
        if not plural.endswith("bindings"):
            continue
        policies = found[plural.replace("policybindings", "policies")]
        for name, binding in sorted(bindings.items()):
            policy = binding["spec"]["policyName"]
            if policy not in policies:
                raise FileProblem(
                    f"binding {quote(name)} references policy {quote(policy)} which does not exist in the manifest "
                    "directory"
                )
