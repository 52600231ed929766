"""What the source asks for: the objects in its files, in the order in which they can be made."""

from __future__ import annotations

from typing import NamedTuple

from setpoint.meta.objects import Obj
from setpoint.sdk import ManifestProblem, manifests

from .kind import Problem
from .source import Snapshot

_FIRST = (
    "Namespace",
    "CustomResourceDefinition",
    "StorageClass",
    "PriorityClass",
    "ServiceAccount",
    "ClusterRole",
    "Role",
    "ClusterRoleBinding",
    "RoleBinding",
    "ConfigMap",
    "Secret",
    "PersistentVolumeClaim",
    "Service",
)
"""What others need comes before them; everything else in the order of the files."""


class Manifest(NamedTuple):
    file: str
    obj: Obj


def read(snapshot: Snapshot) -> tuple[list[Manifest], list[Problem]]:
    """A file that cannot be read is a problem; the others are read all the same."""
    found: list[Manifest] = []
    problems: list[Problem] = []
    for file, data in snapshot.files.items():
        try:
            found += [Manifest(file, obj) for obj in manifests(data)]
        except ManifestProblem as problem:
            problems.append(Problem(file, str(problem)))
    return sorted(found, key=lambda each: _place(each.obj["kind"])), problems


def _place(kind: str) -> int:
    return _FIRST.index(kind) if kind in _FIRST else len(_FIRST)
