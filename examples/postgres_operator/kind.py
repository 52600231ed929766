"""What people write: a PostgresCluster, and what they may ask of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from setpoint.sdk import Column, Kind, Scale


@dataclass
class Replication:
    """Replicas beside the primary."""

    enabled: Annotated[bool, {"description": "Run more than one instance."}] = False
    replicaCount: Annotated[
        int, {"minimum": 1, "maximum": 9, "description": "Instances while enabled, the primary included."}
    ] = 2
    synchronous: Annotated[bool, {"description": "A commit waits until one replica has it."}] = False

    @property
    def instances(self) -> int:
        """The desired number of instances; the first is the primary."""
        return self.replicaCount if self.enabled else 1


@dataclass
class PostgresSpec:
    """A PostgreSQL cluster, as it should be."""

    engineVersion: Annotated[
        str,
        {
            "pattern": r"^[0-9]+(\.[0-9]+)?$",
            "maxLength": 8,
            "description": "Version of PostgreSQL, such as 16 or 15.3; it can rise, never fall.",
        },
    ]
    storageSize: Annotated[
        str,
        {
            "pattern": "^[1-9][0-9]*(Mi|Gi|Ti)$",
            "maxLength": 12,
            "description": "Storage of each instance, such as 100Gi; it can grow, never shrink.",
        },
    ] = "1Gi"
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
    """Creating, Running, Updating, Resizing, Degraded, FailingOver, Deleting: a word for people. Programs look at
    conditions."""
    ready: str = ""
    """Ready and desired instances, as in `2/2`: for the table."""
    primary: str = ""
    """The instance that accepts writes."""
    replicas: int = 0
    readyReplicas: int = 0
    selector: str = ""
    observedGeneration: int = 0
    endpoints: Endpoints | None = None
    lastBackup: str | None = None


PostgresCluster = Kind(
    "database.example.com/v1alpha1",
    "PostgresCluster",
    spec=PostgresSpec,
    status=PostgresStatus,
    short=("pg",),
    categories=("databases",),
    scale=Scale(spec=".spec.replication.replicaCount", status=".status.replicas", selector=".status.selector"),
    columns=(
        Column("Phase", ".status.phase"),
        Column("Ready", ".status.ready"),
        Column("Primary", ".status.primary"),
        Column("Version", ".spec.engineVersion"),
        Column("Size", ".spec.storageSize"),
        Column("Last backup", ".status.lastBackup", "date"),
        Column("Message", '.status.conditions[?(@.type=="Ready")].message', wide=True),
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
            "rule": "!self.replication.synchronous || (self.replication.enabled && self.replication.replicaCount > 1)",
            "message": "synchronous replication needs replication.enabled and a replicaCount of two or more",
            "fieldPath": ".replication",
        },
    ),
)
