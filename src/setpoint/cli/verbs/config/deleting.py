"""`config delete-cluster`, `delete-context` and `delete-user`: delete the entry, but nothing that it refers to."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.invocation import Invocation
from setpoint.cli.kubeconfig_files import Files


def _command(section: str, what: str) -> Command:
    def run(call: Invocation) -> None:
        if len(call.args) != 1:
            call.usage(f"{what} to delete is required")
        name, files = call.args[0], Files(call)
        with files.changing() as settings:
            entries = settings.section(section)
            if name not in entries:
                raise Failed(f"cannot delete {what} {name}, not in {files.default}")
            del entries[name]
            if section == "contexts" and settings.current_context == name:
                call.print_err(
                    'warning: this removed your active context, use "setpoint config use-context" to select a '
                    "different one"
                )
        call.print(f"deleted {what} {name} from {files.default}")

    return Command(
        f"Delete the specified {what} from the kubeconfig",
        run,
        usage="NAME",
        examples=f"""
        setpoint config delete-{what} staging
        """,
    )


CLUSTER = _command("clusters", "cluster")
CONTEXT = _command("contexts", "context")
USER = _command("users", "user")
