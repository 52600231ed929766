"""`setpoint snapshot`: the objects of any cluster in one file, and a cluster from such a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import about, switch, text, texts
from setpoint.cli.invocation import Invocation
from setpoint.cli.past import past_client
from setpoint.cli.simulating import loaded
from setpoint.cli.undo import FLAGS as UNDO_FLAGS
from setpoint.cli.undo import carry_out
from setpoint.meta.errors import ApiError
from setpoint.meta.times import unix_milliseconds

if TYPE_CHECKING:
    from setpoint.client import Client
    from setpoint.cluster.cluster_copy import ClusterCopy
    from setpoint.cluster.snapshot_file import StateReader

_PAGE = 500
_BEGINNINGS = ("start", "-5m", "-1m")
"""The moments at which a saved history may begin; the first one from which all changes are known is taken."""


async def save(invocation: Invocation) -> None:
    # Imported here because `--help` does not need it.
    from setpoint.cluster.cluster_copy import copied
    from setpoint.cluster.snapshot_file import INCLUDED, LEFT_OUT, SnapshotWriter

    path = _file(invocation, "setpoint snapshot save FILE")
    flags, clock = invocation.flags, invocation.io.clock
    client, now = invocation.client, clock.now()
    client.sender.on_warning = lambda text: None  # of deprecated kinds, which are saved too
    secrets = INCLUDED if flags.secrets else LEFT_OUT
    if flags.history:
        if flags.at or flags.only:
            invocation.usage("--history cannot be used with --at or --only")
        await _save_history(invocation, path, secrets)
        return
    if flags.at:
        client, now = await _past(invocation, flags.at)
    copy = await copied(client, now, secrets=secrets, namespaces=flags.only, events=True)
    writer = SnapshotWriter(path, copy.header(clock.now()))
    try:
        for item in copy.stored():
            writer.add(item)
        size = writer.finish()
    finally:
        writer.abandon()
    invocation.print(f"{path} holds {len(copy.objects)} objects at revision {copy.revision}, {_size(size)}.")
    for each in copy.left_out:
        invocation.print(f"  {each}{' --secrets includes them.' if each.startswith('Secrets') else ''}")


async def _save_history(invocation: Invocation, path: Path, secrets: str) -> None:
    """Write a recording of what the server still knows: an earlier state, and all changes since then."""
    from setpoint.cluster.cluster_copy import copied
    from setpoint.cluster.recording import Recorder, RecordingFailed
    from setpoint.cluster.snapshot_file import SnapshotWriter

    clock, failure = invocation.io.clock, ""
    for moment in _BEGINNINGS:
        try:
            past, begin = await _past(invocation, moment)
            copy = await copied(past, begin, secrets=secrets)
        except ApiError as error:
            failure = error.message
            continue
        writer = SnapshotWriter(path, copy.header(clock.now(), recording=True))
        try:
            for item in copy.stored():
                writer.add(item)
            recorder = Recorder(invocation.client, clock, copy, writer)
            await recorder.run_until_current()
            writer.finish(unix_milliseconds(clock.now()))
            invocation.print(f"{path} holds {len(copy.objects)} objects at revision {copy.revision}, ", end="")
            invocation.print(f"and {recorder.changes} revisions since {copy.header(clock.now()).at}.")
            return
        except RecordingFailed as error:
            failure = str(error)
            writer.discard()
        finally:
            writer.abandon()
    raise Failed(f"the server has no history that can be saved: {failure}")


async def _past(invocation: Invocation, moment: str) -> tuple[Client, datetime]:
    """Return a client of the cluster as it was at a moment, and the time of that moment. Raises ApiError, Failed."""
    client, transport = past_client(invocation, moment)
    await client.sender.request("GET", "/version")
    if not transport.revision:
        raise Failed("the server does not show the past: it is not a Setpoint API server, or an older one")
    return client, transport.at or invocation.io.clock.now()


async def load(invocation: Invocation) -> None:
    path = _file(invocation, "setpoint snapshot load FILE --data-dir DIRECTORY")
    copy = loaded(path, invocation.io.clock.now())
    if invocation.flags.into:
        await _load_into(invocation, path, copy)
        return
    if not invocation.flags.data_dir:
        invocation.usage("say where: --data-dir DIRECTORY creates a cluster there, --into adds to the running one")
    await _load_directory(invocation, path, copy, Path(invocation.flags.data_dir))


async def _load_directory(invocation: Invocation, path: Path, copy: ClusterCopy, directory: Path) -> None:
    from setpoint.cluster.config import ConfigError
    from setpoint.cluster.state_transfer import write_state
    from setpoint.cluster.store_location import DATABASE, StoreLocation

    async def pages() -> AsyncIterator[Sequence[Any]]:
        keys = sorted(copy.objects)
        for start in range(0, len(keys), _PAGE):
            yield [copy.objects[key] for key in keys[start : start + _PAGE]]

    location = StoreLocation(directory / DATABASE)
    try:
        written = await write_state(pages(), copy.revision, location, invocation.io.clock, lost_revisions=False)
    except ConfigError as error:
        raise Failed(str(error)) from None
    invocation.print(f"The cluster in {directory} has the {written.keys} objects of {path}, and continues at ", end="")
    invocation.print(f"revision {written.revision}. `setpoint up --data-dir {directory}` starts it.")
    for each in copy.left_out:
        invocation.print(f"  {each}")


async def _load_into(invocation: Invocation, path: Path, copy: ClusterCopy) -> None:
    from setpoint.cluster.cluster_copy import copied
    from setpoint.cluster.snapshot_restore import restore_plan
    from setpoint.view.undo_plan import Options

    client = invocation.client
    client.sender.on_warning = lambda text: None  # of deprecated kinds, which are compared too
    current = await copied(client, invocation.io.clock.now(), secrets=copy.secrets)
    plan = restore_plan(copy, current, Options(replace=invocation.flags.replace))
    headline = f"{path}: {len(copy.objects)} objects at revision {copy.revision}"
    await carry_out(invocation, {**plan.to_json(), "reason": f"load of {path.name}"}, headline, partly=True)


def show(invocation: Invocation) -> None:
    from setpoint.cluster.manifest_reader import opened_state
    from setpoint.cluster.snapshot_file import InvalidSnapshot

    path = _file(invocation, "setpoint snapshot show FILE")
    if invocation.flags.output not in ("", "yaml", "kwok"):
        raise Failed("--output must be yaml or kwok, or be left out for a summary")
    try:
        reader = opened_state(path, invocation.io.clock.now())
        if invocation.flags.output == "kwok":
            _print_kwok(invocation, reader)
            return
        if invocation.flags.output:
            _print_objects(invocation, reader)
            return
        kinds = Counter(_resource(item.key) for item in reader.objects())
        changes = [change.revision for change in reader.changes()]
    except InvalidSnapshot as error:
        raise Failed(str(error)) from None
    _show(invocation, reader, kinds, changes)


def _print_kwok(invocation: Invocation, reader: StateReader) -> None:
    """Print the state and the changes in KWOK's format."""
    from setpoint.cluster.kwok_writer import kwok_documents

    if reader.header.inputs:
        raise Failed(f"{reader.path} holds inputs only; KWOK's recordings hold all changes: record without --inputs")
    for document in kwok_documents(reader):
        invocation.write(document)


