"""`set`: change one aspect of existing objects or files."""

from __future__ import annotations

from setpoint.cli.command import Command, Lazy


def _of(module: str, summary: str, *aliases: str, constant: str = "COMMAND") -> Lazy:
    return Lazy(summary, f"{__name__}.{module}", aliases, constant=constant)


COMMAND = Command(
    "Set specific features on objects",
    children={
        "env": _of("env", "Update environment variables on a pod template"),
        "image": _of("pod_template", "Update the image of a pod template", constant="IMAGE"),
        "resources": _of(
            "pod_template", "Update resource requests/limits on objects with pod templates", constant="RESOURCES"
        ),
        "selector": _of("selector", "Set the selector on a resource"),
        "serviceaccount": _of(
            "pod_template", "Update the service account of a resource", "sa", constant="SERVICE_ACCOUNT"
        ),
        "subject": _of(
            "subject", "Update the user, group, or service account in a role binding or cluster role binding"
        ),
    },
    usage="SUBCOMMAND",
    examples="""
    setpoint set image deployment/web nginx=nginx:1.27
    """,
)
