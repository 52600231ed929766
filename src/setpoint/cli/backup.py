"""`setpoint backup`: the state of a cluster, running or stopped, in one file."""

from __future__ import annotations

from pathlib import Path

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.invocation import Invocation
from setpoint.cli.running import DATA_DIR, directory_of, find_running, is_locked


async def run(call: Invocation) -> None:
    # Imported here because `--help` does not need it.
    from setpoint.cluster.backups import back_up_stopped
    from setpoint.cluster.config import ConfigError

    if len(call.args) != 1:
        raise Failed("name the file to write the backup to: setpoint backup FILE")
    path, directory = Path(call.args[0]), directory_of(call)
    elsewhere = not call.flags.given("data-dir") and call.choice.explicit and call.choice.directory is None
    try:
        if elsewhere:
            revision = await _from_server(call, path)
        elif find_running(directory) is not None or is_locked(directory):
            call.point_to(directory)
            revision = await _from_server(call, path)
        else:
            revision = back_up_stopped(directory, path)
    except ConfigError as error:
        raise Failed(str(error)) from None
    call.print(f"{path} holds the cluster's state at revision {revision}. `setpoint restore {path}` brings it back.")


async def _from_server(call: Invocation, path: Path) -> int:
    from setpoint.client.failures import failure
    from setpoint.client.transport import Reply
    from setpoint.cluster.backups import BACKUP_PATH, write_backup

    stream = await call.client.sender.stream("GET", BACKUP_PATH, accept="*/*")
    try:
        if stream.status != 200:
            raise failure(Reply(stream.status, stream.headers, b"".join([piece async for piece in stream])))
        return await write_backup(path, stream)
    finally:
        stream.close()


COMMAND = Command(
    "Write the state of a cluster, running or stopped, to a file",
    run,
    (DATA_DIR,),
    usage="FILE",
    examples="""
    # Of the cluster in .setpoint, whether it runs or not
    setpoint backup monday.backup

    # And back
    setpoint down
    setpoint restore monday.backup --force
    """,
)
