"""`rollout`: status, history and undo of workload changes."""

from __future__ import annotations

from setpoint.cli.command import Command, Lazy


def _of(module: str, summary: str, constant: str = "COMMAND") -> Lazy:
    return Lazy(summary, f"{__name__}.{module}", constant=constant)


COMMAND = Command(
    "Manage the rollout of one or many resources",
    children={
        "history": _of("revisions", "View rollout history", "HISTORY"),
        "pause": _of("changes", "Mark the provided resource as paused", "PAUSE"),
        "restart": _of("changes", "Restart a resource", "RESTART"),
        "resume": _of("changes", "Resume a paused resource", "RESUME"),
        "status": _of("status", "Show the status of the rollout"),
        "undo": _of("revisions", "Undo a previous rollout", "UNDO"),
    },
    usage="SUBCOMMAND",
    about="Deployments, daemon sets and stateful sets have rollouts.",
    examples="""
    # Back to the revision before
    setpoint rollout undo deployment/web

    # Wait until the new one is there
    setpoint rollout status deployment/web
    """,
)
