"""What a PostgresCluster is made of. Pure functions: the same cluster gives the same children."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from pathlib import Path
from typing import Any

from setpoint.meta.objects import Obj
from setpoint.sdk import Object

from .kind import PostgresSpec, PostgresStatus

Cluster = Object[PostgresSpec, PostgresStatus]

CLUSTER = "database.example.com/cluster"
"""The label on everything that belongs to a cluster."""
KEEP = "database.example.com/keep-password"
"""A finalizer: whoever deletes the Secret finds it there, Terminating, for as long as the cluster needs it."""
ROLE = "database.example.com/role"
"""The label of instances: `primary` or `replica`."""
PORT = 5432
IMAGE = "postgres:{version}"
"""The default image. `{version}` stands for the version of the cluster, `{major}` for its first number."""
USER = {"runAsUser": 999, "runAsGroup": 999, "fsGroup": 999}


def labels(cluster: Cluster) -> dict[str, str]:
    return {CLUSTER: cluster.name, "app.kubernetes.io/name": "postgres", "app.kubernetes.io/instance": cluster.name}


def selector(cluster: Cluster) -> dict[str, str]:
    return {CLUSTER: cluster.name, "app.kubernetes.io/component": "instance"}


def children(cluster: Cluster, image: str = IMAGE) -> list[Obj]:
    """All that the cluster should own, but for the passwords and the Lease, which are made once and kept."""
    config = config_map(cluster)
    found = [
        config,
        *access(cluster),
        headless_service(cluster),
        primary_service(cluster),
        read_service(cluster),
        stateful_set(cluster, config, image_of(cluster, image)),
    ]
    if cluster.spec.replication.instances > 1:
        found.append(disruption_budget(cluster))
    if cluster.spec.backupSchedule:
        found.append(backup_cron_job(cluster, cluster.spec.backupSchedule, image))
    return found


def image_of(cluster: Cluster, image: str) -> str:
    version = cluster.spec.engineVersion
    return image.format(version=version, major=version.partition(".")[0])


# -- configuration ----------------------------------------------------------------------------------------------------

_SETTINGS = """\
listen_addresses = '*'
hba_file = '/config/pg_hba.conf'
wal_keep_size = '128MB'
wal_receiver_timeout = '5s'
wal_sender_timeout = '5s'
"""
_ACCESS = """\
local all all trust
host all all all scram-sha-256
host replication all all scram-sha-256
"""
_INSTANCE = Path(__file__).with_name("instance.py").read_text()


def config_map(cluster: Cluster) -> Obj:
    settings = _SETTINGS
    if cluster.spec.replication.synchronous:
        settings += "synchronous_standby_names = 'ANY 1 (*)'\n"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{cluster.name}-config", "labels": labels(cluster)},
        "data": {"postgresql.conf": settings, "pg_hba.conf": _ACCESS, "instance.py": _INSTANCE},
    }


def secret_name(cluster: Cluster) -> str:
    return f"{cluster.name}-password"


def secret(cluster: Cluster, password: str, replication_password: str) -> Obj:
    """Made once. Immutable: nobody else could replace the passwords of a database that has them either."""
    values = {"username": "postgres", "password": password, "replicationPassword": replication_password}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret_name(cluster), "labels": labels(cluster), "finalizers": [KEEP]},
        "immutable": True,
        "data": {key: b64encode(value.encode()).decode() for key, value in values.items()},
    }


# -- access to the API ------------------------------------------------------------------------------------------------


def service_account(cluster: Cluster) -> str:
    return f"{cluster.name}-instance"


def lease_name(cluster: Cluster) -> str:
    return f"{cluster.name}-primary"


def access(cluster: Cluster) -> list[Obj]:
    """What instances may do: renew the Lease of the primary, and report their position."""
    meta = {"name": service_account(cluster), "labels": labels(cluster)}
    pods = [f"{cluster.name}-{number}" for number in range(cluster.spec.replication.instances)]
    rights = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {
            "apiVersion": f"{rights}/v1",
            "kind": "Role",
            "metadata": meta,
            "rules": [
                {
                    "apiGroups": ["coordination.k8s.io"],
                    "resources": ["leases"],
                    "resourceNames": [lease_name(cluster)],
                    "verbs": ["get", "update"],
                },
                {"apiGroups": [""], "resources": ["pods"], "resourceNames": pods, "verbs": ["patch"]},
            ],
        },
        {
            "apiVersion": f"{rights}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": rights, "kind": "Role", "name": meta["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": meta["name"], "namespace": cluster.namespace}],
        },
    ]


# -- services ---------------------------------------------------------------------------------------------------------


def _service(cluster: Cluster, suffix: str, pods: dict[str, str], **spec: Any) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"{cluster.name}{suffix}", "labels": labels(cluster)},
        "spec": {"selector": pods, "ports": [{"name": "postgres", "port": PORT}], **spec},
    }


def headless_service(cluster: Cluster) -> Obj:
    """Gives each instance a name: `orders-0.orders-pods`. Also before it is ready: replicas look for the primary."""
    return _service(cluster, "-pods", selector(cluster), clusterIP="None", publishNotReadyAddresses=True)


def primary_service(cluster: Cluster) -> Obj:
    return _service(cluster, "", {**selector(cluster), ROLE: "primary"})


def read_service(cluster: Cluster) -> Obj:
    return _service(cluster, "-read", selector(cluster))


# -- instances --------------------------------------------------------------------------------------------------------


def stateful_set(cluster: Cluster, config: Obj, image: str) -> Obj:
    """A rolling update goes from the last instance to the first, which is the primary unless there was a failover."""
    spec = cluster.spec
    env = [
        {"name": "CLUSTER", "value": cluster.name},
        _own("NAMESPACE", "metadata.namespace"),
        _own("POD_NAME", "metadata.name"),
        _own("POD_UID", "metadata.uid"),
        {"name": "PGDATA", "value": "/data/pgdata"},
        _password_as("POSTGRES_PASSWORD", cluster),
        _password_as("REPLICATION_PASSWORD", cluster, "replicationPassword"),
    ]
    postgres = {
        "name": "postgres",
        "image": image,
        "command": ["python3", "/config/instance.py"],
        "env": env,
        "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "config", "mountPath": "/config"}],
        "ports": [{"name": "postgres", "containerPort": PORT}],
        "readinessProbe": {"exec": {"command": ["pg_isready", "--username=postgres"]}, "periodSeconds": 2},
    }
    apart = {"labelSelector": {"matchLabels": selector(cluster)}, "topologyKey": "kubernetes.io/hostname"}
    pod = {
        # A change of the configuration is a change of the Pods: they are rolled.
        "metadata": {
            "labels": {**labels(cluster), **selector(cluster)},
            "annotations": {"database.example.com/config": _digest(config)},
        },
        "spec": {
            "serviceAccountName": service_account(cluster),
            "securityContext": USER,
            "affinity": {
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": apart}]
                }
            },
            "containers": [postgres],
            "volumes": [{"name": "config", "configMap": {"name": config["metadata"]["name"]}}],
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": cluster.name, "labels": labels(cluster)},
        "spec": {
            "serviceName": f"{cluster.name}-pods",
            "replicas": spec.replication.instances,
            # An instance starts whether or not the others are ready: any of them may be the primary.
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": selector(cluster)},
            "template": pod,
            "volumeClaimTemplates": [
                {"metadata": {"name": "data"}, "spec": _claim_spec(spec.storageSize)},
            ],
            # The data goes with the cluster; an instance that comes back after scaling down finds its own again.
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"},
        },
    }


def _claim_spec(size: str) -> Obj:
    return {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}


def _own(variable: str, path: str) -> Obj:
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _password_as(variable: str, cluster: Cluster, key: str = "password") -> Obj:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret_name(cluster), "key": key}}}


def _digest(config: Obj) -> str:
    return hashlib.sha256(repr(sorted(config["data"].items())).encode()).hexdigest()[:16]


def disruption_budget(cluster: Cluster) -> Obj:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": cluster.name, "labels": labels(cluster)},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": selector(cluster)}},
    }


# -- backups ----------------------------------------------------------------------------------------------------------

_DUMP = """\
set -e
file=/backups/$(date +%Y%m%dT%H%M%S).sql
pg_dumpall --host={host} --username=postgres > "$file.partial"
mv "$file.partial" "$file"
"""


def backup_cron_job(cluster: Cluster, schedule: str, image: str) -> Obj:
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": f"{cluster.name}-backup", "labels": labels(cluster)},
        "spec": {
            "schedule": schedule,
            "concurrencyPolicy": "Forbid",
            "jobTemplate": {"metadata": {"labels": labels(cluster)}, "spec": _backup(cluster, image)},
        },
    }


def final_backup_job(cluster: Cluster, image: str = IMAGE) -> Obj:
    """Nobody's child: it must not be collected with a cluster that waits for it. Named after the uid: the final backup
    of an earlier cluster with the same name is not this one's."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"final-backup-{cluster.uid}",
            "labels": labels(cluster),
        },
        "spec": {**_backup(cluster, image), "ttlSecondsAfterFinished": 3600},
    }


def backup_claim(cluster: Cluster) -> Obj:
    """Where backups go. Nobody's child: they outlive the cluster."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": f"{cluster.name}-backups",
            "labels": {"app.kubernetes.io/name": "postgres-backups"},
        },
        "spec": _claim_spec(cluster.spec.storageSize),
    }


def _backup(cluster: Cluster, image: str) -> Obj:
    dump = {
        "name": "dump",
        "image": image_of(cluster, image),
        "command": ["sh", "-c"],
        "args": [_DUMP.format(host=cluster.name)],
        "env": [_password_as("PGPASSWORD", cluster)],
        "volumeMounts": [{"name": "backups", "mountPath": "/backups"}],
    }
    volume = {"name": "backups", "persistentVolumeClaim": {"claimName": f"{cluster.name}-backups"}}
    pod = {"restartPolicy": "Never", "securityContext": USER, "containers": [dump], "volumes": [volume]}
    return {"backoffLimit": 3, "template": {"metadata": {"labels": labels(cluster)}, "spec": pod}}
