"""`set serviceaccount`."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.invocation import Invocation
from setpoint.cli.verbs.set.changing import FLAGS, RECORDED, carry_out, check_local, items, with_pod_spec


async def run(call: Invocation) -> None:
    check_local(call)
    if not call.args:
        raise Failed("serviceaccount is required")
    account = call.args[-1]
    await carry_out(
        call,
        await items(call, call.args[:-1]),
        lambda obj: with_pod_spec(obj, lambda spec: {**spec, "serviceAccountName": account}),
        "serviceaccount updated",
        failed="failed to patch ServiceAccountName ",
        even_unchanged=True,
    )


COMMAND = Command(
    "Update the service account of a resource",
    run,
    (*FLAGS, *RECORDED),
    usage="(-f FILENAME | TYPE NAME) SERVICE_ACCOUNT",
    aliases=("sa",),
    examples="""
    setpoint set serviceaccount deployment web robot
    """,
)
