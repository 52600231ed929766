"""Update references between objects when objects are renamed."""

from __future__ import annotations

from typing import Any, NamedTuple

from setpoint.cli.failures import Failed
from setpoint.cli.kustomize.field_specs import FieldSpec, pod_paths, visit
from setpoint.cli.kustomize.resource import NO_NAMESPACE, Gvk, Resource
from setpoint.cli.kustomize.resource_map import ResourceMap
from setpoint.meta.objects import Obj

_RBAC, _ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
_SCALED = [FieldSpec("spec/scaleTargetRef/name", Gvk("HorizontalPodAutoscaler"))]
_ALL = ("Pod", "PodTemplate", "Deployment", "ReplicaSet", "DaemonSet", "StatefulSet", "Job", "CronJob")
_SOME = ("Pod", "StatefulSet", "Deployment", "ReplicationController", "CronJob", "Job", "DaemonSet")
_NGINX = "metadata/annotations/nginx.ingress.kubernetes.io\\/"


def _specs(*pairs: tuple[str, str], group: str = "") -> list[FieldSpec]:
    return [FieldSpec(path, Gvk(kind, group)) for path, kind in pairs]


REFERENCES: list[tuple[Gvk, list[FieldSpec]]] = [
    (Gvk("Deployment"), _SCALED),
    (Gvk("ReplicationController"), _SCALED),
    (Gvk("ReplicaSet"), _SCALED),
    (Gvk("StatefulSet"), _SCALED),
    (
        Gvk("ConfigMap", version="v1"),
        [
            *pod_paths(
                _ALL,
                "volumes/configMap/name",
                "containers/env/valueFrom/configMapKeyRef/name",
                "initContainers/env/valueFrom/configMapKeyRef/name",
                "containers/envFrom/configMapRef/name",
                "initContainers/envFrom/configMapRef/name",
                "volumes/projected/sources/configMap/name",
                pod_version="v1",
            ),
            *_specs(
                ("spec/configSource/configMap", "Node"),
                ("rules/resourceNames", "Role"),
                ("rules/resourceNames", "ClusterRole"),
                (f"{_NGINX}fastcgi-params-configmap", "Ingress"),
            ),
        ],
    ),
    (
        Gvk("Secret", version="v1"),
        [
            *pod_paths(
                _ALL,
                "volumes/secret/secretName",
                "containers/env/valueFrom/secretKeyRef/name",
                "initContainers/env/valueFrom/secretKeyRef/name",
                "containers/envFrom/secretRef/name",
                "initContainers/envFrom/secretRef/name",
                "imagePullSecrets/name",
                "volumes/projected/sources/secret/name",
                pod_version="v1",
            ),
            *_specs(
                ("spec/tls/secretName", "Ingress"),
                ("metadata/annotations/ingress.kubernetes.io\\/auth-secret", "Ingress"),
                (f"{_NGINX}auth-secret", "Ingress"),
                (f"{_NGINX}auth-tls-secret", "Ingress"),
                ("imagePullSecrets/name", "ServiceAccount"),
                ("parameters/secretName", "StorageClass"),
                ("parameters/adminSecretName", "StorageClass"),
                ("parameters/userSecretName", "StorageClass"),
                ("parameters/secretRef", "StorageClass"),
                ("rules/resourceNames", "Role"),
                ("rules/resourceNames", "ClusterRole"),
            ),
            FieldSpec(
                "spec/template/spec/containers/env/valueFrom/secretKeyRef/name",
                Gvk("Service", "serving.knative.dev", "v1"),
            ),
            *_specs(("spec/azureFile/secretName", "PersistentVolume")),
        ],
    ),
    (
        Gvk("Service", version="v1"),
        [
            FieldSpec("spec/serviceName", Gvk("StatefulSet", "apps")),
            *_specs(
                ("spec/rules/http/paths/backend/serviceName", "Ingress"),
                ("spec/backend/serviceName", "Ingress"),
                ("spec/rules/http/paths/backend/service/name", "Ingress"),
                ("spec/defaultBackend/service/name", "Ingress"),
            ),
            FieldSpec("spec/service/name", Gvk("APIService", "apiregistration.k8s.io")),
            *_specs(
                ("webhooks/clientConfig/service", "ValidatingWebhookConfiguration"),
                ("webhooks/clientConfig/service", "MutatingWebhookConfiguration"),
                group=_ADMISSION,
            ),
        ],
    ),
    (Gvk("Role", _RBAC), _specs(("roleRef/name", "RoleBinding"), group=_RBAC)),
    (
        Gvk("ClusterRole", _RBAC),
        _specs(("roleRef/name", "RoleBinding"), ("roleRef/name", "ClusterRoleBinding"), group=_RBAC),
    ),
    (
        Gvk("ServiceAccount", version="v1"),
        [
            *_specs(("subjects", "RoleBinding"), ("subjects", "ClusterRoleBinding"), group=_RBAC),
            *pod_paths(_SOME, "serviceAccountName"),
        ],
    ),
    (Gvk("PersistentVolumeClaim", version="v1"), pod_paths(_SOME, "volumes/persistentVolumeClaim/claimName")),
    (
        Gvk("PersistentVolume", version="v1"),
        _specs(("spec/volumeName", "PersistentVolumeClaim"), ("rules/resourceNames", "ClusterRole")),
    ),
    (
        Gvk("StorageClass", "storage.k8s.io", "v1"),
        _specs(
            ("spec/storageClassName", "PersistentVolume"),
            ("spec/storageClassName", "PersistentVolumeClaim"),
            ("spec/volumeClaimTemplates/spec/storageClassName", "StatefulSet"),
        ),
    ),
    (Gvk("PriorityClass", "scheduling.k8s.io", "v1"), pod_paths(_SOME, "priorityClassName")),
    (
        Gvk("ValidatingAdmissionPolicy", _ADMISSION),
        _specs(("spec/policyName", "ValidatingAdmissionPolicyBinding"), group=_ADMISSION),
    ),
]
"""The fields that refer to other objects, by the kind they refer to."""


