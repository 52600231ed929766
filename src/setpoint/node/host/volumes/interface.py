"""The terms of the volumes of real nodes: a volume that can be mounted, and the errors with the kubelet's messages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from setpoint.meta.goformat import quote


class VolumeError(Exception):
    """Volumes of a Pod cannot be mounted or unmounted. The text is the first of the messages."""

    def __init__(self, *messages: str) -> None:
        super().__init__(messages[0])
        self.messages: Sequence[str] = messages
        """The messages of the kubelet's FailedMount Events, one for each Event."""


class SetUpError(Exception):
    """One volume cannot be set up."""

    def __init__(self, problem: str, phase: str = "SetUp failed", name: str = "") -> None:
        super().__init__(problem)
        self.phase = phase
        """The step that failed, as the kubelet names it, such as `NodeAffinity check failed`."""
        self.name = name
        """The name of the PersistentVolume; empty if there is none, or the caller knows it."""

    def message(self, volume: str) -> str:
        """Return the kubelet's message about a volume with this name."""
        return f"MountVolume.{self.phase} for volume {quote(self.name or volume)} : {self}"


class ProcessingError(Exception):
    """The kubelet cannot determine what a volume refers to, such as a claim that is not bound."""


class HostVolume(Protocol):
    """A volume of one Pod."""

    @property
    def name(self) -> str:
        """The name in messages: that of the PersistentVolume, or that in the Pod."""
        ...

    @property
    def path(self) -> Path:
        """The directory or file that is mounted into containers."""
        ...

    @property
    def read_only(self) -> bool:
        """Whether the volume is read-only for all containers."""
        ...

    def set_up(self) -> None:
        """Make the volume available, or verify that it is. Blocks. Raise SetUpError or OSError if that fails."""
        ...


class VolumeUsage(NamedTuple):
    """The usage of a volume, and the size of its file system."""

    used_bytes: int
    inodes_used: int
    capacity_bytes: int
    available_bytes: int
    inodes: int
    inodes_free: int
