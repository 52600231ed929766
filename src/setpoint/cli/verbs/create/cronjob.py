"""`create cronjob`."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.flags import text
from setpoint.cli.invocation import Invocation
from setpoint.cli.verbs.create.making import FLAGS, begin, metadata
from setpoint.cli.verbs.create.workloads import container, template


async def run(call: Invocation) -> None:
    making = begin(call)
    flags, name = call.flags, making.name
    job = {"template": template([container(name, flags.image, making.command)], flags.restart or "OnFailure")}
    cron_job = {
        "kind": "CronJob",
        "apiVersion": "batch/v1",
        "metadata": metadata(call, name),
        "spec": {
            "schedule": flags.schedule,
            "jobTemplate": {"metadata": {"name": name, "creationTimestamp": None}, "spec": job},
        },
        "status": {},
    }
    await making.finish(cron_job, "failed to create cronjob: ")


COMMAND = Command(
    "Create a cron job with the specified name",
    run,
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
