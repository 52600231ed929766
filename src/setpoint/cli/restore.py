"""`setpoint restore`: restore the state of a cluster from a backup."""

from __future__ import annotations

from pathlib import Path

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import switch
from setpoint.cli.invocation import Invocation
from setpoint.cli.running import DATA_DIR, directory_of, none_runs


def run(call: Invocation) -> None:
    # Imported here because `--help` does not need it.
    from setpoint.cluster.backups import restore_stopped
    from setpoint.cluster.config import ConfigError
    from setpoint.cluster.private_files import make_private

    if len(call.args) != 1:
        raise Failed("name the backup to restore: setpoint restore FILE")
    backup, directory = Path(call.args[0]), directory_of(call)
    if not backup.is_file():
        raise Failed(f"there is no backup {backup}")
    none_runs(directory)
    try:
        make_private(directory)
        revision = restore_stopped(backup, directory, replace=call.flags.force)
    except ConfigError as error:
        raise Failed(str(error)) from None
    call.print(f"The cluster in {directory} has the state of {backup} and continues at revision {revision}. ", end="")
    call.print("`setpoint up` starts it.")


COMMAND = Command(
    "Restore the state of a stopped cluster from a backup",
    run,
    (
        DATA_DIR,
        switch("force", "f", help="Replace the existing database, which is renamed, not deleted."),
    ),
    connects=False,
    usage="FILE",
)
