"""`setpoint restore`: restore objects as they were at a moment, or the state of a cluster from a backup."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.running import DATA_DIR, directory_of, none_runs
from setpoint.cli.store_options import ETCD_FLAGS, progress_line, started_location
from setpoint.cli.undo import FLAGS, ask, carry_out

_USAGE = (
    "name the backup to restore: setpoint restore FILE; or a moment and objects: setpoint restore --at -5m KIND/NAME"
)
_ONLY_AT = ("all", "prune", "plan", "yes", "replace", "selector", "output")


async def run(invocation: Invocation) -> None:
    if invocation.flags.at:
        await _restore_objects(invocation)
        return
    for name in _ONLY_AT:
        if getattr(invocation.flags, name):
            raise Failed(f"--{name} needs a moment: setpoint restore --at -5m ...")
    invocation.require_host()
    await _restore_backup(invocation)


# -- objects -----------------------------------------------------------------------------------------------------------


async def _restore_objects(invocation: Invocation) -> None:
    flags = invocation.flags
    if flags.force:
        raise Failed("--force is for backups; with --at, fields are set back even if they were changed since")
    # Imported here because backups do not need it.
    from setpoint.cli.past import path_segment

    question: dict[str, Any] = {
        "at": unquote(path_segment(invocation, flags.at)),
        "prune": flags.prune,
        "replace": flags.replace,
        **await _chosen(invocation),
    }
    plan = await ask(invocation, question)
    moment = f"revision {plan['revision']}"
    if plan.get("at"):
        moment += f" of {datetime.fromtimestamp(plan['at'] / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    unchanged = f"; objects that are as they were: {plan['unchanged']}" if plan.get("unchanged") else ""
    await carry_out(invocation, plan, f"Restore to {moment}{unchanged}", partly=True)


async def _chosen(invocation: Invocation) -> dict[str, Any]:
    """Return the objects that the arguments name, by the kinds of now or of then."""
    flags = invocation.flags
    if not invocation.args:
        if flags.all:
            return {"all": True, "selector": flags.selector}
        if flags.selector or invocation.namespace_given:
            return {"namespace": invocation.namespace, "selector": flags.selector}
        raise Failed("name objects (KIND/NAME), a label selector (-l), a namespace (-n), or --all")
    if flags.all or flags.selector:
        raise Failed("name objects, or use --all or -l, not both")
    # Imported here because backups do not need it.
    from setpoint.cli.past import past_client
    from setpoint.cli.resources import choose

    live = invocation.client
    try:
        chosen = await choose(invocation)
    except Failed:  # the kind may have existed then
        invocation.use(past_client(invocation, flags.at)[0])
        chosen = await choose(invocation)
        invocation.use(live)
    return {
        "objects": [
            {
                "group": each.resource.group,
                "resource": each.resource.plural,
                "namespace": each.namespace,
                "name": each.name,
            }
            for each in chosen.targets
        ]
    }


# -- backups -----------------------------------------------------------------------------------------------------------


async def _restore_backup(invocation: Invocation) -> None:
    # Imported here because `--help` does not need it.
    from setpoint.cluster.backups import restore
    from setpoint.cluster.config import ConfigError

    if len(invocation.args) != 1:
        raise Failed(_USAGE)
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
    "Restore objects as they were at a moment, or a stopped cluster from a backup",
    run,
    (
        text("at", help="Restore objects as they were at this moment: a revision, a time, -5m, or a mark."),
        text("selector", "l", help="With --at: the objects of the namespace that have these labels."),
        switch("all", help="With --at: all objects of the cluster."),
        switch("prune", help="With --at: delete the chosen objects that did not exist then."),
        *FLAGS,
        DATA_DIR,
        switch(
            "force",
            "f",
            help="Replace the existing database, which is renamed, or the objects in etcd, which are saved in a file.",
        ),
        *ETCD_FLAGS,
    ),
    usage="FILE | --at MOMENT (KIND/NAME ... | -l SELECTOR | -n NAMESPACE | --all) [flags]",
    about="""
    With --at, restore the desired state of objects of a running cluster as it was at a moment: spec, data, labels and
    annotations. Deleted objects are created anew. The plan is shown first and carried out after confirmation, with
    ordinary requests and your own rights. The status is never restored, and what a controller creates is left to that
    controller.

    With a FILE that `setpoint backup` has written, restore the whole state of a stopped cluster.
    """,
    examples="""
    # A Deployment as it was five minutes ago
    setpoint restore --at -5m deployment/web

    # A namespace with its content, after it was deleted; show the plan only
    setpoint restore --at 13:02 -n shop --plan

    # Everything as it was at a mark, without what was created since
    setpoint restore --at before --all --prune

    # A stopped cluster from a backup
    setpoint restore monday.backup --force
    """,
)
