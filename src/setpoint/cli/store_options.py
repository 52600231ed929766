"""The flags of the commands that use a store without a server, and the location that they name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from setpoint.cli.failures import Failed
from setpoint.cli.flags import Flag, about, text, texts
from setpoint.cli.invocation import Invocation
from setpoint.cli.running import check_not_in_etcd, directory_of, has_member, none_runs

if TYPE_CHECKING:
    from setpoint.cluster.store_location import EtcdAccess, StoreLocation

ACCESS_TO_ETCD: tuple[Flag, ...] = about(
    "etcd",
    text("etcd-cafile", help="Authority of etcd's serving certificates."),
    text("etcd-certfile", help="Client certificate for etcd."),
    text("etcd-keyfile", help="The key of --etcd-certfile."),
    text("etcd-prefix", default="/registry", help="Prefix of all keys in etcd."),
)
ETCD_FLAGS: tuple[Flag, ...] = (
    *about("etcd", texts("etcd-servers", help="URLs of the members of etcd, instead of --data-dir.")),
    *ACCESS_TO_ETCD,
)


def etcd_access(invocation: Invocation) -> EtcdAccess:
    from setpoint.cluster.store_location import EtcdAccess

    flags = invocation.flags
    return EtcdAccess(flags.etcd_prefix, flags.etcd_cafile, flags.etcd_certfile, flags.etcd_keyfile)


def location_of(invocation: Invocation) -> StoreLocation:
    """Return the store of --etcd-servers, or else the database of the data directory."""
    from setpoint.cluster.config import ConfigError
    from setpoint.cluster.store_location import DATABASE, StoreLocation, parse_location

    if not invocation.flags.etcd_servers:
        directory = directory_of(invocation)
        if has_member(directory):
            raise Failed(
                f"{directory} contains a member of etcd: run `setpoint member run`, and use the flags that it prints"
            )
        check_not_in_etcd(directory)
        return StoreLocation(directory / DATABASE)
    if invocation.flags.given("data-dir"):
        raise Failed("--etcd-servers and --data-dir name two different stores; give one of them")
    servers = ",".join(invocation.flags.etcd_servers)
    if "://" not in servers:
        raise Failed(f"--etcd-servers {servers}: must be URLs that begin with https:// or http://")
    try:
        return parse_location(servers, etcd_access(invocation))
    except ConfigError as error:
        raise Failed(str(error)) from None


@asynccontextmanager
async def started_location(invocation: Invocation) -> AsyncIterator[StoreLocation]:
    """Yield the same as `location_of`; or, for a data directory that contains a member of etcd, this member, which runs
    while the block runs. Raise Failed, ConfigError."""
    directory = directory_of(invocation)
    if invocation.flags.etcd_servers or not has_member(directory):
        yield location_of(invocation)
        return
    # Imported here because few clusters use etcd.
    from setpoint.cluster.config import ApiServerConfig
    from setpoint.cluster.etcd_server import member_alone
    from setpoint.cluster.store_location import EtcdAccess, StoreLocation

    none_runs(directory)
    config = ApiServerConfig(directory, bind_address="", store="etcd", etcd="embedded")
    async with member_alone(config, lambda _: None) as member:
        own = member.server_config
        access = EtcdAccess(invocation.flags.etcd_prefix, own.etcd_cafile, own.etcd_certfile, own.etcd_keyfile)
        yield StoreLocation(None, (member.record.local_url,), access)


@contextmanager
def progress_line(invocation: Invocation, what: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows how many of all keys are `what`, on a terminal, until the block ends."""
    shown = invocation.io.out_is_terminal

    def show(count: int, total: int) -> None:
        if shown:
            invocation.print(f"\r\x1b[K{what} {count} of {total} keys", end="")
            invocation.flush()

    try:
        yield show
    finally:
        if shown:
            invocation.print("\r\x1b[K", end="")
