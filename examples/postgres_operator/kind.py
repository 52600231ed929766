"""What people write: a PostgresCluster, and what they may ask of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from setpoint.sdk import Column, Kind, Scale


@dataclass
class Replication:
    replicas: Annotated[int, {"minimum": 1, "maximum": 9, "description": "Instances; the first is the primary."}] = 1
    synchronous: Annotated[bool, {"description": "A commit waits until one replica has it."}] = False


@dataclass
class PostgresSpec:
    """A PostgreSQL cluster, as it should be."""

    engineVersion: Annotated[str, {"pattern": r"^[0-9]+(\.[0-9]+)?$", "maxLength": 8}]
    storageSize: Annotated[str, {"pattern": "^[1-9][0-9]*(Mi|Gi|Ti)$", "maxLength": 12}] = "1Gi"
    replication: Replication = field(default_factory=Replication)
    backupSchedule: Annotated[str | None, {"description": "When to back up, as for a CronJob; nothing: never."}] = None
    skipFinalBackup: Annotated[bool, {"description": "Do not back up once more before the cluster goes."}] = False


@dataclass
class Endpoints:
    primary: str
    """Reads and writes."""
    read: str
    """Reads, from any instance."""


@dataclass
class PostgresStatus:
    phase: str = ""
    """Creating, Running, Updating, Resizing, Degraded, Deleting: a word for people. Programs look at conditions."""
    replicas: int = 0
    readyReplicas: int = 0
    selector: str = ""
    observedGeneration: int = 0
    endpoints: Endpoints | None = None
    lastBackup: str | None = None


PostgresCluster = Kind(
    "db.example.com/v1",
    "PostgresCluster",
    spec=PostgresSpec,
    status=PostgresStatus,
    short=("pg",),
    categories=("databases",),
    scale=Scale(spec=".spec.replication.replicas", status=".status.replicas", selector=".status.selector"),
    columns=(
        Column("Version", ".spec.engineVersion"),
        Column("Replicas", ".spec.replication.replicas", "integer"),
        Column("Ready", ".status.readyReplicas", "integer"),
        Column("Phase", ".status.phase"),
        Column("Size", ".spec.storageSize", wide=True),
        Column("Last backup", ".status.lastBackup", "date", wide=True),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
    rules=(
        {
            "rule": "quantity(self.storageSize).compareTo(quantity(oldSelf.storageSize)) >= 0",
            "message": "storage can grow, never shrink",
            "fieldPath": ".storageSize",
        },
        {
            "rule": "semver(self.engineVersion, true).compareTo(semver(oldSelf.engineVersion, true)) >= 0",
            "messageExpression": "'cannot go back to ' + self.engineVersion + ' from ' + oldSelf.engineVersion",
            "fieldPath": ".engineVersion",
        },
        {
            "rule": "!self.replication.synchronous || self.replication.replicas > 1",
            "message": "nobody is there to wait for: synchronous replication needs two replicas or more",
            "fieldPath": ".replication",
        },
    ),
)
