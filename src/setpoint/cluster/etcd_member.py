"""The etcd member of this machine: created with a new cluster, or added to that of other machines; then kept running.

What identifies the member (name, address, ports) is chosen once and recorded in the data directory. Every step may be
repeated after a crash: a start continues with what the record, etcd's data and the membership show.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from setpoint.cluster.certificates import CertificateFiles, ensure_etcd_certificates
from setpoint.cluster.config import MEMBER_RECORD, ApiServerConfig, ConfigError, flags_of
from setpoint.cluster.etcd_joining import AddressInUse, Step, become_member, remove_member
from setpoint.cluster.etcd_process import REMOVED, EtcdProcess, etcd_flags, find_etcd
from setpoint.cluster.join_bundle import Bundle, remove_keys
from setpoint.cluster.private_files import ETCD, write_private
from setpoint.cluster.supervisor import Supervisor
from setpoint.meta.clock import Clock, Ids
from setpoint.store.etcd.client import EtcdClient
from setpoint.store.etcd.membership import Member, Membership, NotInSync, initial_cluster
from setpoint.store.interface import StoreError, Unavailable
from setpoint.system import hostname, outward_address
from setpoint.tasks import child_tasks, first_completed
from setpoint.wire.tls import TlsClient, Trust

log = logging.getLogger("setpoint.cluster")

_POLL_INTERVAL: Final = 0.2
_FIRST_TIMEOUT: Final = 0.5
"""Seconds after which the first call is given up. The client repeats a call ever more slowly while etcd starts."""
_REFRESH_INTERVAL: Final = 10.0
"""Seconds between two reads of the membership."""
_ANSWER_TIMEOUT: Final = 2.0
"""Seconds after which a member counts as unreachable."""
_QUORUM_WARNING: Final = 30.0
"""Seconds without a quorum after which the log says so."""


@dataclass(slots=True)
class MemberRecord:
    """The identity of a member, as it is recorded in the data directory."""

    name: str
    address: str
    client_port: int
    peer_port: int
    joined: bool
    """Whether the machine joined a cluster that others had started."""
    servers: list[str] = field(default_factory=list)
    """Client URLs of the other members when they were last listed."""
    has_started: bool = False
    """Whether the member has ever voted: it has had data since."""

    @property
    def client_url(self) -> str:
        return f"https://{_host(self.address)}:{self.client_port}"

    @property
    def local_url(self) -> str:
        """The client URL for processes of this machine."""
        return f"https://127.0.0.1:{self.client_port}"

    @property
    def peer_url(self) -> str:
        return f"https://{_host(self.address)}:{self.peer_port}"

    @classmethod
    def read(cls, directory: Path) -> MemberRecord | None:
        """Return the record of a data directory; None if it has none. Raises ConfigError."""
        path = directory / MEMBER_RECORD
        try:
            return cls(**json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(f"cannot read {path}: {error}") from None

    def write(self, directory: Path) -> None:
        write_private(directory / MEMBER_RECORD, json.dumps(asdict(self), indent=2).encode() + b"\n")


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


class EtcdMember:
    """The running member. See `embedded_etcd`."""

    def __init__(self, config: ApiServerConfig, record: MemberRecord, clock: Clock, step: Step) -> None:
        self.record = record
        self._config = config
        self._clock = clock
        self._step = step
        self._data_dir = config.data_dir / ETCD
        self._files = member_certificates(config.pki, record, clock)
        self._tls = member_tls(self._files, clock)
        self.servers: list[str] = []
        """Client URLs of the voting members, that of this machine first."""
        self._joined_now = False
        """Whether this start has made the machine a member of the etcd of others."""
        self._serves = False
        """Whether an API server has used the member since."""

    def client(self, *endpoints: str) -> EtcdClient:
        return EtcdClient(endpoints, self._tls)

    @property
    def server_config(self) -> ApiServerConfig:
        """Return the configuration of an API server that uses this member."""
        config, address = self._config, self.record.address
        everywhere = "::" if ":" in address else "0.0.0.0"
        return replace(
            config,
            etcd_servers=self.servers,
            etcd_cafile=str(self._files.ca),
            etcd_certfile=str(self._files.certificate),
            etcd_keyfile=str(self._files.key),
            bind_address=config.bind_address or ("127.0.0.1" if ip_address(address).is_loopback else everywhere),
            advertise_address=config.advertise_address or address,
            access=replace(config.access, enable_bootstrap_token_auth=True),
        )

    # -- start --------------------------------------------------------------------------------------------------------

    async def prepare(self, *, force_new_cluster: bool = False) -> EtcdProcess:
        """Make this machine a member, if it is not one yet, and return the process to run. With `force_new_cluster`, it
        continues with its data as the only member. Raises ConfigError."""
        record, first = self.record, ""
        if force_new_cluster and not _has_data(self._data_dir):
            raise ConfigError(f"{self._data_dir} contains no data of etcd to continue with")
        if not _has_data(self._data_dir) and record.has_started and not record.servers:
            if not self._config.accept_data_loss:
                raise ConfigError(
                    f"the data of etcd is missing in {self._data_dir}, and no other machine has it; put it back, or "
                    f"restore a backup (docs/high-availability.md); --accept-data-loss starts with an empty cluster"
                )
            log.warning("the data of etcd is missing in %s; starting with an empty cluster", self._data_dir)
        if not _has_data(self._data_dir) and record.servers:
            self._step("etcd: join the other members")
            client = self.client(*record.servers)
            try:
                members = await become_member(
                    Membership(client), record.peer_url, self._answers, self._clock, self._step
                )
                first = initial_cluster(members, record.name, record.peer_url)
                self._joined_now = bool(self._config.join)
            except AddressInUse as error:
                if self._config.join:  # the next attempt may choose another address
                    self.forget()
                raise ConfigError(f"{error}; give the address of this one with --advertise-address") from None
            except StoreError as error:
                raise ConfigError(f"this machine cannot become a member of etcd: {error}") from None
            finally:
                client.close()
        flags = etcd_flags(
            name=record.name,
            data_dir=self._data_dir,
            files=self._files,
            client_urls=[record.local_url, record.client_url],
            peer_url=record.peer_url,
            initial_cluster=first,
            existing=bool(first),
        )
        if force_new_cluster:
            flags.append("--force-new-cluster=true")
        return EtcdProcess([find_etcd(), *flags], self._config.data_dir / "etcd.log")

    async def _answers(self, member: Member) -> bool:
        if not member.client_urls:
            return False
        return await answers(self.client(*member.client_urls))

    async def started(self, process: EtcdProcess) -> None:
        """Return when the member votes and the cluster has a leader. Raises ConfigError if etcd ends."""
        own = self.client(self.record.local_url)
        try:
            await first_completed(process.exited.wait(), self._reach_quorum(own))
            if process.exited.is_set():
                raise ConfigError(self._explained(process.error))
            await self.refresh()
            if not self.record.has_started:
                self.record.has_started = True
                self.record.write(self._config.data_dir)
            process.started.set()
        except StoreError as error:
            raise ConfigError(f"etcd does not work: {error}; see {self._config.data_dir / 'etcd.log'}") from None
        finally:
            own.close()

    async def _reach_quorum(self, own: EtcdClient) -> None:
        """Wait for a leader, and promote this member if it is a learner."""
        self._step("etcd")
        since, warned, timeout = self._clock.monotonic(), False, _FIRST_TIMEOUT
        while True:
            with suppress(Unavailable, TimeoutError):
                async with asyncio.timeout(timeout):
                    status = await own.status()
                if status.leader and not status.isLearner:
                    return
                if status.isLearner:
                    await self._promote(status.header.member_id)
                    continue
            timeout *= 2
            waited = self._clock.monotonic() - since
            if waited > 2.0:
                self._step("etcd: wait for a quorum of its members")
            if waited > _QUORUM_WARNING and not warned:
                warned = True
                log.warning(
                    "etcd has no quorum yet: start the other machines (%s). If more than half are lost for good, stop "
                    "this command (Ctrl-C or `setpoint down`): `setpoint member recover` lets this machine continue "
                    "alone",
                    ", ".join(self.record.servers),
                )
            await self._clock.sleep(_POLL_INTERVAL)

    async def _promote(self, member: int) -> None:
        others = self.client(*self.record.servers)
        try:
            await Membership(others).promote(member)
        except NotInSync:
            self._step("etcd: copy the data of the other members")
        finally:
            others.close()
        await self._clock.sleep(_POLL_INTERVAL)

    def _explained(self, error: str) -> str:
        if error == REMOVED:
            return (
                "this machine is no longer a member of the cluster's etcd. "
                "`setpoint reset` clears its data; then join it again with a new token"
            )
        in_use = "address already in use" in error
        hint = "; --etcd-client-port and --etcd-peer-port choose other ports for a new member" if in_use else ""
        return f"etcd does not start: {error}; its log is {self._config.data_dir / 'etcd.log'}{hint}"

    def keep(self) -> None:
        """Remain a member from now on, also if this process fails."""
        self._serves = True

    async def leave(self, process: EtcdProcess) -> bool:
        """Leave the other members if this start has joined them for an API server that does not start: a voter that
        does not run could cost them their quorum. Return whether the machine has left, and its data is of no use."""
        if not self._joined_now or self._serves:
            return False
        self._step("etcd: leave the other members")
        process.started.clear()  # etcd ends by itself now, and is not started again
        client = self.client(*self.record.servers, self.record.local_url)
        try:
            membership = Membership(client)
            for one in await membership.members():
                if self.record.peer_url in one.peer_urls:
                    await remove_member(membership, one.id, self._clock)
        except StoreError as error:
            log.warning(
                "this machine has become a member of etcd and cannot leave again: %s. Repeat the command soon: "
                "the others may need it for their quorum",
                error,
            )
            return False
        finally:
            client.close()
        return True

    def forget(self) -> None:
        """Delete the data of the member, its record and the keys of the cluster, so that the next attempt to join
        begins anew."""
        (self._config.data_dir / MEMBER_RECORD).unlink(missing_ok=True)
        shutil.rmtree(self._data_dir, ignore_errors=True)
        remove_keys(self._config.pki)

    # -- while it runs ------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Read the membership, and record the other members for later starts. Raises StoreError."""
        client = self.client(self.record.local_url, *self.record.servers)
        try:
            members = await Membership(client).members()
        finally:
            client.close()
        voters = [one for one in members if one.client_urls and not one.is_learner]
        others = sorted(url for one in voters if self.record.peer_url not in one.peer_urls for url in one.client_urls)
        self.servers = [self.record.local_url, *others]
        if others != self.record.servers and any(self.record.peer_url in one.peer_urls for one in members):
            self.record.servers = others
            self.record.write(self._config.data_dir)

    async def follow(self, use: Callable[[list[str]], None]) -> None:
        """Pass the URLs of the voting members to `use` whenever they have changed, until cancelled."""
        while True:
            await self._clock.sleep(_REFRESH_INTERVAL)
            with suppress(Unavailable):
                await self.refresh()
                use(self.servers)


