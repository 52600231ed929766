"""Build one kustomization: collect, generate and transform its objects, in the order of kustomize."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from setpoint.cli.failures import Failed
from setpoint.cli.kustomize import transformers
from setpoint.cli.kustomize.configuration import Configuration
from setpoint.cli.kustomize.external import step_of
from setpoint.cli.kustomize.field_specs import FieldSpec
from setpoint.cli.kustomize.generators import generate
from setpoint.cli.kustomize.loading import COMPONENT, Loader, is_remote, load, objects, texts
from setpoint.cli.kustomize.patches import patch, patch_json, patch_strategic
from setpoint.cli.kustomize.replacements import note_variables, replace
from setpoint.cli.kustomize.resource import Obj, Resource
from setpoint.cli.kustomize.resource_map import ResourceMap

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
        if (self.loader.root / path).is_dir():
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
                        lambda m, one: transformers.set_namespace(m, one, specs["namespace"]),
                    ),
                )
            )
        if given.get("namePrefix"):
            steps.append(
                (
                    "PrefixTransformer",
                    _one(str(given["namePrefix"]), lambda m, one: transformers.add_prefix(m, one, specs["namePrefix"])),
                )
            )
        if given.get("nameSuffix"):
            steps.append(
                (
                    "SuffixTransformer",
                    _one(str(given["nameSuffix"]), lambda m, one: transformers.add_suffix(m, one, specs["nameSuffix"])),
                )
            )
        labels, common = given.get("labels") or [], texts(given.get("commonLabels"), "commonLabels")
        for entry in labels:
            steps.append(("LabelTransformer", _one(entry, lambda m, one: transformers.set_labels(m, one, config))))
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
                    _one(entry, lambda m, one: transformers.set_replicas(m, one, specs["replicas"])),
                )
            )
        for entry in given["images"]:
            steps.append(
                ("ImageTagTransformer", _one(entry, lambda m, one: transformers.set_image(m, one, specs["images"])))
            )
        replacements = given.get("replacements") or []
        if replacements:
            steps.append(("ReplacementTransformer", _each(replacements, lambda m, one: replace(m, loader, one))))
        return steps

    def _external(self) -> list[Callable[[ResourceMap], None]]:
        """Return the `transformers`: files, directories, or inline objects."""
        told = Gathered()
        for given in self.given.get("transformers") or ():
            text = str(given)
            if "\n" in text or text.lstrip().startswith("{"):
                told.resources.extend([Resource(obj) for obj in objects(text.encode(), "transformers")])
            else:
                self._resource(told, text)
        return [step_of(one.obj, self.loader) for one in told.resources.all]

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
    return lambda resources: transformers.set_entries(resources, pairs, specs)
