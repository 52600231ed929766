"""What the controllers can be told, with upstream's names and defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """Seconds where it is about time. Each controller takes from here what concerns it."""

    root_ca: str = ""
    """The certificate, as PEM, by which Pods know the API server: goes into every namespace. Empty: none is published."""
    cluster_name: str = "kubernetes"
