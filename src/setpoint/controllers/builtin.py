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
from setpoint.meta.conditions import condition_of
from setpoint.reconcile import Manager
from setpoint.reconcile.manager import FirstObject, Runnable

Build = Callable[[Manager, ControllerOptions], Runnable]
"""Requests the informers it needs from the manager and returns the runnable."""


def _lazy(module: str, name: str) -> Build:
    """Return a builder that imports its module when it is called."""

    def build(manager: Manager, options: ControllerOptions) -> Runnable:
        runnable: Runnable = getattr(import_module(module), name)(manager, options)
        return runnable

    return build


CONTROLLERS: dict[str, Build] = {
    "bootstrap-signer-controller": _lazy("setpoint.controllers.bootstrap_tokens", "bootstrap_signer"),
    "certificatesigningrequest-approving-controller": _lazy(
        "setpoint.controllers.certificates", "approving_controller"
    ),
    "certificatesigningrequest-cleaner-controller": _lazy("setpoint.controllers.certificates", "cleaning_controller"),
    "certificatesigningrequest-signing-controller": _lazy("setpoint.controllers.certificates", "signing_controller"),
    "clusterrole-aggregation-controller": _lazy(
        "setpoint.controllers.clusterrole_aggregation", "clusterrole_aggregation_controller"
    ),
    "cronjob-controller": _lazy("setpoint.controllers.cronjob", "cronjob_controller"),
    "daemonset-controller": _lazy("setpoint.controllers.daemonset.controller", "daemonset_controller"),
    "deployment-controller": _lazy("setpoint.controllers.deployment.controller", "deployment_controller"),
    "disruption-controller": _lazy("setpoint.controllers.disruption", "disruption_controller"),
    "endpoints-controller": _lazy("setpoint.controllers.endpoints", "endpoints_controller"),
    "endpointslice-controller": _lazy("setpoint.controllers.endpointslice.controller", "endpointslice_controller"),
    "endpointslice-mirroring-controller": _lazy(
        "setpoint.controllers.endpointslice_mirroring", "endpointslice_mirroring_controller"
    ),
    "ephemeral-volume-controller": _lazy("setpoint.controllers.ephemeral_volume", "ephemeral_volume_controller"),
    "horizontal-pod-autoscaler-controller": _lazy(
        "setpoint.controllers.podautoscaler.controller", "horizontal_pod_autoscaler_controller"
    ),
    "job-controller": _lazy("setpoint.controllers.job.controller", "job_controller"),
    "kube-apiserver-serving-clustertrustbundle-publisher-controller": _lazy(
        "setpoint.controllers.ca_publishers", "trust_bundle_publisher"
    ),
    "legacy-serviceaccount-token-cleaner-controller": _lazy(
        "setpoint.controllers.serviceaccount", "unused_tokens_controller"
    ),
    "namespace-controller": _lazy("setpoint.controllers.namespace", "namespace_controller"),
    "node-ipam-controller": _lazy("setpoint.controllers.node_ipam", "node_ipam_controller"),
    "node-lifecycle-controller": _lazy("setpoint.controllers.node_lifecycle.controller", "node_lifecycle_controller"),
    "persistentvolume-attach-detach-controller": _lazy(
        "setpoint.controllers.attach_detach", "attach_detach_controller"
    ),
    "persistentvolume-binder-controller": _lazy(
        "setpoint.controllers.persistentvolume.controller", "persistentvolume_binder"
    ),
    "persistentvolume-expander-controller": _lazy("setpoint.controllers.volume_expand", "volume_expand_controller"),
    "persistentvolume-protection-controller": _lazy(
        "setpoint.controllers.volume_protection", "volume_protection_controller"
    ),
    "persistentvolumeclaim-protection-controller": _lazy(
        "setpoint.controllers.volume_protection", "claim_protection_controller"
    ),
    "pod-garbage-collector-controller": _lazy("setpoint.controllers.pod_gc", "pod_gc_controller"),
    "podcertificaterequest-cleaner-controller": _lazy(
        "setpoint.controllers.certificates", "pod_request_cleaning_controller"
    ),
    "replicaset-controller": _lazy("setpoint.controllers.replicaset", "replicaset_controller"),
    "replicationcontroller-controller": _lazy("setpoint.controllers.replicaset", "replicationcontroller_controller"),
    "resourceclaim-controller": _lazy("setpoint.controllers.resourceclaim", "resource_claim_controller"),
    "resourcequota-controller": _lazy("setpoint.controllers.resourcequota", "resourcequota_controller"),
    "root-ca-certificate-publisher-controller": _lazy("setpoint.controllers.ca_publishers", "root_ca_controller"),
    "service-cidr-controller": _lazy("setpoint.controllers.service_cidr", "service_cidr_controller"),
    "service-lb-controller": _lazy("setpoint.controllers.service_load_balancer", "service_load_balancer_controller"),
    "serviceaccount-controller": _lazy("setpoint.controllers.serviceaccount", "service_account_controller"),
    "serviceaccount-token-controller": _lazy("setpoint.controllers.serviceaccount", "service_account_token_controller"),
    "setpoint-local-provisioner-controller": _lazy("setpoint.controllers.local_provisioner", "local_provisioner"),
    "statefulset-controller": _lazy("setpoint.controllers.statefulset.controller", "statefulset_controller"),
    "storage-version-migrator-controller": _lazy(
        "setpoint.controllers.storage_migration", "storage_migration_controller"
    ),
    "taint-eviction-controller": _lazy("setpoint.controllers.taint_eviction", "taint_eviction_controller"),
    "token-cleaner-controller": _lazy("setpoint.controllers.bootstrap_tokens", "token_cleaner"),
    "ttl-after-finished-controller": _lazy("setpoint.controllers.ttl_after_finished", "ttl_after_finished_controller"),
    "ttl-controller": _lazy("setpoint.controllers.node_ttl", "node_ttl_controller"),
    "validatingadmissionpolicy-status-controller": _lazy(
        "setpoint.controllers.policy_status", "policy_status_controller"
    ),
    "volumeattributesclass-protection-controller": _lazy(
        "setpoint.controllers.volume_protection", "attributes_class_protection_controller"
    ),
}