def _print_objects(invocation: Invocation, reader: StateReader) -> None:
    """Print every object of the state, as a document each."""
    import orjson

    from setpoint.cluster.snapshot_restore import object_ref
    from setpoint.meta.body import dump_yaml

    for item in reader.objects():
        obj = orjson.loads(item.value)
        ref = object_ref(item.key, obj)
        invocation.write(b"---\n" + dump_yaml({**obj, "apiVersion": ref.api_version, "kind": ref.kind}))


def _show(invocation: Invocation, reader: StateReader, kinds: Counter[str], changes: list[int]) -> None:
    header = reader.header
    lines = [
        f"Cluster:     {header.cluster or 'unknown'}, Kubernetes {header.kubernetes or 'unknown'}",
        f"State at:    {header.at}, revision {header.revision}",
        f"Made:        {header.made}",
        f"Secrets:     {header.secrets}",
        f"Objects:     {sum(kinds.values())}",
    ]
    if header.recording:
        what = "writes of users and foreign clients" if header.inputs else "revisions"
        until = f", up to revision {changes[-1]}" if changes else ""
        lines.append(f"Recorded:    {len(changes)} {what}{until}{'' if reader.complete else ', interrupted'}")
    invocation.print("\n".join(lines))
    for name, count in sorted(kinds.items()):
        invocation.print(f"  {count:>7}  {name}")
    for each in header.left_out:
        invocation.print(f"  {each}")


def _resource(key: str) -> str:
    group, plural, _ = key.split("/", 2)
    return plural if group == "core" else f"{plural}.{group}"


def _file(invocation: Invocation, usage: str) -> Path:
    if len(invocation.args) != 1:
        raise Failed(f"name one file: {usage}")
    return Path(invocation.args[0])


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{max(count / 1e3, 0.1):.1f} kB"


COMMAND = Command(
    "Save the objects of a cluster to a file, show such a file, or start a cluster from it",
    children={
        "save": Command(
            "Write all objects of a cluster to a file",
            save,
            (
                text("at", help="The moment of the state: a revision, a time, -5m, or a mark. By default now."),
                switch("history", help="Save the changes of the last minutes too, as far as they are known."),
                switch("secrets", help="Include Secrets. The file is readable by its owner only."),
                texts("only", help="Save only these namespaces, and what belongs to none."),
            ),
            usage="FILE",
            about="Reads any Kubernetes cluster with get and list requests. Objects keep their uids and versions.",
            examples="""
            # The cluster as it is, and as it was five minutes ago
            setpoint snapshot save now.setpoint
            setpoint snapshot save before.setpoint --at=-5m
            """,
        ),
        "load": Command(
            "Start from the objects of a file",
            load,
            (
                text("data-dir", help="Create the data directory of a new cluster with these objects."),
                switch("into", help="Create or restore the objects in the running cluster; delete nothing."),
                *about("With --into", *UNDO_FLAGS),
            ),
            usage="FILE (--data-dir DIRECTORY | --into)",
            examples="""
            setpoint snapshot load before.setpoint --data-dir /tmp/before
            setpoint up --data-dir /tmp/before --port 7443
            """,
        ),
        "show": Command(
            "Describe the content of a file",
            show,
            (
                text(
                    "output",
                    "o",
                    help="yaml prints all objects of the state, as manifests, instead of a summary; "
                    "kwok prints them and all changes as `kwokctl snapshot replay` reads them.",
                ),
            ),
            usage="FILE",
            connects=False,
            about="FILE is a snapshot, a recording, manifests in YAML, or a recording of `kwokctl snapshot record`.",
        ),
    },
    usage="(save | load | show) FILE",
)
