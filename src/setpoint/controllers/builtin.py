"""The table of all controllers, under upstream's names.

A controller whose kinds have no objects has nothing to do, so its module is not even imported until the first object
appears. Most clusters use few kinds; this shortens the start and reduces the cost of every Pod change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from importlib import import_module
from typing import Any

from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.reconcile import Manager
from setpoint.reconcile.manager import FirstObject, Runnable

Build = Callable[[Manager, ControllerOptions], Runnable]
"""Requests the informers it needs from the manager and returns the runnable."""


def _lazy(module: str, name: str) -> Build:
    """Return a builder that imports its module when it is called."""

    def build(manager: Manager, options: ControllerOptions) -> Runnable:
        runnable: Runnable = getattr(import_module(f"setpoint.controllers.{module}"), name)(manager, options)
        return runnable

    return build


CONTROLLERS: dict[str, Build] = {
    "bootstrap-signer-controller": _lazy("bootstrap_tokens.signing", "bootstrap_signer"),
    "certificatesigningrequest-approving-controller": _lazy("certificates.approving", "approving_controller"),
    "certificatesigningrequest-cleaner-controller": _lazy("certificates.cleaning", "cleaning_controller"),
    "certificatesigningrequest-signing-controller": _lazy("certificates.signing", "signing_controller"),
    "clusterrole-aggregation-controller": _lazy("clusterrole_aggregation", "clusterrole_aggregation_controller"),
    "cronjob-controller": _lazy("cronjob.controller", "cronjob_controller"),
    "daemonset-controller": _lazy("daemonset.controller", "daemonset_controller"),
    "deployment-controller": _lazy("deployment.controller", "deployment_controller"),
    "disruption-controller": _lazy("disruption.controller", "disruption_controller"),
    "endpoints-controller": _lazy("endpoints.controller", "endpoints_controller"),
    "endpointslice-controller": _lazy("endpointslice.controller", "endpointslice_controller"),
    "endpointslice-mirroring-controller": _lazy(
        "endpointslice_mirroring.controller", "endpointslice_mirroring_controller"
    ),
    "ephemeral-volume-controller": _lazy("ephemeral_volume", "ephemeral_volume_controller"),
    "horizontal-pod-autoscaler-controller": _lazy("podautoscaler.controller", "horizontal_pod_autoscaler_controller"),
    "job-controller": _lazy("job.controller", "job_controller"),
    "kube-apiserver-serving-clustertrustbundle-publisher-controller": _lazy(
        "certificates.trust_bundle", "trust_bundle_publisher"
    ),
    "legacy-serviceaccount-token-cleaner-controller": _lazy("serviceaccount.unused_tokens", "unused_tokens_controller"),
    "namespace-controller": _lazy("namespace.controller", "namespace_controller"),
    "node-ipam-controller": _lazy("node_ipam", "node_ipam_controller"),
    "node-lifecycle-controller": _lazy("node_lifecycle.controller", "node_lifecycle_controller"),
    "persistentvolume-attach-detach-controller": _lazy("attach_detach.controller", "attach_detach_controller"),
    "persistentvolume-binder-controller": _lazy("persistentvolume.controller", "persistentvolume_binder"),
    "persistentvolume-expander-controller": _lazy("volume_expand", "volume_expand_controller"),
    "persistentvolume-protection-controller": _lazy("volume_protection.volumes", "volume_protection_controller"),
    "persistentvolumeclaim-protection-controller": _lazy("volume_protection.claims", "claim_protection_controller"),
    "pod-garbage-collector-controller": _lazy("pod_gc", "pod_gc_controller"),
    "podcertificaterequest-cleaner-controller": _lazy(
        "certificates.pod_request_cleaning", "pod_request_cleaning_controller"
    ),
    "replicaset-controller": _lazy("replicaset", "replicaset_controller"),
    "replicationcontroller-controller": _lazy("replicationcontroller", "replicationcontroller_controller"),
    "resourceclaim-controller": _lazy("resourceclaim.controller", "resource_claim_controller"),
    "resourcequota-controller": _lazy("resourcequota.controller", "resourcequota_controller"),
    "root-ca-certificate-publisher-controller": _lazy("root_ca", "root_ca_controller"),
    "service-cidr-controller": _lazy("service_cidr", "service_cidr_controller"),
    "serviceaccount-controller": _lazy("serviceaccount.default_account", "service_account_controller"),
    "serviceaccount-token-controller": _lazy("serviceaccount.tokens", "service_account_token_controller"),
    "setpoint-local-provisioner-controller": _lazy("local_provisioner.controller", "local_provisioner"),
    "statefulset-controller": _lazy("statefulset.controller", "statefulset_controller"),
    "storage-version-migrator-controller": _lazy("storage_migration.controller", "storage_migration_controller"),
    "taint-eviction-controller": _lazy("taint_eviction.controller", "taint_eviction_controller"),
    "token-cleaner-controller": _lazy("bootstrap_tokens.cleaning", "token_cleaner"),
    "ttl-after-finished-controller": _lazy("ttl_after_finished", "ttl_after_finished_controller"),
    "ttl-controller": _lazy("node_ttl", "node_ttl_controller"),
    "validatingadmissionpolicy-status-controller": _lazy("policy_status.controller", "policy_status_controller"),
    "volumeattributesclass-protection-controller": _lazy(
        "volume_protection.attributes_classes", "attributes_class_protection_controller"
    ),
}

GARBAGE_COLLECTOR = "garbage-collector-controller"
"""Not in the table: it watches every resource and therefore starts when the other controllers run."""

OFF_BY_DEFAULT = ("bootstrap-signer-controller", "token-cleaner-controller")
"""Controllers that run only when they are requested by name."""

ALIASES = {
    "attachdetach": "persistentvolume-attach-detach-controller", "bootstrapsigner": "bootstrap-signer-controller",
    "clusterrole-aggregation": "clusterrole-aggregation-controller", "cronjob": "cronjob-controller",
    "csrapproving": "certificatesigningrequest-approving-controller",
    "csrcleaner": "certificatesigningrequest-cleaner-controller",
    "csrsigning": "certificatesigningrequest-signing-controller", "daemonset": "daemonset-controller",
    "deployment": "deployment-controller", "disruption": "disruption-controller", "endpoint": "endpoints-controller",
    "endpointslice": "endpointslice-controller", "endpointslicemirroring": "endpointslice-mirroring-controller",
    "ephemeral-volume": "ephemeral-volume-controller", "garbagecollector": GARBAGE_COLLECTOR,
    "horizontalpodautoscaling": "horizontal-pod-autoscaler-controller", "job": "job-controller",
    "legacy-service-account-token-cleaner": "legacy-serviceaccount-token-cleaner-controller",
    "namespace": "namespace-controller", "nodeipam": "node-ipam-controller",
    "nodelifecycle": "node-lifecycle-controller", "persistentvolume-binder": "persistentvolume-binder-controller",
    "persistentvolume-expander": "persistentvolume-expander-controller", "podgc": "pod-garbage-collector-controller",
    "pv-protection": "persistentvolume-protection-controller",
    "pvc-protection": "persistentvolumeclaim-protection-controller", "replicaset": "replicaset-controller",
    "replicationcontroller": "replicationcontroller-controller",
    "resource-claim-controller": "resourceclaim-controller", "resourcequota": "resourcequota-controller",
    "root-ca-cert-publisher": "root-ca-certificate-publisher-controller",
    "serviceaccount": "serviceaccount-controller", "serviceaccount-token": "serviceaccount-token-controller",
    "statefulset": "statefulset-controller", "svm": "storage-version-migrator-controller",
    "tokencleaner": "token-cleaner-controller", "ttl": "ttl-controller",
    "ttl-after-finished": "ttl-after-finished-controller",
}  # fmt: skip
"""Upstream's former names."""


