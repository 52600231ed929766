"""ObjectMeta, selectors and references of objects.

Generated from the field tables by `tools/make_typed_kinds.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from typing_extensions import ReadOnly


class LabelSelector(TypedDict, total=False):
    matchLabels: ReadOnly[Mapping[str, str]]
    matchExpressions: ReadOnly[Sequence[LabelSelectorRequirement]]


class LabelSelectorRequirement(TypedDict, total=False):
    key: ReadOnly[str]
    operator: ReadOnly[str]
    values: ReadOnly[Sequence[str]]


class ManagedFieldsEntry(TypedDict, total=False):
    manager: ReadOnly[str]
    operation: ReadOnly[str]
    apiVersion: ReadOnly[str]
    time: ReadOnly[str]
    fieldsType: ReadOnly[str]
    fieldsV1: ReadOnly[Any]
    subresource: ReadOnly[str]


class NodeSelector(TypedDict, total=False):
    nodeSelectorTerms: ReadOnly[Sequence[NodeSelectorTerm]]


class NodeSelectorRequirement(TypedDict, total=False):
    key: ReadOnly[str]
    operator: ReadOnly[str]
    values: ReadOnly[Sequence[str]]


class NodeSelectorTerm(TypedDict, total=False):
    matchExpressions: ReadOnly[Sequence[NodeSelectorRequirement]]
    matchFields: ReadOnly[Sequence[NodeSelectorRequirement]]


class ObjectMeta(TypedDict, total=False):
    name: ReadOnly[str]
    generateName: ReadOnly[str]
    namespace: ReadOnly[str]
    selfLink: ReadOnly[str]
    uid: ReadOnly[str]
    resourceVersion: ReadOnly[str]
    generation: ReadOnly[int]
    creationTimestamp: ReadOnly[str]
    deletionTimestamp: ReadOnly[str]
    deletionGracePeriodSeconds: ReadOnly[int]
    labels: ReadOnly[Mapping[str, str]]
    annotations: ReadOnly[Mapping[str, str]]
    ownerReferences: ReadOnly[Sequence[OwnerReference]]
    finalizers: ReadOnly[Sequence[str]]
    managedFields: ReadOnly[Sequence[ManagedFieldsEntry]]


class ObjectReference(TypedDict, total=False):
    kind: ReadOnly[str]
    namespace: ReadOnly[str]
    name: ReadOnly[str]
    uid: ReadOnly[str]
    apiVersion: ReadOnly[str]
    resourceVersion: ReadOnly[str]
    fieldPath: ReadOnly[str]


class OwnerReference(TypedDict, total=False):
    apiVersion: ReadOnly[str]
    kind: ReadOnly[str]
    name: ReadOnly[str]
    uid: ReadOnly[str]
    controller: ReadOnly[bool]
    blockOwnerDeletion: ReadOnly[bool]
