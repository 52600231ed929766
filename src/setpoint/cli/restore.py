"""`setpoint restore`: restore the state of a cluster from a backup."""

from __future__ import annotations

from pathlib import Path

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import switch
from setpoint.cli.invocation import Invocation
from setpoint.cli.running import DATA_DIR, directory_of, none_runs
from setpoint.cli.store_options import ETCD_FLAGS, progress_line, started_location


async def run(invocation: Invocation) -> None:
    # Imported here because `--help` does not need it.
    from setpoint.cluster.backups import restore
    from setpoint.cluster.config import ConfigError

    if len(invocation.args) != 1:
        raise Failed("name the backup to restore: setpoint restore FILE")
    backup = Path(invocation.args[0])
    where = ",".join(invocation.flags.etcd_servers) or directory_of(invocation)
    try:
        async with started_location(invocation) as location:
            if location.database is not None:
                none_runs(directory_of(invocation))
            with progress_line(invocation, "Restored") as progress:
                written = await restore(
                    backup, location, invocation.io.clock, replace=invocation.flags.force, progress=progress
                )
    except ConfigError as error:
        raise Failed(str(error)) from None
    given = ",".join(invocation.flags.etcd_servers)
    start = f"setpoint up --etcd-servers {given}" if given else "setpoint up"
    invocation.print(f"The cluster in {where} has the state of {backup}, {written.keys} keys, ", end="")
    invocation.print(f"and continues at revision {written.revision}. `{start}` starts it.")


COMMAND = Command(
    "Restore the state of a stopped cluster from a backup",
    run,
    (
        DATA_DIR,
        switch(
            "force",
            "f",
            help="Replace the existing database, which is renamed, or the objects in etcd, which are saved in a file.",
        ),
        *ETCD_FLAGS,
    ),
    connects=False,
    usage="FILE",
)
