"""`transformers`: the built-in transformers, configured as objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from setpoint.cli.failures import Failed
from setpoint.cli.kustomize import transformers
from setpoint.cli.kustomize.configuration import spec_of
from setpoint.cli.kustomize.loading import Loader, texts
from setpoint.cli.kustomize.patches import patch, patch_json, patch_strategic
from setpoint.cli.kustomize.replacements import replace
from setpoint.cli.kustomize.resource import Obj
from setpoint.cli.kustomize.resource_map import ResourceMap
from setpoint.meta.goformat import quote

Step = Callable[[ResourceMap], None]


def step_of(obj: Obj, loader: Loader) -> Step:
    """Return the transformer of an object with `apiVersion: builtin`. Raise Failed for external programs."""
    kind = str(obj.get("kind") or "")
    known = _KINDS.get(kind)
    if obj.get("apiVersion") != "builtin" or known is None:
        raise Failed(f"the transformer {quote(kind)} of {quote(str(obj.get('apiVersion')))} is not supported")
    specs = [spec_of(one) for one in obj.get("fieldSpecs") or ()]
    return lambda resources: known(resources, obj, specs, loader)


def _affixes(resources: ResourceMap, obj: Obj, specs: list[Any], _: Loader) -> None:
    if obj.get("prefix"):
        transformers.add_prefix(resources, str(obj["prefix"]), specs)
    if obj.get("suffix"):
        transformers.add_suffix(resources, str(obj["suffix"]), specs)


def _namespace(resources: ResourceMap, obj: Obj, specs: list[Any], _: Loader) -> None:
    for name in ("unsetOnly", "setRoleBindingSubjects"):
        if obj.get(name):
            raise Failed(f"the field {quote(name)} of NamespaceTransformers is not supported")
    if namespace := (obj.get("metadata") or {}).get("namespace"):
        transformers.set_namespace(resources, str(namespace), specs)


def _labels(resources: ResourceMap, obj: Obj, specs: list[Any], _: Loader) -> None:
    transformers.set_entries(resources, texts(obj.get("labels"), "labels"), specs)


def _annotations(resources: ResourceMap, obj: Obj, specs: list[Any], _: Loader) -> None:
    transformers.set_entries(resources, texts(obj.get("annotations"), "annotations"), specs)


def _image(resources: ResourceMap, obj: Obj, specs: list[Any], _: Loader) -> None:
    transformers.set_image(resources, obj.get("imageTag") or {}, specs)


def _replicas(resources: ResourceMap, obj: Obj, specs: list[Any], _: Loader) -> None:
    transformers.set_replicas(resources, obj.get("replica") or {}, specs)


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
