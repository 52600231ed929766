"""Set namespaces, names, labels, annotations, replicas and images in all objects."""

from __future__ import annotations

import re
from typing import Any

from setpoint.cli.failures import Failed
from setpoint.cli.kustomize import field_specs
from setpoint.cli.kustomize.configuration import Configuration, spec_of
from setpoint.cli.kustomize.field_specs import FieldSpec, visit
from setpoint.cli.kustomize.loading import texts
from setpoint.cli.kustomize.resource import Gvk, cluster_scoped
from setpoint.cli.kustomize.resource_map import ResourceMap

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
