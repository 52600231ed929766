"""Build one kustomization: collect, generate and transform its objects, in the order of kustomize."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from setpoint.cli.failures import Failed
from setpoint.cli.files import is_directory
from setpoint.cli.kustomize import field_specs
from setpoint.cli.kustomize.configuration import Configuration, spec_of
from setpoint.cli.kustomize.field_specs import FieldSpec, visit
from setpoint.cli.kustomize.generators import generate
from setpoint.cli.kustomize.loading import COMPONENT, Loader, is_remote, load, objects, texts
from setpoint.cli.kustomize.patches import patch, patch_json, patch_strategic
from setpoint.cli.kustomize.replacements import note_variables, replace
from setpoint.cli.kustomize.resource import Gvk, Resource, cluster_scoped
from setpoint.cli.kustomize.resource_map import ResourceMap
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj

_KEEP_THEIR_NAMES = (Gvk("CustomResourceDefinition"), Gvk("APIService", "apiregistration.k8s.io"), Gvk("Namespace"))
_BINDINGS = ("RoleBinding", "ClusterRoleBinding")
_TAG = r"(:[a-zA-Z0-9_.{}-]*)?(@sha256:[a-zA-Z0-9_.{}-]*)?"


def set_namespace(resources: ResourceMap, namespace: str, specs: list[FieldSpec]) -> None:
    for one in resources.all:
        one.remember_id()
        obj = one.obj
        if not cluster_scoped(str(obj.get("apiVersion") or ""), str(obj.get("kind") or "")):
            one.meta["namespace"] = namespace
        if obj.get("kind") in _BINDINGS:
            for subject in obj.get("subjects") or ():
                if isinstance(subject, dict) and subject.get("name") == "default":
                    subject["namespace"] = namespace
        for spec in specs:
            if spec.path != "metadata/namespace" and (spec.path != "metadata/name" or obj.get("apiVersion") == "v1"):
                visit(obj, spec, lambda _: namespace, str)
        if sum(other.id == one.id for other in resources.all) != 1:
            raise Failed(f"namespace transformation produces ID conflict: {one.id}")


def add_prefix(resources: ResourceMap, prefix: str, specs: list[FieldSpec]) -> None:
    for one in resources.all:
        if not any(kept.selects(one.first_id) for kept in _KEEP_THEIR_NAMES):
            for spec in specs:
                if spec.path == "metadata/name" and spec.gvk.selects(one.first_id):
                    one.prefixes.append(prefix)
                    one.remember_id()
                visit(one.obj, spec, lambda found: f"{prefix}{found}")


def add_suffix(resources: ResourceMap, suffix: str, specs: list[FieldSpec]) -> None:
    for one in resources.all:
        if not any(kept.selects(one.first_id) for kept in _KEEP_THEIR_NAMES):
            for spec in specs:
                if spec.path == "metadata/name" and spec.gvk.selects(one.first_id):
                    one.suffixes.append(suffix)
                    one.remember_id()
                visit(one.obj, spec, lambda found: f"{found}{suffix}")


def set_labels(resources: ResourceMap, given: Any, config: Configuration) -> None:
    """Apply an entry of `labels`."""
    specs = [*map(spec_of, given.get("fields") or ()), *config.specs["labels"]]
    if given.get("includeSelectors"):
        specs += config.specs["commonLabels"]
    else:
        specs += config.specs["templateLabels"] if given.get("includeTemplates") else []
        specs.append(field_specs.METADATA_LABELS)
    set_entries(resources, texts(given.get("pairs"), "pairs"), list(dict.fromkeys(specs)))


def set_entries(resources: ResourceMap, pairs: dict[str, str], specs: list[FieldSpec]) -> None:
    def change(found: Any) -> Any:
        if not isinstance(found, dict):
            raise Failed("wrong node kind: expected MappingNode")
        return {**found, **pairs}

    if pairs:
        for one in resources.all:
            for spec in specs:
                visit(one.obj, spec, change, dict)


def set_replicas(resources: ResourceMap, given: Any, specs: list[FieldSpec]) -> None:
    name, count = given.get("name") or "", given.get("count") or 0
    if not isinstance(name, str) or not isinstance(count, int):
        raise Failed("invalid Kustomization: replicas have a name and a count")
    found = False
    for spec in specs:
        for one in resources.matching(lambda found, spec=spec: found.name == name and spec.gvk.selects(found)):  # type: ignore[misc]
            found = True
            visit(one.obj, spec, lambda _: count, int)
    if not found:
        kinds = " ".join(str(spec.gvk) for spec in specs)
        raise Failed(f"resource with name {name} does not match a config with the following GVK [{kinds}]")


def set_image(resources: ResourceMap, given: Any, specs: list[FieldSpec]) -> None:
    image = {key: str(value) for key, value in given.items() if value is not None}
    name = image.get("name", "")
    try:
        pattern = re.compile(name + _TAG)
    except re.error as error:
        raise Failed(f"images: the name {name!r} is no pattern: {error}") from None

    def change(found: Any) -> Any:
        if not isinstance(found, str) or not pattern.fullmatch(found):
            return found
        return _renamed(found, image)

    def walk(value: Any) -> None:
        # Any field `containers` of any kind counts.
        if isinstance(value, dict):
            for key, member in value.items():
                walk(member)
                if key in ("containers", "initContainers") and isinstance(member, list):
                    for item in member:
                        if isinstance(item, dict) and "image" in item:
                            item["image"] = change(item["image"])
        elif isinstance(value, list):
            for item in value:
                walk(item)

    for one in resources.all:
        if one.obj.get("kind") != "CustomResourceDefinition":
            walk(one.obj)
            for spec in specs:
                visit(one.obj, spec, change)


def _renamed(found: str, image: dict[str, str]) -> str:
    name, tag, digest = split_image(found)
    name = image.get("newName") or name
    new_tag, new_digest = image.get("newTag", ""), image.get("digest", "")
    if new_tag or new_digest:
        tag, digest = new_tag, new_digest
    elif image.get("tagSuffix"):
        tag, digest = tag + image["tagSuffix"], ""
    return name + (f":{tag}" if tag else "") + (f"@{digest}" if digest else "")


def split_image(found: str) -> tuple[str, str, str]:
    """Split an image into name, tag and digest; a registry port is part of the name."""
    slash = max(found.find("/"), 0)
    rest = found[slash:]
    bare, _, digest = rest.partition("@")
    name, _, tag = bare.partition(":")
    return found[:slash] + name, tag, digest


Transform = Callable[[ResourceMap], None]


def step_of(obj: Obj, loader: Loader) -> Transform:
    """Return the transformer of an object with `apiVersion: builtin`. Raise Failed for external programs."""
    kind = str(obj.get("kind") or "")
    known = _KINDS.get(kind)
    if obj.get("apiVersion") != "builtin" or known is None:
        raise Failed(f"the transformer {quote(kind)} of {quote(str(obj.get('apiVersion')))} is not supported")
    specs = [spec_of(one) for one in obj.get("fieldSpecs") or ()]
    return lambda resources: known(resources, obj, specs, loader)


def _affixes(resources: ResourceMap, obj: Obj, specs: list[Any], _: Loader) -> None:
    if obj.get("prefix"):
        add_prefix(resources, str(obj["prefix"]), specs)
    if obj.get("suffix"):
        add_suffix(resources, str(obj["suffix"]), specs)


def _namespace(resources: ResourceMap, obj: Obj, specs: list[Any], _: Loader) -> None:
    for name in ("unsetOnly", "setRoleBindingSubjects"):
        if obj.get(name):
            raise Failed(f"the field {quote(name)} of NamespaceTransformers is not supported")
    if namespace := (obj.get("metadata") or {}).get("namespace"):
        set_namespace(resources, str(namespace), specs)


def _labels(resources: ResourceMap, obj: Obj, specs: list[Any], _: Loader) -> None:
    set_entries(resources, texts(obj.get("labels"), "labels"), specs)


def _annotations(resources: ResourceMap, obj: Obj, specs: list[Any], _: Loader) -> None:
    set_entries(resources, texts(obj.get("annotations"), "annotations"), specs)


def _image(resources: ResourceMap, obj: Obj, specs: list[Any], _: Loader) -> None:
    set_image(resources, obj.get("imageTag") or {}, specs)


def _replicas(resources: ResourceMap, obj: Obj, specs: list[Any], _: Loader) -> None:
    set_replicas(resources, obj.get("replica") or {}, specs)


def _patch(resources: ResourceMap, obj: Obj, _: list[Any], loader: Loader) -> None:
    patch(resources, loader, obj)


def _patch_strategic(resources: ResourceMap, obj: Obj, _: list[Any], loader: Loader) -> None:
    for given in (*(obj.get("paths") or ()), *([obj["patches"]] if obj.get("patches") else ())):
        patch_strategic(resources, loader, given)


def _patch_json(resources: ResourceMap, obj: Obj, _: list[Any], loader: Loader) -> None:
    patch_json(resources, loader, {**obj, "patch": obj.get("jsonOp")})


def _replace(resources: ResourceMap, obj: Obj, _: list[Any], loader: Loader) -> None:
    for given in obj.get("replacements") or ():
        replace(resources, loader, given)


_KINDS: dict[str, Callable[[ResourceMap, Obj, list[Any], Loader], None]] = {
    "PrefixTransformer": _affixes,
    "SuffixTransformer": _affixes,
    "PrefixSuffixTransformer": _affixes,
    "NamespaceTransformer": _namespace,
    "LabelTransformer": _labels,
    "AnnotationsTransformer": _annotations,
    "ImageTagTransformer": _image,
    "ReplicaCountTransformer": _replicas,
    "PatchTransformer": _patch,
    "PatchStrategicMergeTransformer": _patch_strategic,
    "PatchJson6902Transformer": _patch_json,
    "ReplacementTransformer": _replace,
}


Step = tuple[str, Callable[[ResourceMap], None]]
"""The name of a transformer in kustomize, and its function."""


class Gathered:
    """The collected objects, variables by name, and transformer configuration."""

    def __init__(self) -> None:
        self.resources = ResourceMap()
        self.variables: dict[str, dict[str, Any]] = {}
        self.config = Configuration()

    def take(self, other: Gathered) -> None:
        self.resources.extend(other.resources.all)
        self.config.take(other.config)
        for name, given in other.variables.items():
            if name in self.variables:
                raise Failed(f"var '{name}' already encountered")
            self.variables[name] = given


class Target:
    def __init__(self, loader: Loader, origin: str | None = None, metadata: list[str] | None = None) -> None:
        """Create a target; `origin` is the path from the root of the build, or None if origins are not recorded."""
        self.loader = loader
        self.given, self.file = load(loader)
        self.metadata: list[str] = self.given.get("buildMetadata") or [] if metadata is None else metadata
        self.origin = origin if origin is not None or not self.metadata else ""

    def gathered(self, into: Gathered | None = None) -> Gathered:
        """Collect the objects; a component adds to those of its user, and transforms all of them."""
        found = into or Gathered()
        try:
            for path in self.given["resources"]:
                self._resource(found, str(path))
        except Failed as error:
            raise Failed(f"accumulating resources: {error}") from None
        for path in self.given.get("configurations") or ():
            found.config.add(self.loader.bytes(str(path)), str(path))
        self._generate(found)
        try:
            for path in self.given.get("components") or ():
                self._directory(found, str(path), component=True)
        except Failed as error:
            raise Failed(f"accumulating components: {error}") from None
        for kind, step in self._steps(found.config):
            step(found.resources)
            if self.origin is not None:
                for one in found.resources.all:
                    self._note(one, kind)
            found.resources.drop_empty()
        for step in self._external():
            step(found.resources)
            found.resources.drop_empty()
        note_variables(found.resources, found.variables, self.given.get("vars") or [])
        return found

    def _resource(self, found: Gathered, path: str) -> None:
        if is_remote(path):
            raise Failed(f"{path}: resources are not fetched from the network; fetch it yourself and name its path")
        if is_directory(self.loader.files, self.loader.path(path)):
            try:
                self._directory(found, path, component=False)
            except Failed as error:
                raise Failed(f"accumulating resources from '{path}': {error}") from None
            return
        try:
            made = [Resource(deepcopy(obj)) for obj in objects(self.loader.bytes(path), path)]
        except Failed as error:
            raise Failed(f"accumulating resources from '{path}': {error}") from None
        if self.origin is not None:
            for one in made:
                one.origin = {"path": posixpath.normpath(posixpath.join(self.origin, path))}
        try:
            found.resources.extend(made)
        except Failed as error:
            raise Failed(f"merging resources from '{path}': {error}") from None

    def _directory(self, found: Gathered, path: str, *, component: bool) -> None:
        loader = self.loader.inside(path)
        origin = None if self.origin is None else posixpath.normpath(posixpath.join(self.origin, path))
        inner = Target(loader, origin, self.metadata)
        if component != (inner.given["kind"] == COMPONENT[1]):
            wanted = f"kind '{COMPONENT[1]}'" if component else f"kind != '{COMPONENT[1]}'"
            but = f" but got '{inner.given['kind']}'" if component else ""
            raise Failed(f"expected {wanted} for path '{loader.root}'{but}")
        try:
            if component:
                inner.gathered(found)
            else:
                found.take(inner.gathered())
        except Failed as error:
            raise Failed(f"recursed accumulation of path '{loader.root}': {error}") from None

    def _generate(self, found: Gathered) -> None:
        for kind, field in (("ConfigMap", "configMapGenerator"), ("Secret", "secretGenerator")):
            for entry in self.given.get(field) or ():
                one = generate(self.loader, kind, entry, self.given.get("generatorOptions"))
                if self.origin is not None:
                    one.origin = self._configured(f"{kind}Generator")
                found.resources.absorb(one)

    def _steps(self, config: Configuration) -> list[Step]:
        given, loader, specs = self.given, self.loader, config.specs
        steps: list[Step] = []
        strategic = given.get("patchesStrategicMerge") or []
        if strategic:
            steps.append(
                ("PatchStrategicMergeTransformer", _each(strategic, lambda m, one: patch_strategic(m, loader, one)))
            )
        for entry in given.get("patches") or ():
            steps.append(("PatchTransformer", _one(entry, lambda m, one: patch(m, loader, one))))
        if given.get("namespace"):
            steps.append(
                (
                    "NamespaceTransformer",
                    _one(
                        str(given["namespace"]),
                        lambda m, one: set_namespace(m, one, specs["namespace"]),
                    ),
                )
            )
        if given.get("namePrefix"):
            steps.append(
                (
                    "PrefixTransformer",
                    _one(str(given["namePrefix"]), lambda m, one: add_prefix(m, one, specs["namePrefix"])),
                )
            )
        if given.get("nameSuffix"):
            steps.append(
                (
                    "SuffixTransformer",
                    _one(str(given["nameSuffix"]), lambda m, one: add_suffix(m, one, specs["nameSuffix"])),
                )
            )
        labels, common = given.get("labels") or [], texts(given.get("commonLabels"), "commonLabels")
        for entry in labels:
            steps.append(("LabelTransformer", _one(entry, lambda m, one: set_labels(m, one, config))))
        if labels or common:
            steps.append(("LabelTransformer", _entries(common, specs["commonLabels"])))
        annotations = texts(given.get("commonAnnotations"), "commonAnnotations")
        if annotations:
            steps.append(("AnnotationsTransformer", _entries(annotations, specs["commonAnnotations"])))
        for entry in given.get("patchesJson6902") or ():
            steps.append(("PatchJson6902Transformer", _one(entry, lambda m, one: patch_json(m, loader, one))))
        for entry in given.get("replicas") or ():
            steps.append(
                (
                    "ReplicaCountTransformer",
                    _one(entry, lambda m, one: set_replicas(m, one, specs["replicas"])),
                )
            )
        for entry in given["images"]:
            steps.append(("ImageTagTransformer", _one(entry, lambda m, one: set_image(m, one, specs["images"]))))
        replacements = given.get("replacements") or []
        if replacements:
            steps.append(("ReplacementTransformer", _each(replacements, lambda m, one: replace(m, loader, one))))
        return steps

    def _external(self) -> list[Callable[[ResourceMap], None]]:
        """Return the `target`: files, directories, or inline objects."""
        configs = Gathered()
        for given in self.given.get("transformers") or ():
            text = str(given)
            if "\n" in text or text.lstrip().startswith("{"):
                configs.resources.extend([Resource(obj) for obj in objects(text.encode(), "transformers")])
            else:
                self._resource(configs, text)
        return [step_of(one.obj, self.loader) for one in configs.resources.all]

    def _configured(self, kind: str) -> Obj:
        assert self.origin is not None
        return {
            "configuredIn": posixpath.normpath(posixpath.join(self.origin, self.file)),
            "configuredBy": {"apiVersion": "builtin", "kind": kind},
        }

    def _note(self, one: Resource, kind: str) -> None:
        if one.origin is None:
            one.origin = self._configured(kind)
        else:
            one.transformations.append(self._configured(kind))


def _one(entry: Any, change: Callable[[ResourceMap, Any], None]) -> Callable[[ResourceMap], None]:
    return lambda resources: change(resources, entry)


def _each(entries: list[Any], change: Callable[[ResourceMap, Any], None]) -> Callable[[ResourceMap], None]:
    def step(resources: ResourceMap) -> None:
        for entry in entries:
            change(resources, entry)

    return step


def _entries(pairs: dict[str, str], specs: list[FieldSpec]) -> Callable[[ResourceMap], None]:
    return lambda resources: set_entries(resources, pairs, specs)