def fix_references(resources: ResourceMap, references: dict[Gvk, list[FieldSpec]]) -> None:
    for target, specs in references.items():
        for spec in specs:
            for one in resources.all:
                if spec.gvk.selects(one.first_id):
                    _Referrer(one, target, spec, _reachable(resources, one)).fix()


def _reachable(resources: ResourceMap, one: Resource) -> list[Resource]:
    """Return the candidates for a reference: objects of the same namespace, and cluster-scoped ones."""
    if one.id.namespace == NO_NAMESPACE:
        return resources.all
    others = set()
    if one.obj.get("kind") == "RoleBinding":
        subjects = one.obj.get("subjects") or ()
        others = {each.get("namespace") for each in subjects if each.get("kind") == "ServiceAccount"}
    return [
        each
        for each in resources.all
        if each.id.namespace in (NO_NAMESPACE, one.id.namespace) or each.namespace in others - {None}
    ]


class _Referrer(NamedTuple):
    one: Resource
    target: Gvk
    spec: FieldSpec
    candidates: list[Resource]

    def fix(self) -> None:
        gvk = Gvk(self.one.id.kind, self.one.id.group, self.one.id.version)
        visit(self.one.obj, self.spec._replace(gvk=gvk), self._changed)

    def _changed(self, found: Any) -> Any:
        if isinstance(found, list):
            return [self._changed(item) for item in found]
        if isinstance(found, dict):
            return self._mapping(found)
        if not isinstance(found, str):
            return found
        meant = self._meant(found, self.candidates, named_alike)
        return meant.name if meant is not None else found

    def _mapping(self, found: Obj) -> Obj:
        if "name" not in found:
            raise Failed("path config error; no 'name' field in node")
        candidates, namespace = self.candidates, found.get("namespace")
        if namespace is not None:
            candidates = [each for each in self.candidates if each.first_id.namespace == namespace] or [
                each for each in self.candidates if each.id.namespace == namespace
            ]
        meant = self._meant(str(found["name"]), candidates, placed_alike)
        if meant is None or (meant.name == found["name"] and not meant.namespace):
            return found
        made = {**found, "name": meant.name}
        return {**made, "namespace": meant.namespace} if meant.namespace else made

    def _meant(self, name: str, candidates: list[Resource], alike: Any) -> Resource | None:
        """Return the object that had this name before; None if there is none."""
        found = [
            each
            for each in candidates
            if any(before.name == name for before in each.before)
            and any(self.target.selects(before) for before in each.before)
            and self._is_role_meant(each)
            and self._same_namespace(each)
        ]
        if len(found) == 1:
            return found[0]
        found = [each for each in found if same_affixes(each, self.one, lenient=True)]
        if len(found) > 1:
            found = [each for each in found if same_affixes(each, self.one, lenient=False)]
        if len(found) <= 1 or alike(found):
            return found[0] if found else None
        ids = ", ".join(str(each.id) for each in found)
        raise Failed(f"found multiple possible referrals: {ids}")

    def _is_role_meant(self, each: Resource) -> bool:
        if not self.spec.path.endswith("roleRef/name"):
            return True
        role = self.one.obj.get("roleRef") or {}
        if "apiGroup" not in role or "kind" not in role:
            return True
        return any(Gvk(role["kind"], role["apiGroup"]).selects(before) for before in each.before)

    def _same_namespace(self, each: Resource) -> bool:
        own = self.one.id.namespace
        kind = each.obj.get("kind")
        return own == NO_NAMESPACE or kind == "ServiceAccount" or each.id.namespace in (NO_NAMESPACE, own)


def named_alike(found: list[Resource]) -> bool:
    return len({each.name for each in found}) == 1


def placed_alike(found: list[Resource]) -> bool:
    return len({(each.name, each.namespace) for each in found}) == 1


def same_affixes(one: Resource, other: Resource, *, lenient: bool) -> bool:
    """Return whether both objects have got the same affixes; `lenient` accepts an object without any."""

    def same(left: list[str], right: list[str]) -> bool:
        if lenient and (not left or not right):
            return True
        short, long = sorted((left, right), key=len)
        if not short:
            return not long
        return long[-len(short) :] == short

    return same(one.prefixes, other.prefixes) and same(one.suffixes, other.suffixes)
