"""A copy of a store has the same objects in SQLite and in etcd, and its revisions do not fall."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import count, product
from pathlib import Path
from threading import Thread

import orjson
import pytest
from etcd_process import etcd_process

from setpoint.apiserver.encoding import stamp_offset, without_stamp
from setpoint.cluster import state_transfer
from setpoint.cluster.apiserver import open_etcd, open_store
from setpoint.cluster.backups import INCOMPLETE
from setpoint.cluster.config import ApiServerConfig, ConfigError
from setpoint.cluster.store_copy import copy_store
from setpoint.cluster.store_location import EtcdAccess, StoreLocation, parse_location
from setpoint.meta.times import format_micro
from setpoint.store.interface import Compacted, Delete, KeyValue, Put, Store
from setpoint.system import SystemClock

CLOCK = SystemClock()
_numbers = count()


@pytest.fixture(scope="module")
def etcd_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ...]]:
    with etcd_process(tmp_path_factory.mktemp("etcd")) as running:
        yield (running.endpoint,)


class Locations:
    def __init__(self, servers: tuple[str, ...], directory: Path) -> None:
        self._servers = servers
        self._directory = directory

    def new(self, kind: str) -> StoreLocation:
        number = next(_numbers)
        if kind == "sqlite":
            return StoreLocation(self._directory / f"data-{number}" / "state.db")
        return StoreLocation(None, self._servers, EtcdAccess(f"/copy-{number}"))


@pytest.fixture
def locations(etcd_servers: tuple[str, ...], tmp_path: Path) -> Locations:
    return Locations(etcd_servers, tmp_path)


@asynccontextmanager
async def opened(location: StoreLocation) -> AsyncIterator[Store]:
    """The store as a server uses it."""
    config = location.config()
    if location.database is not None:
        location.database.parent.mkdir(exist_ok=True)
        config = ApiServerConfig(location.database.parent)
    store = await open_store(config, CLOCK)
    try:
        yield store
    finally:
        await store.close()


def put(key: str, note: str) -> Put:
    obj = {"metadata": {"name": key.rpartition("/")[2], "uid": f"uid-{key}"}, "note": note}
    value, stamp = stamp_offset(orjson.dumps(obj))
    return Put(key, value, None, stamp)


async def fill(location: StoreLocation, keys: int = 450) -> list[KeyValue]:
    """Write objects, values without a resourceVersion and a large one, delete some, and return the rest."""
    async with opened(location) as store:
        for number in range(keys):
            await store.txn([put(f"core/things/{number:04}", "x" * (number % 7) * 500)])
        await store.txn(
            [Put("ranges/nodeports/30000", b'{"namespace":"a"}'), Put("core/secrets/a/b", b"k8s:enc:\x00\xff")]
        )
        await store.txn([put("core/things/large", "x" * 900_000), Delete("core/things/0000")])
        return [*(await store.list("")).items]


def without_revisions(items: list[KeyValue]) -> dict[str, bytes]:
    return {item.key: without_stamp(item.value, item.mod_revision)[0] for item in items}


@pytest.mark.parametrize(("kind", "to"), [*product(["sqlite", "etcd"], repeat=2)])
async def test_a_copy_has_the_same_objects_and_no_lower_revision(locations: Locations, kind: str, to: str) -> None:
    source, target = locations.new(kind), locations.new(to)
    expected = await fill(source)
    async with opened(source) as store:
        revision = store.revision
    reported: list[tuple[int, int]] = []
    written = await copy_store(source, target, CLOCK, progress=lambda *numbers: reported.append(numbers))
    assert written.keys == len(expected) and reported[-1] == (len(expected), len(expected))
    async with opened(target) as copied:
        found = [*(await copied.list("")).items]
        assert without_revisions(found) == without_revisions(expected)
        assert copied.revision >= written.revision >= revision
        if to == "sqlite":
            assert found == expected
        else:
            assert min(item.mod_revision for item in found) > revision
        for item in found:
            if item.key.startswith("core/things/"):
                assert orjson.loads(item.value)["metadata"]["resourceVersion"] == str(item.mod_revision)
        with pytest.raises(Compacted):
            copied.watch("", revision - 1, lambda events, revision: None)
        assert (await copied.txn([put("core/things/later", "")]))[0] > revision
    async with opened(source) as store:  # nothing changed there
        assert [*(await store.list("")).items] == expected


@pytest.mark.parametrize("to", ["sqlite", "etcd"])
async def test_only_an_empty_store_is_written(locations: Locations, to: str) -> None:
    source, target, empty = locations.new("sqlite"), locations.new(to), locations.new(to)
    await fill(source, 3)
    there = await fill(target, 5)
    with pytest.raises(ConfigError, match="already; a store is copied into an empty one only"):
        await copy_store(source, target, CLOCK)
    async with opened(target) as store:
        assert [*(await store.list("")).items] == there
    with pytest.raises(ConfigError, match="are the same store or overlap"):
        await copy_store(target, target, CLOCK)
    async with opened(empty):
        pass
    with pytest.raises(ConfigError, match="there are no objects at"):
        await copy_store(empty, locations.new(to), CLOCK)


async def test_a_store_in_use_is_not_copied(locations: Locations) -> None:
    source, other = locations.new("sqlite"), locations.new("etcd")
    await fill(source, 3)
    await fill(other, 3)
    async with opened(source):
        with pytest.raises(ConfigError, match="in use by another process, which must be stopped first"):
            await copy_store(source, locations.new("sqlite"), CLOCK)
        with pytest.raises(ConfigError, match="in use by another process"):
            await copy_store(other, source, CLOCK)


async def test_etcd_is_not_copied_while_servers_renew_their_leases(locations: Locations) -> None:
    source, target = locations.new("etcd"), locations.new("sqlite")
    await fill(source, 3)
    metadata = {"labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"}}
    lease = "coordination.k8s.io/leases/kube-system/apiserver-1"
    async with opened(source) as store:
        value = orjson.dumps({"metadata": metadata, "spec": {"renewTime": format_micro(CLOCK.now())}})
        await store.txn([Put(lease, value), Put("coordination.k8s.io/leases/kube-system/other", b'{"metadata":{}}')])
    with pytest.raises(ConfigError, match=r": apiserver-1 renewed .* or use --force"):
        await copy_store(source, target, CLOCK)
    await copy_store(source, target, CLOCK, force=True)
    async with opened(source) as store:
        value = orjson.dumps({"metadata": metadata, "spec": {"renewTime": "2020-01-01T00:00:00.000000Z"}})
        await store.txn([Put(lease, value)])
    await copy_store(source, locations.new("sqlite"), CLOCK)


async def test_a_source_that_changes_is_not_copied(locations: Locations) -> None:
    source, target = locations.new("etcd"), locations.new("sqlite")
    expected = await fill(source)

    async def write() -> None:
        async with opened(source) as store:
            await store.txn([put("core/things/new", ""), Delete("core/things/0440")])

    def write_once(copied: int, total: int) -> None:
        """Write from another event loop, before the copy continues."""
        if copied < total:
            writer = Thread(target=lambda: asyncio.run(write()))
            writer.start()
            writer.join()

    with pytest.raises(ConfigError, match="was changed during the copy: stop its servers and repeat the copy"):
        await copy_store(source, target, CLOCK, progress=write_once)
    assert target.database is not None and os.listdir(target.database.parent) == ["state.db-lock"]
    async with opened(source) as store:
        await store.txn([Delete("core/things/new"), put("core/things/0440", "x" * (440 % 7) * 500)])
    await copy_store(source, target, CLOCK, progress=write_once, force=True)
    async with opened(target) as copied:  # all of one revision
        assert without_revisions([*(await copied.list("")).items]) == without_revisions(expected)


async def test_an_interrupted_copy_into_etcd_is_refused_and_cleaned_by_the_next(locations: Locations) -> None:
    source, target, third = locations.new("sqlite"), locations.new("etcd"), locations.new("sqlite")
    expected = await fill(source)

    def interrupt(copied: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await copy_store(source, target, CLOCK, progress=interrupt)
    with pytest.raises(ConfigError, match="a part of a cluster only: repeat"):
        await open_store(target.config(), CLOCK)
    with pytest.raises(ConfigError, match="a part of a cluster only: repeat"):
        await copy_store(target, third, CLOCK)
    store = await open_etcd(target.config(), CLOCK)
    await store.txn([put("core/things/left", "over")])
    left = store.revision
    await store.close()
    written = await copy_store(source, target, CLOCK)
    assert written.revision > left
    async with opened(target) as copied:
        assert without_revisions([*(await copied.list("")).items]) == without_revisions(expected)
        assert await copied.get(INCOMPLETE) is None


async def test_an_interrupted_copy_into_a_directory_leaves_none(locations: Locations) -> None:
    source, target = locations.new("etcd"), locations.new("sqlite")
    await fill(source)

    def interrupt(copied: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await copy_store(source, target, CLOCK, progress=interrupt)
    assert target.database is not None and os.listdir(target.database.parent) == ["state.db-lock"]
    # What a process that was killed leaves behind does not matter either.
    target.database.with_name("state.db.restoring").write_bytes(b"half")
    await copy_store(source, target, CLOCK)
    assert "state.db.restoring" not in os.listdir(target.database.parent)


@pytest.mark.parametrize("to", ["sqlite", "etcd"])
async def test_a_copy_that_differs_is_not_finished(
    locations: Locations, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = locations.new("sqlite"), locations.new(to)
    await fill(source, 3)
    real = state_transfer.ContentDigest.add

    def damage(self: state_transfer.ContentDigest, items: Iterable[KeyValue]) -> None:
        real(self, (item.with_value(item.value + b" ") for item in items if not damage.called))  # type: ignore[attr-defined]
        damage.called = True  # type: ignore[attr-defined]

    damage.called = False  # type: ignore[attr-defined]
    monkeypatch.setattr(state_transfer.ContentDigest, "add", damage)
    with pytest.raises(ConfigError, match="entries that are not the 5 that were written"):
        await copy_store(source, target, CLOCK)
    if target.database is None:
        with pytest.raises(ConfigError, match="a part of a cluster only"):
            await open_store(target.config(), CLOCK)
    else:
        assert not target.database.exists()


async def test_a_value_that_is_too_large_for_etcd_is_named(locations: Locations) -> None:
    source, target = locations.new("sqlite"), locations.new("etcd")
    async with opened(source) as store:
        await store.txn([put("core/things/huge", "x" * (65 << 20)), put("core/things/small", "")])
    with pytest.raises(ConfigError, match=r"etcd did not accept 1 entries, of which core/things/huge with \d+ bytes"):
        await copy_store(source, target, CLOCK)


def test_locations_are_parsed(tmp_path: Path) -> None:
    access = EtcdAccess()
    (tmp_path / "some.file").touch()
    assert parse_location(str(tmp_path), access).database == tmp_path / "state.db"
    assert parse_location(str(tmp_path / "new"), access).database == tmp_path / "new" / "state.db"
    assert parse_location(str(tmp_path / "new.db"), access).database == tmp_path / "new.db"
    assert parse_location(str(tmp_path / "some.file"), access).database == tmp_path / "some.file"
    found = parse_location("https://a:2379,https://b:2379/other/", access)
    assert (found.servers, found.access.prefix) == (("https://a:2379", "https://b:2379"), "other")
    assert str(found) == "https://a:2379,https://b:2379/other"
    assert parse_location("http://a:2379", access).access.prefix == "/registry"
    for wrong in ("https://a:2379/x,https://b:2379/y", "ftp://a", "http://a:2379,https://b:2379", "http://a?b"):
        with pytest.raises(ConfigError, match="URLs"):
            parse_location(wrong, access)
    for address in ("127.0.0.1:2379", "etcd:2379,other:2379", "[::1]:2379/registry"):
        with pytest.raises(ConfigError, match=r"begin with https:// or http://"):
            parse_location(address, access)
    assert parse_location("./etcd:2379", access).database == Path("etcd:2379/state.db")
    one, two = (StoreLocation(None, ("http://a",), EtcdAccess(prefix)) for prefix in ("/registry", "registry/copy"))
    assert one.overlaps(two) and two.overlaps(one) and not one.overlaps(StoreLocation(tmp_path))
    assert not one.overlaps(StoreLocation(None, ("http://a",), EtcdAccess("/registry2")))