def _any_object(plural: str, group: str = "", version: str = "v1") -> FirstObject:
    return builtin(plural, group, version), None


def _has_job_finalizer(pod: dict[str, Any]) -> bool:
    return "batch.kubernetes.io/job-tracking" in (pod["metadata"].get("finalizers") or ())


def _has_ephemeral_volume(pod: dict[str, Any]) -> bool:
    return any("ephemeral" in volume for volume in pod["spec"].get("volumes") or ())


def _uses_devices(pod: dict[str, Any]) -> bool:
    return bool(pod["spec"].get("resourceClaims") or (pod.get("status") or {}).get("extendedResourceClaimStatus"))


def _is_disruption_target(pod: dict[str, Any]) -> bool:
    return any(each["type"] == "DisruptionTarget" for each in (pod.get("status") or {}).get("conditions") or ())


_REQUESTS = (_any_object("certificatesigningrequests", "certificates.k8s.io"),)
_CLAIMS, _VOLUMES = _any_object("persistentvolumeclaims"), _any_object("persistentvolumes")

DEFERRED_UNTIL: dict[str, tuple[FirstObject, ...]] = {
    "certificatesigningrequest-approving-controller": _REQUESTS,
    "certificatesigningrequest-cleaner-controller": _REQUESTS,
    "certificatesigningrequest-signing-controller": _REQUESTS,
    "cronjob-controller": (_any_object("cronjobs", "batch"),),
    "daemonset-controller": (_any_object("daemonsets", "apps"),),
    "deployment-controller": (_any_object("deployments", "apps"),),
    "disruption-controller": (_any_object("poddisruptionbudgets", "policy"), (builtin("pods"), _is_disruption_target)),
    "ephemeral-volume-controller": ((builtin("pods"), _has_ephemeral_volume),),
    "horizontal-pod-autoscaler-controller": (_any_object("horizontalpodautoscalers", "autoscaling", "v2"),),
    "job-controller": (_any_object("jobs", "batch"), (builtin("pods"), _has_job_finalizer)),
    "persistentvolume-attach-detach-controller": (_VOLUMES, _any_object("volumeattachments", "storage.k8s.io")),
    "persistentvolume-binder-controller": (_CLAIMS, _VOLUMES),
    "persistentvolume-expander-controller": (_CLAIMS,),
    "persistentvolume-protection-controller": (_VOLUMES,),
    "persistentvolumeclaim-protection-controller": (_CLAIMS,),
    "podcertificaterequest-cleaner-controller": (_any_object("podcertificaterequests", "certificates.k8s.io"),),
    "replicaset-controller": (_any_object("replicasets", "apps"),),
    "replicationcontroller-controller": (_any_object("replicationcontrollers"),),
    "resourceclaim-controller": (
        (builtin("pods"), _uses_devices),
        _any_object("resourceclaims", "resource.k8s.io"),
    ),
    "resourcequota-controller": (_any_object("resourcequotas"),),
    "setpoint-local-provisioner-controller": (_CLAIMS, _VOLUMES),
    "statefulset-controller": (_any_object("statefulsets", "apps"),),
    "storage-version-migrator-controller": (_any_object("storageversionmigrations", "storagemigration.k8s.io"),),
    "ttl-after-finished-controller": (_any_object("jobs", "batch"),),
    "validatingadmissionpolicy-status-controller": (
        _any_object("validatingadmissionpolicies", "admissionregistration.k8s.io"),
    ),
    "volumeattributesclass-protection-controller": (_any_object("volumeattributesclasses", "storage.k8s.io"),),
}
"""Controllers that are deferred until a first object appears, and of which resources. All others start at once."""


def add_controllers(manager: Manager, options: ControllerOptions, names: Collection[str] | None = None) -> None:
    """Add the controllers with these names; None means all that are on by default."""
    for name, build in CONTROLLERS.items():
        if name in OFF_BY_DEFAULT if names is None else name not in names:
            continue
        first = DEFERRED_UNTIL.get(name)
        if first is None:
            manager.add(build(manager, options))
        else:
            manager.add_when(first, partial(build, manager, options))
