"""`auth`: show the current user and its permissions."""

from __future__ import annotations

from setpoint.cli.command import Command, Lazy


def _of(module: str, summary: str) -> Lazy:
    return Lazy(summary, f"{__name__}.{module}")


COMMAND = Command(
    "Inspect authorization",
    children={
        "can-i": _of("can_i", "Check whether an action is allowed"),
        "reconcile": _of(
            "reconcile", "Reconciles rules for RBAC role, role binding, cluster role, and cluster role binding objects"
        ),
        "whoami": _of("whoami", "Check self subject attributes"),
    },
    usage="SUBCOMMAND",
)
