"""Every controller there is, under upstream's names.

A controller whose kinds have no objects has nothing to do. It is not even loaded until the first is there: most
clusters use few kinds, and all of them start, and handle every change of a Pod, the sooner for it.
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
"""Asks the manager for the informers that it needs and returns what is to run."""


def _of(module: str, name: str) -> Build:
    """Loaded when it is called."""

    def build(manager: Manager, options: ControllerOptions) -> Runnable:
        runnable: Runnable = getattr(import_module(f"setpoint.controllers.{module}"), name)(manager, options)
        return runnable

    return build


CONTROLLERS: dict[str, Build] = {
    "bootstrap-signer-controller": _of("bootstrap_tokens.signing", "bootstrap_signer"),
    "certificatesigningrequest-approving-controller": _of("certificates.approving", "approving_controller"),
    "certificatesigningrequest-cleaner-controller": _of("certificates.cleaning", "cleaning_controller"),
    "certificatesigningrequest-signing-controller": _of("certificates.signing", "signing_controller"),
    "clusterrole-aggregation-controller": _of("clusterrole_aggregation", "clusterrole_aggregation_controller"),
    "cronjob-controller": _of("cronjob.controller", "cronjob_controller"),
    "daemonset-controller": _of("daemonset.controller", "daemonset_controller"),
    "deployment-controller": _of("deployment.controller", "deployment_controller"),
    "disruption-controller": _of("disruption.controller", "disruption_controller"),
    "endpoints-controller": _of("endpoints.controller", "endpoints_controller"),
    "endpointslice-controller": _of("endpointslice.controller", "endpointslice_controller"),
    "endpointslice-mirroring-controller": _of(
        "endpointslice_mirroring.controller", "endpointslice_mirroring_controller"
    ),
    "ephemeral-volume-controller": _of("ephemeral_volume", "ephemeral_volume_controller"),
    "horizontal-pod-autoscaler-controller": _of("podautoscaler.controller", "horizontal_pod_autoscaler_controller"),
    "job-controller": _of("job.controller", "job_controller"),
    "kube-apiserver-serving-clustertrustbundle-publisher-controller": _of(
        "certificates.trust_bundle", "trust_bundle_publisher"
    ),
    "legacy-serviceaccount-token-cleaner-controller": _of("serviceaccount.unused_tokens", "unused_tokens_controller"),
    "namespace-controller": _of("namespace.controller", "namespace_controller"),
    "node-ipam-controller": _of("node_ipam", "node_ipam_controller"),
    "node-lifecycle-controller": _of("node_lifecycle.controller", "node_lifecycle_controller"),
    "persistentvolume-attach-detach-controller": _of("attach_detach.controller", "attach_detach_controller"),
    "persistentvolume-binder-controller": _of("persistentvolume.controller", "persistentvolume_binder"),
    "persistentvolume-expander-controller": _of("volume_expand", "volume_expand_controller"),
    "persistentvolume-protection-controller": _of("volume_protection.volumes", "volume_protection_controller"),
    "persistentvolumeclaim-protection-controller": _of("volume_protection.claims", "claim_protection_controller"),
    "pod-garbage-collector-controller": _of("pod_gc", "pod_gc_controller"),
    "podcertificaterequest-cleaner-controller": _of(
        "certificates.pod_request_cleaning", "pod_request_cleaning_controller"
    ),
    "replicaset-controller": _of("replicaset", "replicaset_controller"),
    "replicationcontroller-controller": _of("replicationcontroller", "replicationcontroller_controller"),
    "resourceclaim-controller": _of("resourceclaim.controller", "resource_claim_controller"),
    "resourcequota-controller": _of("resourcequota.controller", "resourcequota_controller"),
    "root-ca-certificate-publisher-controller": _of("root_ca", "root_ca_controller"),
    "service-cidr-controller": _of("service_cidr", "service_cidr_controller"),
    "serviceaccount-controller": _of("serviceaccount.default_account", "service_account_controller"),
    "serviceaccount-token-controller": _of("serviceaccount.tokens", "service_account_token_controller"),
    "setpoint-local-provisioner-controller": _of("local_provisioner.controller", "local_provisioner"),
    "statefulset-controller": _of("statefulset.controller", "statefulset_controller"),
    "storage-version-migrator-controller": _of("storage_migration.controller", "storage_migration_controller"),
    "taint-eviction-controller": _of("taint_eviction.controller", "taint_eviction_controller"),
    "token-cleaner-controller": _of("bootstrap_tokens.cleaning", "token_cleaner"),
    "ttl-after-finished-controller": _of("ttl_after_finished", "ttl_after_finished_controller"),
    "ttl-controller": _of("node_ttl", "node_ttl_controller"),
    "validatingadmissionpolicy-status-controller": _of("policy_status.controller", "policy_status_controller"),
    "volumeattributesclass-protection-controller": _of(
        "volume_protection.attributes_classes", "attributes_class_protection_controller"
    ),
}

GARBAGE_COLLECTOR = "garbage-collector-controller"
"""Stands apart: it follows everything, and therefore begins when the others run."""

OFF_BY_DEFAULT = ("bootstrap-signer-controller", "token-cleaner-controller")
"""They run where somebody asks for them by name."""

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
"""Upstream's older names."""


