"""`edit`: edit objects of the server in the user's editor."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.editing import edit_objects
from setpoint.cli.flags import switch
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import FILES
from setpoint.cli.writing import OUTPUT, RECORD, SAVE_CONFIG, VALIDATE, field_manager, subresource


async def run(invocation: Invocation) -> None:
    await edit_objects(invocation)


COMMAND = Command(
    "Edit a resource on the server",
    run,
    (
        *FILES,
        *OUTPUT,
        *VALIDATE,
        *SAVE_CONFIG,
        *RECORD,
        *field_manager("kubectl-edit"),
        *subresource("Edit this part of the object."),
        switch("output-patch", help="Output the patch if the resource is edited."),
        switch("windows-line-endings", help="Lines end as on Windows."),
    ),
    usage="(RESOURCE/NAME | -f FILENAME) [flags]",
    about="""
    Edit a resource from the default editor: the one that KUBE_EDITOR or EDITOR names, or vi. Several objects come in
    one file. What the server does not accept comes back with the reasons in comments; what is saved without a change,
    or empty, changes nothing.
    """,
    examples="""
    # A Service
    setpoint edit svc/web

    # With another editor
    KUBE_EDITOR="nano" setpoint edit svc/web

    # In JSON
    setpoint edit job.v1.batch/backup -o json

    # Through a subresource
    setpoint edit deployment web --subresource=status
    """,
)
