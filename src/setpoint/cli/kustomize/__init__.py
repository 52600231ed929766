"""Kustomizations: build the objects of a directory with a kustomization.yaml, as the kustomize in kubectl does.

Unsupported features are rejected by name: plugins, Helm charts, custom schemas, and remote resources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from setpoint.cli.failures import Failed
from setpoint.cli.files import CommandFiles
from setpoint.cli.kustomize.generators import name_hash
from setpoint.cli.kustomize.loading import Loader, is_remote
from setpoint.cli.kustomize.references import fix_references
from setpoint.cli.kustomize.replacements import resolve_variables
from setpoint.cli.kustomize.resource import Resource
from setpoint.cli.kustomize.resource_map import ordered
from setpoint.cli.kustomize.target import Target
from setpoint.meta.goformat import plain

_LOCAL = "config.kubernetes.io/local-config"
_ORIGIN, _TRANSFORMATIONS = "config.kubernetes.io/origin", "alpha.config.kubernetes.io/transformations"
_MANAGED_BY, _MANAGER = "app.kubernetes.io/managed-by", "kustomize-(devel)"


def build(
    directory: str, files: CommandFiles, *, confined: bool = True, warn: Callable[[str], None] = lambda _: None
) -> Iterator[dict[str, Any]]:
    """Yield the objects, dependencies first unless the kustomization sets another order.

    With `confined`, files must be in the kustomization's directory or below it. `warn` is called with deprecation
    warnings. Raise Failed.
    """
    if is_remote(directory):
        raise Failed(
            f"{directory}: kustomizations are not fetched from the network; fetch it yourself and name its path"
        )
    root = files.resolved(directory)
    found = files.status(root)
    if found is None or not found.is_directory:
        raise Failed(
            f"must build at directory: not a valid directory: evalsymlink failure on '{directory}' : "
            f"lstat {root}: no such file or directory"
            if found is None
            else f"must build at directory: not a valid directory: file is not directory: '{root}'"
        )
    target = Target(Loader(files, root, confined=confined, warn=warn))
    gathered = target.gathered()
    resources = gathered.resources
    for one in resources.all:
        if one.hashed:
            one.remember_id()
            one.meta["name"] = f"{one.name}-{name_hash(one.obj)}"
    fix_references(resources, gathered.config.references)
    resolve_variables(resources, gathered.variables, gathered.config.specs["varReference"])
    included = [one for one in resources.all if (one.meta.get("annotations") or {}).get(_LOCAL, "false") == "false"]
    for one in ordered(included, target.given.get("sortOptions")):
        _describe(one, target.metadata)
        yield one.obj


def _describe(one: Resource, metadata: list[str]) -> None:
    """Add the origin metadata that the kustomization requests."""
    if "managedByLabel" in metadata:
        one.meta["labels"] = {**(one.meta.get("labels") or {}), _MANAGED_BY: _MANAGER}
    if one.before and not one.meta.get("annotations"):
        one.meta.pop("annotations", None)  # nothing is left after kustomize has removed its own annotations
    if annotations := one.meta.get("annotations"):
        one.meta["annotations"] = {
            key: value if isinstance(value, str) else plain(value) for key, value in annotations.items()
        }
    origin_annotations: dict[str, Any] = {}
    if "originAnnotations" in metadata and one.origin:
        origin_annotations[_ORIGIN] = "".join(_lines(one.origin))
    if "transformerAnnotations" in metadata and one.transformations:
        origin_annotations[_TRANSFORMATIONS] = "".join(
            ("- " if at == 0 else "  ") + line for each in one.transformations for at, line in enumerate(_lines(each))
        )
    if origin_annotations:
        one.meta["annotations"] = {**(one.meta.get("annotations") or {}), **origin_annotations}


def _lines(given: dict[str, Any], indent: str = "") -> Iterator[str]:
    for key, value in given.items():
        if isinstance(value, dict):
            yield f"{indent}{key}:\n"
            yield from _lines(value, indent + "  ")
        else:
            yield f"{indent}{key}: {value}\n"