GARBAGE_COLLECTOR = "garbage-collector-controller"
"""A controller that is not in the table: it watches every resource, so it starts after the other controllers."""

OFF_BY_DEFAULT = ("bootstrap-signer-controller", "token-cleaner-controller")
"""Controllers that run only when they are requested by name."""

ALIASES = {
    "attachdetach": "persistentvolume-attach-detach-controller",
    "bootstrapsigner": "bootstrap-signer-controller",
    "clusterrole-aggregation": "clusterrole-aggregation-controller",
    "cronjob": "cronjob-controller",
    "csrapproving": "certificatesigningrequest-approving-controller",
    "csrcleaner": "certificatesigningrequest-cleaner-controller",
    "csrsigning": "certificatesigningrequest-signing-controller",
    "daemonset": "daemonset-controller",
    "deployment": "deployment-controller",
    "disruption": "disruption-controller",
    "endpoint": "endpoints-controller",
    "endpointslice": "endpointslice-controller",
    "endpointslicemirroring": "endpointslice-mirroring-controller",
    "ephemeral-volume": "ephemeral-volume-controller",
    "garbagecollector": GARBAGE_COLLECTOR,
    "horizontalpodautoscaling": "horizontal-pod-autoscaler-controller",
    "job": "job-controller",
    "legacy-service-account-token-cleaner": "legacy-serviceaccount-token-cleaner-controller",
    "namespace": "namespace-controller",
    "nodeipam": "node-ipam-controller",
    "nodelifecycle": "node-lifecycle-controller",
    "persistentvolume-binder": "persistentvolume-binder-controller",
    "persistentvolume-expander": "persistentvolume-expander-controller",
    "podgc": "pod-garbage-collector-controller",
    "pv-protection": "persistentvolume-protection-controller",
    "pvc-protection": "persistentvolumeclaim-protection-controller",
    "replicaset": "replicaset-controller",
    "replicationcontroller": "replicationcontroller-controller",
    "resource-claim-controller": "resourceclaim-controller",
    "resourcequota": "resourcequota-controller",
    "root-ca-cert-publisher": "root-ca-certificate-publisher-controller",
    "service": "service-lb-controller",
    "serviceaccount": "serviceaccount-controller",
    "serviceaccount-token": "serviceaccount-token-controller",
    "statefulset": "statefulset-controller",
    "svm": "storage-version-migrator-controller",
    "tokencleaner": "token-cleaner-controller",
    "ttl": "ttl-controller",
    "ttl-after-finished": "ttl-after-finished-controller",
}
"""Upstream's former names."""


def _any_object(plural: str, group: str = "", version: str = "v1") -> FirstObject:
    return builtin(plural, group, version), None


def _has_job_finalizer(pod: dict[str, Any]) -> bool:
    return "batch.kubernetes.io/job-tracking" in (pod["metadata"].get("finalizers") or ())


def _has_ephemeral_volume(pod: dict[str, Any]) -> bool:
    return any("ephemeral" in volume for volume in pod["spec"].get("volumes") or ())


def _uses_devices(pod: dict[str, Any]) -> bool:
    return bool(pod["spec"].get("resourceClaims") or (pod.get("status") or {}).get("extendedResourceClaimStatus"))


def _has_load_balancer(service: dict[str, Any]) -> bool:
    finalizers = service["metadata"].get("finalizers") or ()
    return service["spec"].get("type") == "LoadBalancer" or "service.kubernetes.io/load-balancer-cleanup" in finalizers


def _is_disruption_target(pod: dict[str, Any]) -> bool:
    return condition_of(pod, "DisruptionTarget") is not None


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
    "service-lb-controller": ((builtin("services"), _has_load_balancer),),
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
