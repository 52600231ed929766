"""`setpoint backup`: the state of a cluster, running or stopped, in one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.invocation import Invocation
from setpoint.cli.running import DATA_DIR, directory_of, find_running, is_open
from setpoint.cli.store_options import ETCD_FLAGS, location_of, started_location

if TYPE_CHECKING:
    from setpoint.cluster.backups import BackupHeader


async def run(invocation: Invocation) -> None:
    # Imported here because `--help` does not need it.
    from setpoint.cluster.backups import back_up
    from setpoint.cluster.config import ConfigError

    if len(invocation.args) != 1:
        raise Failed("name the file to write the backup to: setpoint backup FILE")
    path, directory = Path(invocation.args[0]), directory_of(invocation)
    elsewhere = (
        not invocation.flags.given("data-dir") and invocation.choice.explicit and invocation.choice.directory is None
    )
    try:
        if invocation.flags.etcd_servers:
            header = await back_up(location_of(invocation), path, invocation.io.clock)
        elif elsewhere:
            header = await _from_server(invocation, path)
        elif find_running(directory) is not None or is_open(directory):
            invocation.point_to(directory)
            header = await _from_server(invocation, path)
        else:
            async with started_location(invocation) as location:
                header = await back_up(location, path, invocation.io.clock)
    except ConfigError as error:
        raise Failed(str(error)) from None
    invocation.print(f"{path} holds the cluster's state at revision {header.revision}, {header.keys} keys. ", end="")
    invocation.print(f"`setpoint restore {path}` brings it back.")


async def _from_server(invocation: Invocation, path: Path) -> BackupHeader:
    from setpoint.client.failures import failure
    from setpoint.client.transport import Reply
    from setpoint.cluster.backups import BACKUP_PATH, write_backup

    stream = await invocation.client.sender.stream("GET", BACKUP_PATH, accept="*/*")
    try:
        if stream.status != 200:
            raise failure(Reply(stream.status, stream.headers, b"".join([piece async for piece in stream])))
        return await write_backup(path, stream)
    finally:
        stream.close()


COMMAND = Command(
    "Write the state of a cluster, running or stopped, to a file",
    run,
    (DATA_DIR, *ETCD_FLAGS),
    usage="FILE",
    examples="""
    # Of the cluster in .setpoint, whether it runs or not
    setpoint backup monday.backup

    # And back
    setpoint down
    setpoint restore monday.backup --force

    # Of a cluster on etcd, directly from etcd
    setpoint backup monday.backup --etcd-servers https://10.0.0.1:2379,https://10.0.0.2:2379
    """,
)
