"""Field specs: paths with `/` between their parts that select fields of kinds, and descend into all items of lists."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from setpoint.cli.failures import Failed
from setpoint.cli.kustomize.resource import Gvk, id_of
from setpoint.meta.objects import Obj

_SLASH = re.compile(r"(?<!\\)/")


class FieldSpec(NamedTuple):
    path: str
    gvk: Gvk = Gvk()
    create: bool = False


Change = Callable[[Any], Any]
"""Maps the value at the end of the path to the new one; None means that there is none."""


def visit(obj: Obj, spec: FieldSpec, change: Change, empty: Callable[[], Any] | None = None) -> None:
    """Change the values of the path. `empty` creates missing fields if the spec allows it."""
    if spec.gvk.selects(id_of(obj)):
        path = [part.replace("\\/", "/") for part in _SLASH.split(spec.path)]
        try:
            _visit(obj, path, change, empty if spec.create else None)
        except Failed as error:
            raise Failed(f"considering field '{spec.path}' of object {id_of(obj)}: {error}") from None


def _visit(node: Any, path: list[str], change: Change, empty: Callable[[], Any] | None) -> None:
    if node is None:
        return
    if isinstance(node, list):
        for item in node:
            _visit(item, path, change, empty)
        return
    if not isinstance(node, dict):
        raise Failed("expected sequence or mapping node")
    name, rest = path[0].removesuffix("[]"), path[1:]
    listed = name != path[0]
    if name not in node or (node[name] is None and empty is not None):
        if empty is None or listed:
            return
        node[name] = {} if rest else empty()
    if rest:
        _visit(node[name], rest, change, empty)
    elif listed and isinstance(node[name], list):
        node[name] = [change(item) for item in node[name]]
    elif node[name] is not None or empty is not None:
        node[name] = change(node[name])


def _template(kind: str) -> str:
    """Return the path of the Pod template of a kind."""
    return {"Pod": "", "PodTemplate": "template/", "CronJob": "spec/jobTemplate/spec/template/"}.get(
        kind, "spec/template/"
    )


def pod_paths(kinds: tuple[str, ...], *paths: str, pod_version: str = "") -> list[FieldSpec]:
    return [
        FieldSpec(f"{_template(kind)}spec/{path}", Gvk(kind, version=pod_version if kind == "Pod" else ""))
        for path in paths
        for kind in kinds
    ]


def _templates_of(field: str, stateful_group: str) -> list[FieldSpec]:
    groups = {"StatefulSet": stateful_group, "Job": "batch"}
    return [
        FieldSpec(f"spec/template/metadata/{field}", Gvk("ReplicationController", version="v1"), True),
        *(
            FieldSpec(f"spec/template/metadata/{field}", Gvk(kind, groups.get(kind, "")), True)
            for kind in ("Deployment", "ReplicaSet", "DaemonSet", "StatefulSet", "Job")
        ),
        FieldSpec(f"spec/jobTemplate/metadata/{field}", Gvk("CronJob", "batch"), True),
        FieldSpec(f"spec/jobTemplate/spec/template/metadata/{field}", Gvk("CronJob", "batch"), True),
    ]


METADATA_NAME = FieldSpec("metadata/name")
METADATA_LABELS = FieldSpec("metadata/labels", create=True)
TEMPLATE_LABELS = [
    METADATA_LABELS,
    *_templates_of("labels", "apps"),
    FieldSpec("spec/volumeClaimTemplates[]/metadata/labels", Gvk("StatefulSet", "apps"), True),
]
_AFFINITY = [
    f"spec/template/spec/affinity/{which}/{when}/labelSelector/matchLabels"
    for which in ("podAffinity", "podAntiAffinity")
    for when in (
        "preferredDuringSchedulingIgnoredDuringExecution/podAffinityTerm",
        "requiredDuringSchedulingIgnoredDuringExecution",
    )
] + ["spec/template/spec/topologySpreadConstraints/labelSelector/matchLabels"]
COMMON_LABELS = [
    FieldSpec("spec/selector", Gvk("Service", version="v1"), True),
    FieldSpec("spec/selector", Gvk("ReplicationController", version="v1"), True),
    FieldSpec("spec/selector/matchLabels", Gvk("Deployment"), True),
    *(FieldSpec(path, Gvk("Deployment", "apps")) for path in _AFFINITY),
    FieldSpec("spec/selector/matchLabels", Gvk("ReplicaSet"), True),
    FieldSpec("spec/selector/matchLabels", Gvk("DaemonSet"), True),
    FieldSpec("spec/selector/matchLabels", Gvk("StatefulSet", "apps"), True),
    *(FieldSpec(path, Gvk("StatefulSet", "apps")) for path in _AFFINITY),
    FieldSpec("spec/selector/matchLabels", Gvk("Job", "batch")),
    FieldSpec("spec/jobTemplate/spec/selector/matchLabels", Gvk("CronJob", "batch")),
    FieldSpec("spec/selector/matchLabels", Gvk("PodDisruptionBudget", "policy")),
    FieldSpec("spec/podSelector/matchLabels", Gvk("NetworkPolicy", "networking.k8s.io")),
    FieldSpec("spec/ingress/from/podSelector/matchLabels", Gvk("NetworkPolicy", "networking.k8s.io")),
    FieldSpec("spec/egress/to/podSelector/matchLabels", Gvk("NetworkPolicy", "networking.k8s.io")),
    *TEMPLATE_LABELS,
]
COMMON_ANNOTATIONS = [FieldSpec("metadata/annotations", create=True), *_templates_of("annotations", "")]
NAMESPACES = [
    FieldSpec("metadata/name", Gvk("Namespace"), True),
    FieldSpec("spec/service/namespace", Gvk("APIService", "apiregistration.k8s.io"), True),
    FieldSpec(
        "spec/conversion/webhook/clientConfig/service/namespace",
        Gvk("CustomResourceDefinition", "apiextensions.k8s.io"),
    ),
]
IMAGES = [
    FieldSpec(f"{root}{path}")
    for root in ("spec/", "spec/template/spec/")
    for path in ("containers[]/image", "initContainers[]/image", "volumes[]/image/reference")
]
REPLICAS = [
    FieldSpec("spec/replicas", Gvk(kind), True)
    for kind in ("Deployment", "ReplicationController", "ReplicaSet", "StatefulSet")
]
_CONTAINER_VARIABLES = ("args", "command", "env/value", "volumeMounts/mountPath")
VARIABLES = [
    *pod_paths(
        ("CronJob", "DaemonSet", "Deployment", "Job", "Pod", "ReplicaSet", "StatefulSet"),
        *(f"{which}/{path}" for which in ("containers", "initContainers") for path in _CONTAINER_VARIABLES),
        "volumes/nfs/server",
    ),
    FieldSpec("spec/template/metadata/annotations", Gvk("Deployment")),
    FieldSpec("spec/rules/host", Gvk("Ingress")),
    FieldSpec("spec/tls/hosts", Gvk("Ingress")),
    FieldSpec("spec/tls/secretName", Gvk("Ingress")),
    FieldSpec("spec/ports/port", Gvk("Service")),
    FieldSpec("spec/ports/targetPort", Gvk("Service")),
    FieldSpec("spec/nfs/server", Gvk("PersistentVolume")),
    FieldSpec("metadata/labels"),
    FieldSpec("metadata/annotations"),
]
