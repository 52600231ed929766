"""What people write: a Sync, a source and how the cluster follows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

from setpoint.sdk import Column, Kind


@dataclass
class SyncSpec:
    """A directory or a Git repository that the cluster should be like."""

    path: Annotated[str, {"description": "Within the repository, or a directory below the operator's root."}] = "."
    repo: Annotated[str | None, {"description": "A Git repository; nothing: path is a directory."}] = None
    branch: Annotated[
        str,
        {"pattern": r"^[A-Za-z0-9][A-Za-z0-9._/-]*$", "maxLength": 200, "description": "The branch of the repository."},
    ] = "main"
    revision: Annotated[str | None, {"pattern": "^[0-9a-f]{7,64}$", "description": "Stay at this commit."}] = None
    namespace: Annotated[str | None, {"description": "For objects that name none; nothing: the Sync's own."}] = None
    interval: Annotated[
        str,
        {
            "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$",
            "maxLength": 20,
            "description": "How often the source is read, such as 30s or 5m.",
        },
    ] = "1m"
    prune: Annotated[bool, {"description": "Delete what was applied and has left the source."}] = True
    undo: Annotated[bool, {"description": "Undo drift; otherwise it is only shown."}] = True
    suspend: Annotated[bool, {"description": "Neither apply nor delete anything."}] = False


@dataclass(frozen=True)
class Entry:
    """An object that was applied."""

    apiVersion: str
    kind: str
    name: str
    namespace: str = ""

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """The same in all versions of its group."""
        return self.apiVersion.rpartition("/")[0], self.kind, self.namespace, self.name

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass
class Problem:
    file: str
    message: str


@dataclass
class Drift:
    object: str
    fields: list[str]
    found: datetime


@dataclass
class SyncStatus:
    revision: str = ""
    """Of the source when everything in it was last applied."""
    inventory: list[Entry] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    drift: list[Drift] = field(default_factory=list)
    """What was found the last time that something was not as it had been applied."""
    observedGeneration: int = 0


Sync = Kind(
    "gitops.example.com/v1",
    "Sync",
    spec=SyncSpec,
    status=SyncStatus,
    rules=(
        {
            "rule": "duration(self.interval) >= duration('1s')",
            "message": "once a second is the most",
            "fieldPath": ".interval",
        },
    ),
    columns=(
        Column("Synced", '.status.conditions[?(@.type=="Synced")].status'),
        Column("Healthy", '.status.conditions[?(@.type=="Healthy")].status'),
        Column("Revision", ".status.revision"),
        Column("Message", '.status.conditions[?(@.type=="Synced")].message', wide=True),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)
