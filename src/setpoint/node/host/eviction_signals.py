"""Eviction signals of the kubelet: thresholds, observations of the machine, and conditions that follow from them. Pure
functions."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from setpoint.meta.quantity import BINARY, DECIMAL, Format, Quantity, QuantityError, of_value, parse
from setpoint.meta.times import parse_duration

MEMORY_AVAILABLE, ALLOCATABLE_MEMORY_AVAILABLE = "memory.available", "allocatableMemory.available"
NODE_FS_AVAILABLE, NODE_FS_INODES_FREE = "nodefs.available", "nodefs.inodesFree"
IMAGE_FS_AVAILABLE, IMAGE_FS_INODES_FREE = "imagefs.available", "imagefs.inodesFree"
PID_AVAILABLE = "pid.available"

MEMORY_PRESSURE, DISK_PRESSURE, PID_PRESSURE = "MemoryPressure", "DiskPressure", "PIDPressure"
MEMORY, EPHEMERAL_STORAGE, INODES, PIDS = "memory", "ephemeral-storage", "inodes", "pids"

CONDITION_OF = {
    MEMORY_AVAILABLE: MEMORY_PRESSURE,
    ALLOCATABLE_MEMORY_AVAILABLE: MEMORY_PRESSURE,
    NODE_FS_AVAILABLE: DISK_PRESSURE,
    NODE_FS_INODES_FREE: DISK_PRESSURE,
    IMAGE_FS_AVAILABLE: DISK_PRESSURE,
    IMAGE_FS_INODES_FREE: DISK_PRESSURE,
    PID_AVAILABLE: PID_PRESSURE,
}
"""The Node's condition by signal."""
RESOURCE_OF = {
    MEMORY_AVAILABLE: MEMORY,
    ALLOCATABLE_MEMORY_AVAILABLE: MEMORY,
    NODE_FS_AVAILABLE: EPHEMERAL_STORAGE,
    NODE_FS_INODES_FREE: INODES,
    IMAGE_FS_AVAILABLE: EPHEMERAL_STORAGE,
    IMAGE_FS_INODES_FREE: INODES,
    PID_AVAILABLE: PIDS,
}
"""The resource that messages name, by signal."""
DEFAULT_HARD: Mapping[str, str] = {
    MEMORY_AVAILABLE: "100Mi",
    NODE_FS_AVAILABLE: "10%",
    NODE_FS_INODES_FREE: "5%",
    IMAGE_FS_AVAILABLE: "15%",
    IMAGE_FS_INODES_FREE: "5%",
}
"""The kubelet's default thresholds; there is none for processes."""


class ThresholdError(ValueError):
    """A threshold is invalid; the message is the kubelet's."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A signal and the value below which Pods are evicted: a quantity, or a fraction of the capacity."""

    signal: str
    quantity: Quantity | None = None
    fraction: float = 0.0
    """A fraction of the capacity, used if `quantity` is None."""
    grace_seconds: float = 0.0
    """How long the signal may be below the threshold before Pods are evicted; 0 for a hard threshold."""

    def amount(self, capacity: int) -> Quantity:
        """Return the threshold as a quantity, for a capacity."""
        return self.quantity or of_value(int(capacity * self.fraction), BINARY)


class Observation(NamedTuple):
    """A measurement for a signal, in bytes, inodes or processes."""

    available: int
    capacity: int
    format: Format = BINARY


def parse_thresholds(statements: Mapping[str, str], *, allocatable: bool = True) -> tuple[Threshold, ...]:
    """Parse hard thresholds by signal, such as `{"memory.available": "100Mi"}`. With `allocatable`, the memory
    threshold applies to the memory of all Pods too. Raise ThresholdError."""
    found = [each for signal, value in statements.items() if (each := _parse(signal, value)) is not None]
    if allocatable:
        found += [
            replace(each, signal=ALLOCATABLE_MEMORY_AVAILABLE) for each in found if each.signal == MEMORY_AVAILABLE
        ]
    return tuple(found)


def parse_soft_thresholds(statements: Mapping[str, str], periods: Mapping[str, str]) -> tuple[Threshold, ...]:
    """Parse soft thresholds by signal. `periods` has a grace period such as 1m30s for each. Raise ThresholdError."""
    found = []
    for each in parse_thresholds(statements, allocatable=False):
        if each.signal not in periods:
            raise ThresholdError(f"grace period must be specified for the soft eviction threshold {each.signal}")
        try:
            seconds = parse_duration(periods[each.signal]) / 1e9
        except ValueError as error:
            raise ThresholdError(str(error)) from None
        if seconds < 0:
            raise ThresholdError(f"invalid eviction grace period specified: {periods[each.signal]}, must be positive")
        found.append(replace(each, grace_seconds=seconds))
    return tuple(found)


def _parse(signal: str, value: str) -> Threshold | None:
    if signal not in RESOURCE_OF:
        raise ThresholdError(f"unsupported eviction signal {signal}")
    if value.endswith("%"):
        if value in ("0%", "100%"):  # disables the threshold
            return None
        try:
            # The kubelet calculates with single precision, and its rounding is visible in the allocatable amounts.
            (fraction,) = struct.unpack("f", struct.pack("f", float(value[:-1])))
            (fraction,) = struct.unpack("f", struct.pack("f", fraction / 100))
        except (ValueError, OverflowError):
            raise ThresholdError(f"eviction percentage threshold {signal} is not a number: {value}") from None
        if fraction < 0:
            raise ThresholdError(f"eviction percentage threshold {signal} must be >= 0%: {value}")
        if not fraction <= 1:
            raise ThresholdError(f"eviction percentage threshold {signal} must be <= 100%: {value}")
        return Threshold(signal, None, fraction)
    try:
        quantity = parse(value)
    except QuantityError as error:
        raise ThresholdError(str(error)) from None
    if quantity.sign() <= 0:
        raise ThresholdError(f"eviction threshold {signal} must be positive: {quantity.text}")
    return Threshold(signal, quantity)


def reserved_for_eviction(thresholds: Iterable[Threshold], capacity: Mapping[str, int]) -> dict[str, int]:
    """Return the bytes that thresholds keep free, by resource: memory and ephemeral-storage."""
    found = {}
    for each in thresholds:
        resource = {MEMORY_AVAILABLE: MEMORY, NODE_FS_AVAILABLE: EPHEMERAL_STORAGE}.get(each.signal)
        if resource is not None:
            found[resource] = each.amount(capacity.get(resource, 0)).value()
    return found


def thresholds_met(thresholds: Iterable[Threshold], observations: Mapping[str, Observation]) -> tuple[Threshold, ...]:
    """Return the thresholds whose signal is below them. One without an observation is not met."""
    return tuple(
        each
        for each in thresholds
        if (seen := observations.get(each.signal)) is not None and seen.available < each.amount(seen.capacity).value()
    )


def conditions_of(thresholds: Iterable[Threshold]) -> frozenset[str]:
    return frozenset(CONDITION_OF[each.signal] for each in thresholds)


def observed_quantity(observation: Observation) -> str:
    return of_value(observation.available, observation.format).text


def count_observation(available: int, capacity: int) -> Observation:
    """Return an observation of a number of things rather than bytes."""
    return Observation(available, capacity, DECIMAL)