def _any(plural: str, group: str = "", version: str = "v1") -> FirstObject:
    return builtin(plural, group, version), None


def _has_job_finalizer(pod: dict[str, Any]) -> bool:
    return "batch.kubernetes.io/job-tracking" in (pod["metadata"].get("finalizers") or ())


def _has_ephemeral_volume(pod: dict[str, Any]) -> bool:
    return any("ephemeral" in volume for volume in pod["spec"].get("volumes") or ())


def _asks_for_devices(pod: dict[str, Any]) -> bool:
    return bool(pod["spec"].get("resourceClaims") or (pod.get("status") or {}).get("extendedResourceClaimStatus"))


def _was_to_be_disrupted(pod: dict[str, Any]) -> bool:
    return any(each["type"] == "DisruptionTarget" for each in (pod.get("status") or {}).get("conditions") or ())


_REQUESTS = (_any("certificatesigningrequests", "certificates.k8s.io"),)
_CLAIMS, _VOLUMES = _any("persistentvolumeclaims"), _any("persistentvolumes")

BEGIN_WITH: dict[str, tuple[FirstObject, ...]] = {
    "certificatesigningrequest-approving-controller": _REQUESTS,
    "certificatesigningrequest-cleaner-controller": _REQUESTS,
    "certificatesigningrequest-signing-controller": _REQUESTS,
    "cronjob-controller": (_any("cronjobs", "batch"),),
    "daemonset-controller": (_any("daemonsets", "apps"),),
    "deployment-controller": (_any("deployments", "apps"),),
    "disruption-controller": (_any("poddisruptionbudgets", "policy"), (builtin("pods"), _was_to_be_disrupted)),
    "ephemeral-volume-controller": ((builtin("pods"), _has_ephemeral_volume),),
    "horizontal-pod-autoscaler-controller": (_any("horizontalpodautoscalers", "autoscaling", "v2"),),
    "job-controller": (_any("jobs", "batch"), (builtin("pods"), _has_job_finalizer)),
    "persistentvolume-attach-detach-controller": (_VOLUMES, _any("volumeattachments", "storage.k8s.io")),
    "persistentvolume-binder-controller": (_CLAIMS, _VOLUMES),
    "persistentvolume-expander-controller": (_CLAIMS,),
    "persistentvolume-protection-controller": (_VOLUMES,),
    "persistentvolumeclaim-protection-controller": (_CLAIMS,),
    "podcertificaterequest-cleaner-controller": (_any("podcertificaterequests", "certificates.k8s.io"),),
    "replicaset-controller": (_any("replicasets", "apps"),),
    "replicationcontroller-controller": (_any("replicationcontrollers"),),
    "resourceclaim-controller": (
        (builtin("pods"), _asks_for_devices),
        _any("resourceclaims", "resource.k8s.io"),
    ),
    "resourcequota-controller": (_any("resourcequotas"),),
    "setpoint-local-provisioner-controller": (_CLAIMS, _VOLUMES),
    "statefulset-controller": (_any("statefulsets", "apps"),),
    "storage-version-migrator-controller": (_any("storageversionmigrations", "storagemigration.k8s.io"),),
    "ttl-after-finished-controller": (_any("jobs", "batch"),),
    "validatingadmissionpolicy-status-controller": (
        _any("validatingadmissionpolicies", "admissionregistration.k8s.io"),
    ),
    "volumeattributesclass-protection-controller": (_any("volumeattributesclasses", "storage.k8s.io"),),
}
"""Those that wait for a first object, and for which. A controller that is not listed here begins at once."""


def add_controllers(manager: Manager, options: ControllerOptions, names: Collection[str] | None = None) -> None:
    """Those with these names, or all that are on by default."""
    for name, build in CONTROLLERS.items():
        if name in OFF_BY_DEFAULT if names is None else name not in names:
            continue
        first = BEGIN_WITH.get(name)
        if first is None:
            manager.add(build(manager, options))
        else:
            manager.add_when(first, partial(build, manager, options))
