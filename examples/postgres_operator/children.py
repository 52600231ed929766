"""What a PostgresCluster is made of. Pure functions: the same cluster gives the same children."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from typing import Any

from setpoint.meta.objects import Obj
from setpoint.sdk import Object

from .kind import PostgresSpec, PostgresStatus

Cluster = Object[PostgresSpec, PostgresStatus]

CLUSTER = "database.example.com/cluster"
"""The label on everything that belongs to a cluster."""
KEEP = "database.example.com/keep-password"
"""A finalizer: whoever deletes the Secret finds it there, Terminating, for as long as the cluster needs it."""
PORT = 5432


def labels(cluster: Cluster) -> dict[str, str]:
    return {CLUSTER: cluster.name, "app.kubernetes.io/name": "postgres", "app.kubernetes.io/instance": cluster.name}


def selector(cluster: Cluster) -> dict[str, str]:
    return {CLUSTER: cluster.name, "app.kubernetes.io/component": "instance"}


def children(cluster: Cluster) -> list[Obj]:
    """All that the cluster should own, but for the password, which is made once and kept."""
    config = config_map(cluster)
    found = [
        config,
        headless_service(cluster),
        primary_service(cluster),
        read_service(cluster),
        stateful_set(cluster, config),
    ]
    if cluster.spec.replication.instances > 1:
        found.append(disruption_budget(cluster))
    if cluster.spec.backupSchedule:
        found.append(backup_cron_job(cluster, cluster.spec.backupSchedule))
    return found


# -- configuration ----------------------------------------------------------------------------------------------------

_SETTINGS = """\
listen_addresses = '*'
hba_file = '/config/pg_hba.conf'
"""
_ACCESS = """\
local all all trust
host all all all scram-sha-256
host replication all all scram-sha-256
"""
_FOLLOW = """\
# Instance 0 is the primary. Every other one begins as a copy of it, and follows it from there.
set -eu
if [ "${HOSTNAME##*-}" != 0 ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
  until pg_basebackup --host="$PRIMARY" --username=postgres --pgdata="$PGDATA" --write-recovery-conf; do
    sleep 2
  done
fi
"""


def config_map(cluster: Cluster) -> Obj:
    settings = _SETTINGS
    if cluster.spec.replication.synchronous:
        settings += "synchronous_standby_names = 'ANY 1 (*)'\n"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{cluster.name}-config", "labels": labels(cluster)},
        "data": {"postgresql.conf": settings, "pg_hba.conf": _ACCESS, "follow-primary.sh": _FOLLOW},
    }


def secret_name(cluster: Cluster) -> str:
    return f"{cluster.name}-password"


def secret(cluster: Cluster, password: str) -> Obj:
    """Made once. Immutable: nobody else could replace the password of a database that has one either."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret_name(cluster), "labels": labels(cluster), "finalizers": [KEEP]},
        "immutable": True,
        "data": {"username": b64encode(b"postgres").decode(), "password": b64encode(password.encode()).decode()},
    }


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
    return _service(cluster, "", {**selector(cluster), "statefulset.kubernetes.io/pod-name": f"{cluster.name}-0"})


def read_service(cluster: Cluster) -> Obj:
    return _service(cluster, "-read", selector(cluster))


# -- instances --------------------------------------------------------------------------------------------------------


def stateful_set(cluster: Cluster, config: Obj) -> Obj:
    """A rolling update goes from the last instance to the first: the primary is the last to go down."""
    spec = cluster.spec
    image = f"postgres:{spec.engineVersion}"
    env = [
        {"name": "PGDATA", "value": "/data/pgdata"},
        {"name": "PRIMARY", "value": f"{cluster.name}-0.{cluster.name}-pods"},
        _password_as("POSTGRES_PASSWORD", cluster),
        _password_as("PGPASSWORD", cluster),
    ]
    mounts = [{"name": "data", "mountPath": "/data"}, {"name": "config", "mountPath": "/config"}]
    follow = {
        "name": "follow-primary",
        "image": image,
        "command": ["bash", "/config/follow-primary.sh"],
        "env": env,
        "volumeMounts": mounts,
    }
    postgres = {
        "name": "postgres",
        "image": image,
        "args": ["postgres", "-c", "config_file=/config/postgresql.conf"],
        "env": env,
        "volumeMounts": mounts,
        "ports": [{"name": "postgres", "containerPort": PORT}],
        "readinessProbe": {"exec": {"command": ["pg_isready", "--username=postgres"]}, "periodSeconds": 5},
    }
    pod = {
        # A change of the configuration is a change of the Pods: they are rolled.
        "metadata": {
            "labels": {**labels(cluster), **selector(cluster)},
            "annotations": {"database.example.com/config": _digest(config)},
        },
        "spec": {
            "securityContext": {"runAsUser": 999, "runAsGroup": 999, "fsGroup": 999},
            "initContainers": [follow],
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


def _password_as(variable: str, cluster: Cluster) -> Obj:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret_name(cluster), "key": "password"}}}


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


def backup_cron_job(cluster: Cluster, schedule: str) -> Obj:
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": f"{cluster.name}-backup", "labels": labels(cluster)},
        "spec": {
            "schedule": schedule,
            "concurrencyPolicy": "Forbid",
            "jobTemplate": {"metadata": {"labels": labels(cluster)}, "spec": _backup(cluster)},
        },
    }


def final_backup_job(cluster: Cluster) -> Obj:
    """Nobody's child: it must not be collected with a cluster that waits for it. Named after the uid: the final backup
    of an earlier cluster with the same name is not this one's."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"final-backup-{cluster.uid}",
            "labels": labels(cluster),
        },
        "spec": {**_backup(cluster), "ttlSecondsAfterFinished": 3600},
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


def _backup(cluster: Cluster) -> Obj:
    dump = {
        "name": "dump",
        "image": f"postgres:{cluster.spec.engineVersion}",
        "command": ["sh", "-c"],
        "args": [f"pg_dumpall --host={cluster.name} --username=postgres > /backups/$(date +%Y%m%dT%H%M%S).sql"],
        "env": [_password_as("PGPASSWORD", cluster)],
        "volumeMounts": [{"name": "backups", "mountPath": "/backups"}],
    }
    volume = {"name": "backups", "persistentVolumeClaim": {"claimName": f"{cluster.name}-backups"}}
    pod = {"restartPolicy": "Never", "containers": [dump], "volumes": [volume]}
    return {"backoffLimit": 3, "template": {"metadata": {"labels": labels(cluster)}, "spec": pod}}
