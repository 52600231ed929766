"""The controllers of built-in kinds."""

from __future__ import annotations

CONTROLLERS = {
    "Deployment": "deployment-controller",
    "ReplicaSet": "replicaset-controller",
    "ReplicationController": "replicationcontroller-controller",
    "StatefulSet": "statefulset-controller",
    "DaemonSet": "daemonset-controller",
    "Job": "job-controller",
    "CronJob": "cronjob-controller",
    "HorizontalPodAutoscaler": "horizontal-pod-autoscaler-controller",
    "PodDisruptionBudget": "disruption-controller",
    "Namespace": "namespace-controller",
    "PersistentVolumeClaim": "persistentvolume-binder-controller",
    "PersistentVolume": "persistentvolume-binder-controller",
    "CertificateSigningRequest": "certificatesigningrequest-signing-controller",
}
"""The controller that moves an object of a kind to its desired state, by kind."""

READ_RESOURCES = {
    "Deployment": ("deployments.apps", "replicasets.apps", "pods"),
    "ReplicaSet": ("replicasets.apps", "pods"),
    "ReplicationController": ("replicationcontrollers", "pods"),
    "StatefulSet": ("statefulsets.apps", "pods", "persistentvolumeclaims"),
    "DaemonSet": ("daemonsets.apps", "pods", "nodes"),
    "Job": ("jobs.batch", "pods"),
    "CronJob": ("cronjobs.batch", "jobs.batch"),
    "Pod": ("pods", "nodes", "persistentvolumeclaims", "persistentvolumes"),
    "PodDisruptionBudget": ("poddisruptionbudgets.policy", "pods"),
    "PersistentVolumeClaim": ("persistentvolumeclaims", "persistentvolumes"),
    "PersistentVolume": ("persistentvolumes", "persistentvolumeclaims"),
}
"""The resources on which the controller of a kind (for Pods the scheduler) decides, by kind; of other kinds, only their
own."""

RECONCILED_KINDS = {
    **{controller: kind for kind, controller in CONTROLLERS.items() if not kind.startswith("PersistentVolume")},
    "persistentvolume-binder: claims": "PersistentVolumeClaim",
    "persistentvolume-binder: volumes": "PersistentVolume",
    "pv-protection-controller": "PersistentVolume",
    "pvc-protection-controller": "PersistentVolumeClaim",
    "expand-controller": "PersistentVolumeClaim",
    "endpointslice-controller": "Service",
    "endpoints-controller": "Service",
    "endpointslice-mirroring-controller": "Endpoints",
    "service-lb-controller": "Service",
    "kube-scheduler": "Pod",
    "node": "Pod",
    "taint-eviction-controller": "Pod",
    "node-lifecycle-controller": "Node",
    "node-ipam-controller": "Node",
    "node-state": "Node",
    "ttl-controller": "Node",
    "ttl-after-finished-controller": "Job",
    "root-ca-certificate-publisher-controller": "Namespace",
    "service-account-controller": "Namespace",
    "service-cidr-controller": "ServiceCIDR",
    "kube-apiserver-serving-clustertrustbundle-publisher": "ClusterTrustBundle",
    "static-pods": "Pod",
    "clusterrole-aggregation-controller": "ClusterRole",
    "resourcequota-controller": "ResourceQuota",
}
"""The kind whose keys a control loop reconciles, by the name of the loop."""
