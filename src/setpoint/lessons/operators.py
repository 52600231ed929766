"""The operators that lessons can start: a small one for PostgresClusters.

It has what every operator has: a kind with a spec and a status, a function that compares and acts, children that it
owns, and a condition. `examples/postgres_operator` is a complete one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from setpoint.sdk import Column, Context, Controller, Kind, Object, Operator

_PORT: Final = 5432
_CLUSTER: Final = "database.example.com/cluster"
"""The label of everything that belongs to a cluster."""


@dataclass
class Replication:
    enabled: bool = False
    replicaCount: Annotated[int, {"minimum": 1, "maximum": 5}] = 2


@dataclass
class PostgresSpec:
    """A PostgreSQL cluster, as it should be."""

    engineVersion: Annotated[str, {"pattern": r"^[0-9]+(\.[0-9]+)?$", "maxLength": 8}]
    storageSize: Annotated[str, {"pattern": "^[1-9][0-9]*(Mi|Gi|Ti)$", "maxLength": 12}] = "1Gi"
    replication: Replication = field(default_factory=Replication)
    backupSchedule: str | None = None


@dataclass
class PostgresStatus:
    """A PostgreSQL cluster, as it is."""

    ready: str = ""
    """Ready and desired instances, for the table."""
    readyInstances: int = 0
    observedGeneration: int = 0


PostgresCluster = Kind(
    "database.example.com/v1alpha1",
    "PostgresCluster",
    spec=PostgresSpec,
    status=PostgresStatus,
    short=("pg",),
    columns=(
        Column("Version", ".spec.engineVersion"),
        Column("Ready", ".status.ready"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)
StatefulSet, CronJob = Kind("apps/v1", "StatefulSet"), Kind("batch/v1", "CronJob")
Service, ConfigMap = Kind("v1", "Service"), Kind("v1", "ConfigMap")
Ctx = Context[PostgresSpec, PostgresStatus]
Cluster = Object[PostgresSpec, PostgresStatus]


async def reconcile(ctx: Ctx, cluster: Cluster) -> None:
    """Make the children what the spec says, and report in the status what is there."""
    wanted = instances(cluster)
    ctx.because(f"{cluster.name} asks for {wanted} instance{'' if wanted == 1 else 's'}")
    applied = await ctx.apply(*children(cluster))
    found = next(each for each in applied if each["kind"] == "StatefulSet").get("status") or {}
    ready = found.get("readyReplicas", 0)
    ctx.set_status(
        PostgresStatus(ready=f"{ready}/{wanted}", readyInstances=ready, observedGeneration=cluster.generation)
    )
    ctx.condition("Ready", ready >= wanted, "InstancesReady" if ready >= wanted else "InstancesMissing")


def instances(cluster: Cluster) -> int:
    replication = cluster.spec.replication
    return replication.replicaCount if replication.enabled else 1


def children(cluster: Cluster) -> list[dict[str, Any]]:
    """Return what the cluster should own. The same cluster gives the same children."""
    name, labels = cluster.name, {_CLUSTER: cluster.name}
    meta = {"name": name, "labels": labels}
    image = f"postgres:{cluster.spec.engineVersion}"
    container = {
        "name": "postgres",
        "image": image,
        "ports": [{"name": "postgres", "containerPort": _PORT}],
        "envFrom": [{"configMapRef": {"name": f"{name}-config"}}],
        "volumeMounts": [{"name": "data", "mountPath": "/var/lib/postgresql/data"}],
    }
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": cluster.spec.storageSize}}}
    found: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {**meta, "name": f"{name}-config"},
            "data": {"POSTGRES_DB": name, "POSTGRES_HOST_AUTH_METHOD": "trust"},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {"selector": labels, "ports": [{"name": "postgres", "port": _PORT}]},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": meta,
            "spec": {
                "serviceName": name,
                "replicas": instances(cluster),
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
            },
        },
    ]
    if cluster.spec.backupSchedule:
        found.append(_backup(cluster, image))
    return found


def _backup(cluster: Cluster, image: str) -> dict[str, Any]:
    name, labels = cluster.name, {_CLUSTER: cluster.name}
    dump = {"name": "dump", "image": image, "command": ["pg_dumpall", f"--host={name}", "--username=postgres"]}
    pod = {"restartPolicy": "Never", "containers": [dump]}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": f"{name}-backup", "labels": labels},
        "spec": {"schedule": cluster.spec.backupSchedule, "jobTemplate": {"spec": {"template": {"spec": pod}}}},
    }


def postgres_operator() -> Operator:
    name, owned = "postgres-operator", (StatefulSet, Service, ConfigMap, CronJob)
    return Operator(name, Controller(PostgresCluster, reconcile, owns=owned, name=name))


OPERATORS: Final[Mapping[str, Callable[[], Operator]]] = {"postgres": postgres_operator}
"""The operators by the name that lessons use."""
