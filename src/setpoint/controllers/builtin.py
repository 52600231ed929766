"""Every controller there is, under upstream's names."""

from __future__ import annotations

from collections.abc import Callable, Collection

from setpoint.controllers.attach_detach.controller import attach_detach_controller
from setpoint.controllers.certificates.approving import approving_controller
from setpoint.controllers.certificates.cleaning import cleaning_controller
from setpoint.controllers.certificates.signing import signing_controller
from setpoint.controllers.certificates.trust_bundle import trust_bundle_publisher
from setpoint.controllers.clusterrole_aggregation import clusterrole_aggregation_controller
from setpoint.controllers.cronjob.controller import cronjob_controller
from setpoint.controllers.daemonset.controller import daemonset_controller
from setpoint.controllers.deployment.controller import deployment_controller
from setpoint.controllers.disruption.controller import disruption_controller
from setpoint.controllers.endpoints.controller import endpoints_controller
from setpoint.controllers.endpointslice.controller import endpointslice_controller
from setpoint.controllers.endpointslice_mirroring.controller import endpointslice_mirroring_controller
from setpoint.controllers.ephemeral_volume import ephemeral_volume_controller
from setpoint.controllers.job.controller import job_controller
from setpoint.controllers.local_provisioner.controller import local_provisioner
from setpoint.controllers.namespace.controller import namespace_controller
from setpoint.controllers.node_ipam import node_ipam_controller
from setpoint.controllers.node_lifecycle.controller import node_lifecycle_controller
from setpoint.controllers.node_ttl import node_ttl_controller
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.persistentvolume.controller import persistentvolume_binder
from setpoint.controllers.pod_gc import pod_gc_controller
from setpoint.controllers.podautoscaler.controller import horizontal_pod_autoscaler_controller
from setpoint.controllers.replicaset import replicaset_controller
from setpoint.controllers.replicationcontroller import replicationcontroller_controller
from setpoint.controllers.resourcequota.controller import resourcequota_controller
from setpoint.controllers.root_ca import root_ca_controller
from setpoint.controllers.service_cidr import service_cidr_controller
from setpoint.controllers.serviceaccount.default_account import service_account_controller
from setpoint.controllers.serviceaccount.tokens import service_account_token_controller
from setpoint.controllers.statefulset.controller import statefulset_controller
from setpoint.controllers.taint_eviction.controller import taint_eviction_controller
from setpoint.controllers.ttl_after_finished import ttl_after_finished_controller
from setpoint.controllers.volume_expand import volume_expand_controller
from setpoint.controllers.volume_protection.attributes_classes import attributes_class_protection_controller
from setpoint.controllers.volume_protection.claims import claim_protection_controller
from setpoint.controllers.volume_protection.volumes import volume_protection_controller
from setpoint.reconcile import Manager
from setpoint.reconcile.manager import Runnable

Build = Callable[[Manager, ControllerOptions], Runnable]
"""Asks the manager for the informers that it needs and returns what is to run."""

CONTROLLERS: dict[str, Build] = {
    "certificatesigningrequest-approving-controller": approving_controller,
    "certificatesigningrequest-cleaner-controller": cleaning_controller,
    "certificatesigningrequest-signing-controller": signing_controller,
    "clusterrole-aggregation-controller": clusterrole_aggregation_controller,
    "cronjob-controller": cronjob_controller,
    "daemonset-controller": daemonset_controller,
    "deployment-controller": deployment_controller,
    "disruption-controller": disruption_controller,
    "endpoints-controller": endpoints_controller,
    "endpointslice-controller": endpointslice_controller,
    "endpointslice-mirroring-controller": endpointslice_mirroring_controller,
    "ephemeral-volume-controller": ephemeral_volume_controller,
    "horizontal-pod-autoscaler-controller": horizontal_pod_autoscaler_controller,
    "job-controller": job_controller,
    "kube-apiserver-serving-clustertrustbundle-publisher-controller": trust_bundle_publisher,
    "namespace-controller": namespace_controller,
    "node-ipam-controller": node_ipam_controller,
    "node-lifecycle-controller": node_lifecycle_controller,
    "persistentvolume-attach-detach-controller": attach_detach_controller,
    "persistentvolume-binder-controller": persistentvolume_binder,
    "persistentvolume-expander-controller": volume_expand_controller,
    "persistentvolume-protection-controller": volume_protection_controller,
    "persistentvolumeclaim-protection-controller": claim_protection_controller,
    "pod-garbage-collector-controller": pod_gc_controller,
    "replicaset-controller": replicaset_controller,
    "replicationcontroller-controller": replicationcontroller_controller,
    "resourcequota-controller": resourcequota_controller,
    "root-ca-certificate-publisher-controller": root_ca_controller,
    "service-cidr-controller": service_cidr_controller,
    "serviceaccount-controller": service_account_controller,
    "serviceaccount-token-controller": service_account_token_controller,
    "setpoint-local-provisioner-controller": local_provisioner,
    "statefulset-controller": statefulset_controller,
    "taint-eviction-controller": taint_eviction_controller,
    "ttl-after-finished-controller": ttl_after_finished_controller,
    "ttl-controller": node_ttl_controller,
    "volumeattributesclass-protection-controller": attributes_class_protection_controller,
}

GARBAGE_COLLECTOR = "garbage-collector-controller"
"""Stands apart: it follows everything, and therefore begins when the others run."""


def add_controllers(manager: Manager, options: ControllerOptions, names: Collection[str] | None = None) -> None:
    """Those with these names, or all of them."""
    for name, build in CONTROLLERS.items():
        if names is None or name in names:
            manager.add(build(manager, options))
