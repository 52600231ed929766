"""The record of a member of etcd, and the flags that may be given with it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("google.protobuf", reason="an optional dependency")

from command_line import typed_offline

from setpoint.cluster.config import ApiServerConfig, ConfigError, flags_of
from setpoint.cluster.etcd_joining import AddressInUse
from setpoint.cluster.etcd_member import EtcdMember, MemberRecord, _ensure_record
from setpoint.cluster.etcd_server import on_etcd
from setpoint.cluster.join_bundle import Bundle
from setpoint.cluster.store_location import EtcdAccess, parse_location
from setpoint.meta.clock import Clock
from setpoint.store.etcd.membership import Member
from setpoint.store.interface import Store
from setpoint.store.memory import MemoryStore
from setpoint.system import RandomIds, SystemClock


def embedded(directory: Path, **changes: object) -> ApiServerConfig:
    config = ApiServerConfig(
        directory,
        bind_address="",
        advertise_address="127.0.0.1",
        store="etcd",
        etcd="embedded",
        etcd_client_port=0,
        etcd_peer_port=0,
    )
    return replace(config, **changes)  # type: ignore[arg-type]


async def record_of(config: ApiServerConfig) -> MemberRecord:
    return await _ensure_record(config, SystemClock(), RandomIds(), lambda _: None)


async def test_a_member_keeps_its_name_address_and_ports(tmp_path: Path) -> None:
    first = await record_of(embedded(tmp_path))
    assert (first.address, first.joined, first.servers) == ("127.0.0.1", False, [])
    assert first.client_port > 0
    assert first.peer_port > 0
    assert await record_of(embedded(tmp_path, advertise_address="", etcd_peer_port=1)) == first


async def test_what_does_not_fit_the_record_is_refused(tmp_path: Path) -> None:
    await record_of(embedded(tmp_path))
    with pytest.raises(ConfigError, match=r"is 127\.0\.0\.1 and cannot be changed to 10\.0\.0\.1"):
        await record_of(embedded(tmp_path, advertise_address="10.0.0.1"))
    with pytest.raises(ConfigError, match="contains a cluster of its own, which cannot join another"):
        await record_of(embedded(tmp_path, join="https://10.0.0.1:6443", token="t"))


@pytest.fixture
def used_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


async def test_a_port_in_use_is_refused_before_it_is_recorded(tmp_path: Path, used_port: int) -> None:
    for flag in ("etcd_client_port", "etcd_peer_port"):
        why = f"port {used_port} on 127.0.0.1, for etcd, is in use by .*choose another port with --{flag.replace('_', '-')}"
        with pytest.raises(ConfigError, match=why):
            await record_of(embedded(tmp_path, **{flag: used_port}))
    assert MemberRecord.read(tmp_path) is None
    assert (await record_of(embedded(tmp_path))).client_port != used_port


KEYS = {"ca.crt": b"the authority", "ca.key": b"secret", "etcd/ca.crt": b"another authority"}


@pytest.fixture
def joinable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that gives its keys to machines that join."""

    async def fetch(url: str, token: str, clock: Clock) -> Bundle:
        return Bundle(dict(KEYS), {}, "shop", ["https://127.0.0.1:2379"])

    monkeypatch.setattr("setpoint.cluster.join_client.fetch_bundle", fetch)


