"""Faults of images that users inject while simulated nodes run."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class ImageFaults:
    broken: set[str] = field(default_factory=set)
    """Full names of images that can neither be pulled nor started again."""
    registry_away: bool = False
    """Whether no registry answers. Images that a node has already can still be started."""
