"""What people write: a CoolStorage, a bucket at the provider's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from setpoint.sdk import Column, Kind


@dataclass
class CoolStorageSpec:
    """A bucket, as it should be."""

    region: Annotated[
        str, {"minLength": 1, "maxLength": 32, "description": "The provider's region, in which the bucket is."}
    ] = "north"
    sizeGB: Annotated[int, {"minimum": 1, "description": "Size of the bucket in gigabytes."}] = 10
    versioning: Annotated[bool, {"description": "Keep former versions of what is stored."}] = False
    whenDeleted: Annotated[Literal["Delete", "Keep"], {"description": "What becomes of the bucket."}] = "Delete"


@dataclass
class CoolStorageStatus:
    bucketID: str | None = None
    url: str | None = None
    state: str | None = None
    observedGeneration: int = 0


CoolStorage = Kind(
    "storage.example.com/v1",
    "CoolStorage",
    plural="coolstorages",
    spec=CoolStorageSpec,
    status=CoolStorageStatus,
    short=("cool",),
    columns=(
        Column("Size", ".spec.sizeGB", "integer"),
        Column("Bucket", ".status.bucketID"),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
    rules=({"rule": "self.region == oldSelf.region", "message": "a bucket cannot move", "fieldPath": ".region"},),
)
