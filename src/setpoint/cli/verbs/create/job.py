"""`create job`: create a Job from an image or from a CronJob."""

from __future__ import annotations

from typing import Any

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import text
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import choose, fetch
from setpoint.cli.verbs.create.making import FLAGS, begin, metadata
from setpoint.cli.verbs.create.workloads import container, template


async def run(call: Invocation) -> None:
    making = begin(call)
    image, origin = call.flags.image, getattr(call.flags, "from")
    if bool(image) == bool(origin):
        raise Failed("either --image or --from must be specified")
    if making.command and origin:
        raise Failed("cannot specify --from and command")
    job: dict[str, Any] = {"kind": "Job", "apiVersion": "batch/v1", "metadata": metadata(call, making.name)}
    if image:
        job["spec"] = {"template": template([container(making.name, image, making.command)], "Never")}
    else:
        job |= await _from_cron_job(call, origin, job["metadata"])
    job["status"] = {}
    await making.finish(job, "failed to create job: ")


async def _from_cron_job(call: Invocation, origin: str, meta: dict[str, Any]) -> dict[str, Any]:
    found = await fetch(call, await choose(call, [origin]))
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


COMMAND = Command(
    "Create a job with the specified name",
    run,
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