@asynccontextmanager
async def embedded_etcd(
    config: ApiServerConfig,
    clock: Clock,
    ids: Ids,
    supervisor: Supervisor,
    step: Step,
    *,
    force_new_cluster: bool = False,
) -> AsyncIterator[EtcdMember]:
    """Run the member of this machine while the block runs, which begins when etcd accepts writes. With
    `force_new_cluster`, the other members are forgotten. Raises ConfigError."""
    find_etcd()
    record = await _ensure_record(config, clock, ids, step)
    member = EtcdMember(config, record, clock, step)
    process, has_left = await member.prepare(force_new_cluster=force_new_cluster), False
    try:
        async with child_tasks(supervisor.run("etcd", process.run)):
            try:
                await member.started(process)
                yield member
            except Exception:
                has_left = await member.leave(process)
                raise
    finally:
        if has_left:
            member.forget()


def member_certificates(directory: Path, record: MemberRecord, clock: Clock) -> CertificateFiles:
    """Return the certificate of the member and its authority. `directory` is that of all certificates."""
    return ensure_etcd_certificates(directory / ETCD, clock.now(), (record.address, hostname()))


def member_tls(files: CertificateFiles, clock: Clock) -> TlsClient:
    """Return the TLS side of a client of etcd."""
    own = files.certificate.read_bytes(), files.key.read_bytes()
    return TlsClient(Trust(clock, files.ca.read_bytes()), own, protocol="h2")