def files_below(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


@pytest.mark.usefixtures("joinable")
async def test_a_machine_that_cannot_join_does_not_keep_the_keys(tmp_path: Path, used_port: int) -> None:
    joining = embedded(tmp_path, join="https://10.0.0.1:6443", token="t")
    with pytest.raises(ConfigError, match="is in use by"):
        await record_of(replace(joining, etcd_peer_port=used_port))
    assert not files_below(tmp_path)
    record = await record_of(joining)
    assert record.servers == ["https://127.0.0.1:2379"]
    assert (tmp_path / "pki" / "ca.key").read_bytes() == b"secret"


@pytest.mark.usefixtures("joinable")
@pytest.mark.parametrize("serves", [False, True])
async def test_a_machine_whose_server_fails_on_an_external_etcd_does_not_keep_the_keys(
    tmp_path: Path, serves: bool
) -> None:
    own = tmp_path / "pki" / "own.txt"
    own.parent.mkdir()
    own.touch()
    joining = embedded(tmp_path, etcd="", etcd_servers=["https://a:2379"], join="https://10.0.0.1:6443", token="t")

    async def opened(config: ApiServerConfig, clock: Clock) -> Store:
        return MemoryStore()

    with pytest.raises(ConfigError, match="a wrong flag"):
        async with on_etcd(joining, opened, lambda _: None) as prepared:
            assert (tmp_path / "pki" / "ca.key").read_bytes() == b"secret"
            if serves:
                prepared.keep()
            raise ConfigError("a wrong flag")
    left = files_below(tmp_path) - {"state.db-lock"}
    kept = {"etcd-servers", *(f"pki/{name}" for name in KEYS)} if serves else set()
    assert left == {"pki/own.txt", *kept}


async def test_the_port_for_clients_is_free_on_loopback_too(tmp_path: Path, used_port: int) -> None:
    with pytest.raises(ConfigError, match=rf"port {used_port} on 127\.0\.0\.1, for etcd, is in use"):
        await record_of(embedded(tmp_path, advertise_address="127.0.0.2", etcd_client_port=used_port))
    assert MemberRecord.read(tmp_path) is None


async def test_the_address_of_another_machine_is_refused_before_it_is_recorded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no interface with the address 192\.0\.2\.7; .*--advertise-address"):
        await record_of(embedded(tmp_path, advertise_address="192.0.2.7"))
    assert MemberRecord.read(tmp_path) is None


async def test_a_machine_that_joins_with_a_used_address_may_choose_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> list[Member]:
        raise AddressInUse("https://127.0.0.1:2380 belongs to the member m1, which runs on another machine")

    monkeypatch.setattr("setpoint.cluster.etcd_member.become_member", refuse)
    record = MemberRecord("m2", "127.0.0.1", 2379, 2380, joined=True, servers=["https://127.0.0.1:2379"])
    for join in ("", "https://10.0.0.1:6443"):
        record.write(tmp_path)
        member = EtcdMember(embedded(tmp_path, join=join, token="t"), record, SystemClock(), lambda _: None)
        with pytest.raises(ConfigError, match=r"belongs to the member m1.*; give the address of this one with"):
            await member.prepare()
        assert (MemberRecord.read(tmp_path) is None) == bool(join)


async def test_a_database_is_not_left_behind_silently(tmp_path: Path) -> None:
    (tmp_path / "state.db").touch()
    with pytest.raises(ConfigError, match=r"stored in SQLite.*`setpoint store copy`"):
        await record_of(embedded(tmp_path))


async def test_a_lone_member_without_its_data_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("setpoint.cluster.etcd_member.find_etcd", lambda: "etcd")
    config = embedded(tmp_path)
    record = await record_of(config)
    await EtcdMember(config, record, SystemClock(), print).prepare()
    record.has_started = True
    with pytest.raises(ConfigError, match=r"the data of etcd is missing .* restore a backup"):
        await EtcdMember(config, record, SystemClock(), print).prepare()
    accepting = replace(config, accept_data_loss=True)
    await EtcdMember(accepting, record, SystemClock(), print).prepare()


async def test_data_without_a_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "etcd" / "member" / "wal").mkdir(parents=True)
    (tmp_path / "etcd" / "member" / "wal" / "0.wal").touch()
    with pytest.raises(ConfigError, match="contains data, but"):
        await record_of(embedded(tmp_path))


@pytest.mark.parametrize(
    ("address", "bound"), [("127.0.0.1", "127.0.0.1"), ("10.0.0.1", "0.0.0.0"), ("fd00::1", "::"), ("::1", "127.0.0.1")]
)
async def test_the_server_listens_where_other_machines_reach_it(tmp_path: Path, address: str, bound: str) -> None:
    config = embedded(tmp_path, advertise_address=address)
    record = MemberRecord("m1", address, 2379, 2380, joined=False)
    member = EtcdMember(config, record, SystemClock(), lambda _: None)
    assert member.server_config.bind_address == bound
    assert member.server_config.access.enable_bootstrap_token_auth
    assert member.record.peer_url == (f"https://[{address}]:2380" if ":" in address else f"https://{address}:2380")


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("--etcd embedded --store sqlite", "--etcd embedded needs --store etcd, not sqlite"),
        ("--etcd embedded --store memory", "--etcd embedded needs --store etcd, not memory"),
        ("--etcd embedded --etcd-servers https://a:2379", "cannot be combined with --etcd-servers"),
        ("--etcd embedded --insecure-http", "cannot be combined with --insecure-http"),
        ("--etcd embedded --cert-dir x", "cannot be combined with --cert-dir"),
        ("--etcd other", "--etcd must be embedded"),
        ("--etcd-certfile a --etcd-keyfile b", "--etcd-certfile needs --etcd-servers"),
        ("--etcd-cafile a", "--etcd-cafile needs --etcd-servers"),
        ("--store etcd", "--store etcd needs --etcd-servers, or --etcd embedded"),
        ("--join https://a:6443", "--join needs --token"),
        ("--token x", "--token needs --join"),
        ("--join https://a:6443 --token x", "is not a join token"),
        ("--join https://a:6443 --token x --store sqlite", "--join needs --store etcd"),
    ],
)
def test_contradicting_flags_are_refused(tmp_path: Path, flags: str, why: str) -> None:
    done = typed_offline(f"up --port 0 --data-dir {tmp_path / 'data'} {flags}", tmp_path)
    assert done.code == 1
    assert why in done.err


def test_another_store_is_refused_where_a_member_is(tmp_path: Path) -> None:
    MemberRecord("a", "127.0.0.1", 1, 2, joined=False).write(tmp_path)
    for flags in ("--store sqlite", "--etcd-servers http://127.0.0.1:1"):
        done = typed_offline(f"apiserver --port 0 --data-dir {tmp_path} {flags}", tmp_path)
        assert (done.code, "contains a member of etcd" in done.err) == (1, True)
    with pytest.raises(ConfigError, match="run `setpoint member run`"):
        parse_location(str(tmp_path), EtcdAccess())


def test_the_token_is_no_flag_that_the_server_shows(tmp_path: Path) -> None:
    assert "secret" not in str(flags_of(embedded(tmp_path, join="https://a:6443", token="secret")))
