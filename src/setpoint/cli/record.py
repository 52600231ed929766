"""`setpoint record` and `setpoint replay`: what happens in a cluster, in a file, and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import decimal, duration, number, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.simulating import in_virtual_time
from setpoint.meta.times import parse_time, unix_milliseconds

if TYPE_CHECKING:
    from setpoint.cluster.cluster_copy import ClusterCopy
    from setpoint.cluster.snapshot_file import StateReader, StoredChange
    from setpoint.cluster.virtual.replay import ReplayResult
    from setpoint.meta.clock import Clock

_MAX_REFUSED = 20


async def record(invocation: Invocation) -> None:
    # Imported here because `--help` does not need it.
    from setpoint.cluster.cluster_copy import copied
    from setpoint.cluster.recording import Recorder, RecordingFailed, check_causes
    from setpoint.cluster.signals import stop_on_signals
    from setpoint.cluster.snapshot_file import INCLUDED, LEFT_OUT, SnapshotWriter

    flags, clock, path = invocation.flags, invocation.io.clock, _file(invocation, "setpoint record FILE")
    client = invocation.client
    client.sender.on_warning = lambda text: None  # of deprecated kinds, which are recorded too
    if flags.inputs:
        try:
            await check_causes(client)
        except RecordingFailed as failed:
            raise Failed(str(failed)) from None
    secrets = INCLUDED if flags.secrets else LEFT_OUT
    copy = await copied(client, clock.now(), secrets=secrets)
    writer = SnapshotWriter(path, copy.header(clock.now(), recording=True, inputs=flags.inputs))
    try:
        for item in copy.stored():
            writer.add(item)
        writer.flush()
        recorder = Recorder(client, clock, copy, writer, inputs=flags.inputs)
        how = f"for {flags.duration:g} s" if flags.duration else "until Ctrl-C"
        invocation.print_err(f"Recording from revision {copy.revision} on, {how} ...")
        try:
            async with asyncio.TaskGroup() as tasks:
                stop = asyncio.Event() if flags.duration else stop_on_signals()
                if flags.duration:
                    tasks.create_task(_set_after(stop, clock, flags.duration))
                await recorder.run(stop)
        except* RecordingFailed as failed:
            raise Failed(f"{failed.exceptions[0]}; {path} holds what was recorded until then") from None
        size = writer.finish(unix_milliseconds(clock.now()))
    finally:
        writer.abandon()
    what = "inputs" if flags.inputs else "revisions"
    invocation.print(f"{path} holds {len(copy.objects)} objects and {recorder.changes} {what}, {size / 1e3:.1f} kB.")
    if recorder.late:
        invocation.print(f"  {recorder.late} changes came too late to be recorded in order, and are missing.")


async def _set_after(event: asyncio.Event, clock: Clock, seconds: float) -> None:
    await clock.sleep(seconds)
    event.set()


async def replay(invocation: Invocation) -> int:
    from setpoint.cluster.cluster_copy import loaded_copy
    from setpoint.cluster.manifest_reader import opened_state
    from setpoint.cluster.snapshot_file import InvalidSnapshot

    flags = invocation.flags
    if flags.speed <= 0:
        invocation.usage("--speed must be greater than 0")
    path = _file(invocation, "setpoint replay FILE")
    try:
        reader = opened_state(path, invocation.io.clock.now())
        copy = loaded_copy(reader)
        if not reader.header.recording:
            raise Failed(f"{path} is a snapshot, in which nothing happens: `setpoint record` makes recordings")
        if reader.header.inputs:
            return await _replay_inputs(invocation, reader, copy)
        if flags.inputs:
            raise Failed(f"{path} holds all changes, not only inputs: record it with --inputs")
        return await _play(invocation, reader, copy)
    except InvalidSnapshot as error:
        raise Failed(str(error)) from None


async def _replay_inputs(invocation: Invocation, reader: StateReader, copy: ClusterCopy) -> int:
    from setpoint.cluster.virtual.replay import replay_inputs

    changes = [*reader.changes()]
    until = invocation.flags.until

    async def main(interrupted: Callable[[], bool]) -> ReplayResult:
        return await replay_inputs(copy, changes, reader.final, reader.ended_at, until=until, interrupted=interrupted)

    result = await in_virtual_time(main)
    invocation.print(f"Repeated {result.inputs} inputs on {len(copy.objects)} objects in virtual time.")
    for each in result.refused[:_MAX_REFUSED]:
        invocation.print(f"  refused: {each}")
    if not result.settled:
        invocation.print("The loops did not settle within an hour after the last input.")
    if result.same:
        invocation.print("The state at the end is the recorded one.")
    elif until:
        invocation.print(f"The state at the end is not compared, because the replay ended at revision {until}.")
    elif result.same is None:
        invocation.print("The recording has no final state to compare with.")
    else:
        invocation.print("The state at the end differs from the recorded one:")
        invocation.print("\n".join(f"  {line}" for line in result.difference.splitlines()))
    invocation.print(f"Digest of all writes: {result.digest[:16]}")
    return 1 if result.same is False or result.refused else 0


async def _play(invocation: Invocation, reader: StateReader, copy: ClusterCopy) -> int:
    from setpoint.cluster.playback import play, playback

    flags, clock = invocation.flags, invocation.io.clock
    start = unix_milliseconds(parse_time(reader.header.at))
    current = {key: item.value for key, item in copy.objects.items()}

    def show(change: StoredChange) -> None:
        for line in change_lines(change, current):
            invocation.print(f"{change.revision:>10}  {(change.at - start) / 1000:+9.1f}s  {line}")
        invocation.flush()

    if not flags.serve:
        await play(reader.changes(), start, clock, show, speed=flags.speed, until=flags.until)
        return 0
    from setpoint.cluster.signals import stop_on_signals

    stop = stop_on_signals()
    async with playback(copy, Path(flags.data_dir), flags.port, clock) as running:
        invocation.print(f"The recording is served at {running.url}: export KUBECONFIG={running.kubeconfig}")
        invocation.flush()

        def happen(change: StoredChange) -> None:
            running.store.play(change)
            show(change)

        await play(reader.changes(), start, clock, happen, speed=flags.speed, until=flags.until)
        invocation.print("The recording has ended; Ctrl-C stops the server.")
        invocation.flush()
        await stop.wait()
    return 0


def change_lines(change: StoredChange, current: dict[str, bytes]) -> list[str]:
    """Return a line for each written object, and bring `current` up to date."""
    from setpoint.cluster.virtual.stored_state import kind_of
    from setpoint.meta.cause import decode
    from setpoint.view.actors import actor_of
    from setpoint.view.changes import changes, summary

    actor = actor_of(decode(orjson.dumps(change.cause)) if change.cause else None)
    lines = []
    for key, value in change.writes:
        before = current.pop(key, None)
        if value is not None:
            current[key] = value
        old = orjson.loads(before) if before is not None else None
        new = orjson.loads(value) if value is not None else None
        obj = new or old or {"metadata": {"name": key}}
        verb = "created" if old is None else "deleted" if new is None else "changed"
        name = f"{kind_of(key, obj).lower()}/{obj['metadata']['name']}"
        what = summary(changes(old, new)) if verb == "changed" else ""
        lines.append(f"{actor} {verb} {name}{f': {what}' if what else ''}")
    return lines


def _file(invocation: Invocation, usage: str) -> Path:
    if len(invocation.args) != 1:
        raise Failed(f"name one file: {usage}")
    return Path(invocation.args[0])


COMMAND = Command(
    "Record what happens in any cluster to a file, until Ctrl-C",
    record,
    (
        switch("inputs", help="Record only the writes of users and foreign clients, which `replay` repeats."),
        switch("secrets", help="Include Secrets. The file is readable by its owner only."),
        duration("duration", help="End after this time instead of at Ctrl-C."),
    ),
    usage="FILE",
    about="""Needs the rights to get, list and watch. Leases and Events are left out. With --inputs, the file is the
form of a bug report: what the cluster was, what was done to it, and what became of it.""",
    examples="""
    # Everything that happens in ten minutes
    setpoint record all.setpoint --duration 10m

    # What was done to the cluster, to be repeated
    setpoint record bug.setpoint --inputs
    setpoint replay bug.setpoint
    """,
)
REPLAY = Command(
    "Play a recording, or repeat recorded inputs in virtual time and compare the end",
    replay,
    (
        decimal("speed", default=1.0, help="How many times as fast as it was recorded."),
        switch("inputs", help="Expect a recording of inputs."),
        number("until", default=0, help="End at this revision."),
        switch("serve", help="Serve the recorded cluster read-only while it is played, for kubectl and controllers."),
        text("data-dir", default=".replay", help="Directory of the kubeconfig, with --serve."),
        number("port", default=0, help="Port of the server, with --serve; 0 is a free one."),
    ),
    usage="FILE",
    connects=False,
    about="""A recording of inputs is repeated on a fresh copy in virtual time: the loops act anew. The exit code is 0
if the state at the end is the recorded one, and 1 if it differs or an input was refused. Others are played, and so are
recordings of `kwokctl snapshot record`.""",
)