async def answers(client: EtcdClient) -> bool:
    """Return whether an endpoint of the client answers soon, and close the client."""
    try:
        async with asyncio.timeout(_ANSWER_TIMEOUT):
            await client.status()
    except (StoreError, TimeoutError):
        return False
    finally:
        client.close()
    return True


def _has_data(directory: Path) -> bool:
    return any((directory / "member" / "wal").glob("*.wal"))


# -- the record -------------------------------------------------------------------------------------------------------


async def _ensure_record(config: ApiServerConfig, clock: Clock, ids: Ids, step: Step) -> MemberRecord:
    """Return the record of the data directory; for a new one, create it, after fetching the keys of the cluster to
    join. Raises ConfigError."""
    directory = config.data_dir
    record = MemberRecord.read(directory)
    if record is not None:
        return _continued(config, record)
    if (directory / "state.db").exists():
        raise ConfigError(
            f"{directory} contains a cluster that is stored in SQLite; choose another --data-dir. "
            "`setpoint store copy` moves the objects of a stopped cluster to etcd"
        )
    bundle = await fetch_keys(config, clock, step) if config.join else None
    if bundle is not None:
        if not bundle.etcd_servers:
            raise ConfigError("the cluster uses an external etcd: give its --etcd-servers here too")
    elif _has_data(directory / ETCD):
        raise ConfigError(f"{directory / ETCD} contains data, but {directory / MEMBER_RECORD} is missing")
    record = MemberRecord(
        name=f"{hostname()}-{ids.uid()[:6]}",
        address=_own_address(config),
        client_port=config.etcd_client_port or _free_port(),
        peer_port=config.etcd_peer_port or _free_port(),
        joined=bool(config.join),
        servers=[] if bundle is None else bundle.etcd_servers,
    )
    _check_free(record.address, {"--etcd-client-port": record.client_port, "--etcd-peer-port": record.peer_port})
    _check_free("127.0.0.1", {"--etcd-client-port": record.client_port})  # for the processes of this machine
    if bundle is not None:
        bundle.write(config.pki)
    record.write(directory)
    return record


