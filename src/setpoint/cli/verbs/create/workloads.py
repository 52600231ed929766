"""`create deployment`, `create job` and `create cronjob`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import number, text, texts
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import choose, fetch
from setpoint.cli.verbs.create.making import FLAGS, begin, metadata
from setpoint.meta.objects import Obj


def container(name: str, image: str, command: Sequence[str] = (), port: int = -1) -> Obj:
    made: Obj = {"name": name, "image": image}
    if command:
        made["command"] = list(command)
    if port >= 0:
        made["ports"] = [{"containerPort": port}]
    made["resources"] = {}
    return made


def template(containers: Sequence[Obj], restart: str = "", labels: Mapping[str, str] | None = None) -> Obj:
    meta: Obj = {"creationTimestamp": None}
    if labels:
        meta["labels"] = dict(labels)
    spec: Obj = {"containers": list(containers)}
    if restart:
        spec["restartPolicy"] = restart
    return {"metadata": meta, "spec": spec}


async def create_deployment(invocation: Invocation) -> None:
    making = begin(invocation)
    images, name = invocation.flags.image, making.name
    if len(images) > 1 and making.command:
        raise Failed("cannot specify multiple --image options and command")
    labels = {"app": name}
    containers = [
        container(_container_name(invocation, image), image, making.command, invocation.flags.port if first else -1)
        for image, first in zip(images, [True, *[False] * len(images)], strict=False)
    ]
    deployment = {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": metadata(invocation, name, labels=labels),
        "spec": {
            "replicas": invocation.flags.replicas,
            "selector": {"matchLabels": labels},
            "template": template(containers, labels=labels),
            "strategy": {},
        },
        "status": {},
    }
    await making.finish(deployment, "failed to create deployment: ")


def _container_name(invocation: Invocation, image: str) -> str:
    """Return the last part of the image's name, converted to a valid and unique container name."""
    name = image.rpartition("/")[2].partition(":")[0].partition("@")[0]
    if "_" in name or "." in name:
        name = f"{name.replace('_', '-').replace('.', '-')}-{invocation.io.suffix()}"
    return name


DEPLOYMENT = Command(
    "Create a deployment with the specified name",
    create_deployment,
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


async def create_job(invocation: Invocation) -> None:
    making = begin(invocation)
    image, origin = invocation.flags.image, getattr(invocation.flags, "from")
    if bool(image) == bool(origin):
        raise Failed("either --image or --from must be specified")
    if making.command and origin:
        raise Failed("cannot specify --from and command")
    job: dict[str, Any] = {"kind": "Job", "apiVersion": "batch/v1", "metadata": metadata(invocation, making.name)}
    if image:
        job["spec"] = {"template": template([container(making.name, image, making.command)], "Never")}
    else:
        job |= await _from_cron_job(invocation, origin, job["metadata"])
    job["status"] = {}
    await making.finish(job, "failed to create job: ")


async def _from_cron_job(invocation: Invocation, origin: str, meta: dict[str, Any]) -> dict[str, Any]:
    found = await fetch(invocation, await choose(invocation, [origin]))
    if len(found) != 1:
        raise Failed("from must be an existing cronjob")
    parent = found[0].obj or {}
    if found[0].resource.group != "batch" or parent.get("kind") != "CronJob":
        version = f"v{found[0].resource.version.removeprefix('v')}"
        raise Failed(f"unknown object type *{version}.{parent.get('kind')}")
    pattern = parent["spec"]["jobTemplate"]
    of_pattern = pattern.get("metadata") or {}
    if of_pattern.get("labels"):
        meta["labels"] = of_pattern["labels"]
    meta["annotations"] = {"cronjob.kubernetes.io/instantiate": "manual", **(of_pattern.get("annotations") or {})}
    meta["ownerReferences"] = [
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "name": parent["metadata"]["name"],
            "uid": parent["metadata"]["uid"],
            "controller": True,
        }
    ]
    return {"metadata": meta, "spec": pattern["spec"]}


JOB = Command(
    "Create a job with the specified name",
    create_job,
    (
        *FLAGS,
        text("image", help="Image name to run."),
        text("from", help="The name of the resource to create a Job from (only CronJob is supported)."),
    ),
    usage="NAME --image=image [--from=cronjob/name] -- [COMMAND] [args...]",
    examples="""
    # Run a command to its end
    setpoint create job today --image=busybox -- date

    # Now, what a cron job would do at its time
    setpoint create job by-hand --from=cronjob/nightly
    """,
)


async def create_cron_job(invocation: Invocation) -> None:
    making = begin(invocation)
    flags, name = invocation.flags, making.name
    job = {"template": template([container(name, flags.image, making.command)], flags.restart or "OnFailure")}
    cron_job = {
        "kind": "CronJob",
        "apiVersion": "batch/v1",
        "metadata": metadata(invocation, name),
        "spec": {
            "schedule": flags.schedule,
            "jobTemplate": {"metadata": {"name": name, "creationTimestamp": None}, "spec": job},
        },
        "status": {},
    }
    await making.finish(cron_job, "failed to create cronjob: ")


CRON_JOB = Command(
    "Create a cron job with the specified name",
    create_cron_job,
    (
        *FLAGS,
        text("image", help="Image name to run.", required=True),
        text("schedule", help="A schedule in the Cron format the job should be run with.", required=True),
        text("restart", default="OnFailure", help="The job's restart policy: OnFailure, Never"),
    ),
    usage="NAME --image=image --schedule='0/5 * * * ?' -- [COMMAND] [args...]",
    aliases=("cj",),
    examples="""
    # Every minute
    setpoint create cronjob tick --image=busybox --schedule="*/1 * * * *" -- date
    """,
)
