"""Where the numbers come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol


class Used(NamedTuple):
    cpu_nano: int
    """Cores, in billionths."""
    memory_bytes: int


class PodSample(NamedTuple):
    window: float
    """Over how many seconds it was measured."""
    containers: Mapping[str, Used]


@dataclass(frozen=True, slots=True)
class Sample:
    """All nodes at one moment."""

    at: datetime
    window: float
    nodes: Mapping[str, Used] = field(default_factory=dict)
    pods: Mapping[str, PodSample] = field(default_factory=dict)
    """By uid; only those that have run for long enough to be measured."""


class UsageSource(Protocol):
    async def sample(self) -> Sample:
        """A recent one."""
        ...
