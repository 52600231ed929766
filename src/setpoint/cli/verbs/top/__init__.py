"""`top`: show the resource usage of nodes and Pods."""

from __future__ import annotations

from setpoint.cli.command import Command, Lazy

COMMAND = Command(
    "Display resource (CPU/memory) usage",
    children={
        "node": Lazy("Display resource (CPU/memory) usage of nodes", f"{__name__}.node", ("nodes", "no")),
        "pod": Lazy("Display resource (CPU/memory) usage of pods", f"{__name__}.pod", ("pods", "po")),
    },
    usage="[node | pod]",
)