async def fetch_keys(config: ApiServerConfig, clock: Clock, step: Step) -> Bundle:
    """Fetch the keys of the cluster to join, and check the flags of this machine. Raises ConfigError."""
    from setpoint.cluster.join_client import fetch_bundle  # most starts do not need it

    step(f"the keys of the cluster at {config.join}")
    bundle = await fetch_bundle(config.join, config.token, clock)
    bundle.check(flags_of(config))
    config.name = config.name or bundle.name
    return bundle


def _continued(config: ApiServerConfig, record: MemberRecord) -> MemberRecord:
    if config.join and not record.joined:
        raise ConfigError(
            f"{config.data_dir} contains a cluster of its own, which cannot join another; choose another --data-dir, "
            "or remove it with `setpoint reset`"
        )
    if config.advertise_address not in ("", record.address):
        raise ConfigError(
            f"the address of this machine's etcd member is {record.address} and cannot be changed to "
            f"{config.advertise_address}; reset this machine and join it again"
        )
    return record


def _own_address(config: ApiServerConfig) -> str:
    bound = config.bind_address
    address = config.advertise_address or (bound if bound not in ("", "0.0.0.0", "::") else outward_address())
    try:
        return str(ip_address(address))
    except ValueError:
        raise ConfigError(
            "this machine has no address that others reach, as far as is known; give one with --advertise-address"
            if not address
            else f"--advertise-address {address}: must be an IP address"
        ) from None


def _check_free(address: str, ports: Mapping[str, int]) -> None:
    """Raise ConfigError if etcd cannot listen there, before an address or a port is recorded that cannot be changed.
    The keys of `ports` are the flags that set them."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for flag, port in ports.items():
        with socket.socket(family) as opened:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                opened.bind((address, port))
            except OSError as error:
                raise ConfigError(_bind_problem(error, address, port, flag)) from None


def _bind_problem(error: OSError, address: str, port: int, flag: str) -> str:
    if error.errno == errno.EADDRNOTAVAIL:
        return f"this machine has no interface with the address {address}; give one of its own with --advertise-address"
    if error.errno != errno.EADDRINUSE:
        return f"etcd cannot listen on {_host(address)}:{port}: {error.strerror}"
    from setpoint.cluster.procfs import listening_process  # most starts do not need it

    process = listening_process(port)
    stop = f" by {process}; stop it" if process else "; stop the process that uses it"
    return f"port {port} on {address}, for etcd, is in use{stop}, or choose another port with {flag}"


def _free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])
