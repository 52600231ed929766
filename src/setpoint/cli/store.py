"""`setpoint store`: verify and copy the store of a cluster, without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import about, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.running import DATA_DIR
from setpoint.cli.store_options import ACCESS_TO_ETCD, ETCD_FLAGS, etcd_access, progress_line, started_location
from setpoint.cli.tabwriter import align

if TYPE_CHECKING:
    from setpoint.cluster.store_check import Report

_STORES = """A store is a data directory, a database file, or URLs of etcd separated by commas, with the prefix of the
    keys as the path of the last one: https://10.0.0.1:2379,https://10.0.0.2:2379/registry."""


async def check(invocation: Invocation) -> int:
    # Imported here because `--help` does not need it.
    from setpoint.cluster.config import ConfigError
    from setpoint.cluster.store_check import check_location
    from setpoint.cluster.store_location import parse_location

    if len(invocation.args) > 1:
        raise Failed("name one store at most: setpoint store check [STORE]")
    keys = invocation.flags.encryption_provider_config
    try:
        if invocation.args:
            report = await check_location(
                parse_location(invocation.args[0], etcd_access(invocation)), invocation.io.clock, keys
            )
        else:
            async with started_location(invocation) as location:
                report = await check_location(location, invocation.io.clock, keys)
    except ConfigError as error:
        raise Failed(str(error)) from None
    _print_report(invocation, report)
    return 1 if report.problems else 0


def _print_report(invocation: Invocation, report: Report) -> None:
    rows = [f"{resource}\t{count}" for resource, count in sorted(report.counts.items())]
    invocation.print(align("\n".join(["RESOURCE\tOBJECTS", *rows])))
    if report.problems:
        lines = [f"{problem.key}\t{problem.reason}" for problem in report.problems]
        invocation.print("\n" + align("\n".join(["KEY\tPROBLEM", *lines])))
    if report.encrypted:
        invocation.print(
            f"\n{report.encrypted} values are encrypted and were not examined: give --encryption-provider-config."
        )
    count = len(report.problems) + report.omitted
    found = "no problems" if not count else "1 problem" if count == 1 else f"{count} problems"
    omitted = f", of which {report.omitted} are not shown" if report.omitted else ""
    invocation.print(f"\n{report.counts.total()} objects at revision {report.revision}: {found}{omitted}.")


async def copy(invocation: Invocation) -> None:
    from setpoint.cluster.config import ConfigError
    from setpoint.cluster.store_copy import copy_store
    from setpoint.cluster.store_location import parse_location

    if len(invocation.args) != 2:
        raise Failed("name two stores: setpoint store copy FROM TO")
    flags, access = invocation.flags, etcd_access(invocation)
    to_access = access._replace(
        cafile=flags.to_etcd_cafile or access.cafile,
        certfile=flags.to_etcd_certfile or access.certfile,
        keyfile=flags.to_etcd_keyfile or access.keyfile,
    )

    try:
        source, target = parse_location(invocation.args[0], access), parse_location(invocation.args[1], to_access)
        with progress_line(invocation, "Copied") as progress:
            written = await copy_store(source, target, invocation.io.clock, force=flags.force, progress=progress)
    except ConfigError as error:
        raise Failed(str(error)) from None
    invocation.print(f"{written.keys} keys of {source} were copied to {target} and verified. ", end="")
    invocation.print(f"It continues at revision {written.revision}.")


_CHECK = Command(
    "Verify every object of a store, and that addresses and ports agree with their Services",
    check,
    (
        DATA_DIR,
        text("encryption-provider-config", help="Examine encrypted values too, with the keys of this file."),
        *ETCD_FLAGS,
    ),
    usage="[STORE]",
    about=f"""Verify every object of a store, and that addresses and ports agree with their Services. Nothing is
    changed. The exit code is 1 if there are problems. A database must not be in use by a server; etcd may be.

    {_STORES} By default it is the database of the data directory.""",
    connects=False,
    examples="""
    # The cluster of this directory, which must be stopped
    setpoint store check

    # A cluster on etcd
    setpoint store check http://127.0.0.1:2379
    """,
)
_COPY = Command(
    "Copy the state of a stopped cluster into an empty store",
    copy,
    (
        switch("force", "f", help="Copy from etcd although API servers seem to use it."),
        *ACCESS_TO_ETCD,
        *about(
            "etcd",
            text("to-etcd-cafile", help="Authority of the target's certificates; by default --etcd-cafile."),
            text("to-etcd-certfile", help="Client certificate for the target; by default --etcd-certfile."),
            text("to-etcd-keyfile", help="The key of --to-etcd-certfile; by default --etcd-keyfile."),
        ),
    ),
    usage="FROM TO",
    about=f"""Copy the state of a stopped cluster into an empty store, and verify it there. The history is not copied.

    {_STORES}""",
    connects=False,
    examples="""
    # From SQLite to etcd
    setpoint store copy .setpoint http://127.0.0.1:2379

    # And back, into another directory
    setpoint store copy http://127.0.0.1:2379 restored
    """,
)
COMMAND = Command(
    "Verify or copy the store of a cluster, without a server",
    children={"check": _CHECK, "copy": _COPY},
    connects=False,
)
