"""`create deployment`."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import number, texts
from setpoint.cli.invocation import Invocation
from setpoint.cli.verbs.create.making import FLAGS, begin, metadata
from setpoint.cli.verbs.create.workloads import container, template


async def run(call: Invocation) -> None:
    making = begin(call)
    images, name = call.flags.image, making.name
    if len(images) > 1 and making.command:
        raise Failed("cannot specify multiple --image options and command")
    labels = {"app": name}
    containers = [
        container(_container_name(call, image), image, making.command, call.flags.port if first else -1)
        for image, first in zip(images, [True, *[False] * len(images)], strict=False)
    ]
    deployment = {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": metadata(call, name, labels=labels),
        "spec": {
            "replicas": call.flags.replicas,
            "selector": {"matchLabels": labels},
            "template": template(containers, labels=labels),
            "strategy": {},
        },
        "status": {},
    }
    await making.finish(deployment, "failed to create deployment: ")


def _container_name(call: Invocation, image: str) -> str:
    """Return the last part of the image's name, converted to a valid and unique container name."""
    name = image.rpartition("/")[2].partition(":")[0].partition("@")[0]
    if "_" in name or "." in name:
        name = f"{name.replace('_', '-').replace('.', '-')}-{call.io.suffix()}"
    return name


COMMAND = Command(
    "Create a deployment with the specified name",
    run,
    (
        *FLAGS,
        texts("image", help="Image names to run; several make a Pod of several containers.", required=True),
        number("port", default=-1, help="The containerPort that this deployment exposes.", bits=32),
        number("replicas", "r", default=1, help="Number of replicas to create.", bits=32),
    ),
    usage="NAME --image=image -- [COMMAND] [args...]",
    aliases=("deploy",),
    examples="""
    # Three replicas of an image
    setpoint create deployment web --image=nginx --replicas=3

    # What it would create, as a manifest
    setpoint create deployment web --image=nginx --dry-run=client -o yaml

    # With a command of its own
    setpoint create deployment clock --image=busybox -- date
    """,
)
