"""`apply edit-last-applied`: edit the last-applied annotation in the user's editor."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.editing import edit_last_applied
from setpoint.cli.flags import switch
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import FILES
from setpoint.cli.writing import OUTPUT, RECORD, VALIDATE, field_manager


async def run(call: Invocation) -> None:
    await edit_last_applied(call)


COMMAND = Command(
    "Edit latest last-applied-configuration annotations of a resource/object",
    run,
    (
        *FILES,
        *OUTPUT,
        *RECORD,
        *VALIDATE,
        *field_manager("kubectl-client-side-apply"),
        switch("windows-line-endings", help="Lines end as on Windows."),
    ),
    usage="(RESOURCE/NAME | -f FILENAME) [flags]",
    examples="""
    # What was applied last to a Deployment
    setpoint apply edit-last-applied deployment/web
    """,
)
