"""`setpoint store check` finds nothing wrong with a healthy store, and every defect that is planted into it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from local_server import LocalServer

from setpoint.apiserver.encoding import stamp_offset, without_stamp
from setpoint.cluster.config import ConfigError
from setpoint.cluster.encryption import Encryption
from setpoint.cluster.state_transfer import write_state
from setpoint.cluster.store_check import Report, check_location, check_store
from setpoint.cluster.store_location import StoreLocation
from setpoint.meta.objects import Obj
from setpoint.store.history import History
from setpoint.store.in_memory_reads import InMemoryReads
from setpoint.store.interface import Delete, KeyValue, Put
from setpoint.store.memory import MemoryStore
from setpoint.store.snapshot import Snapshot
from setpoint.store.sqlite import SqliteStore
from setpoint.system import SystemClock

CLOCK = SystemClock()
WEB, CONFIG_MAP, THING = "core/services/default/web", "core/configmaps/default/settings", "acme.io/things/default/one"
KEYS = {"keys": [{"name": "one", "secret": b64encode(b"k" * 32).decode()}]}


@pytest.fixture
async def store(local_server: LocalServer) -> MemoryStore:
    """A copy of the store of a server with Services, a custom resource and more."""
    client = local_server.client
    meta = {"name": "web", "namespace": "default"}
    port = {"port": 80, "nodePort": 30080}
    for name, spec in (
        ("web", {"type": "NodePort", "ports": [port], "clusterIP": "10.96.0.80"}),
        ("other", {"ports": [{"port": 80}], "clusterIP": "10.96.0.81"}),
        ("headless", {"ports": [{"port": 80}], "clusterIP": "None"}),
    ):
        await client.create({"apiVersion": "v1", "kind": "Service", "metadata": {**meta, "name": name}, "spec": spec})
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "gone"}
    named = {"name": "settings", "namespace": "default", "finalizers": ["acme.io/x"], "ownerReferences": [owner]}
    await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": named, "data": {"a": "b"}})
    schema = {"openAPIV3Schema": {"type": "object"}}
    defined = {
        "group": "acme.io",
        "scope": "Namespaced",
        "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
    }
    definition = {"metadata": {"name": "things.acme.io"}, "spec": defined}
    await client.create(
        {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", **definition},
    )
    backend = local_server.api.resources.store
    assert isinstance(backend, InMemoryReads)
    copy = MemoryStore(backend.copy_of_history())
    thing: Obj = {"apiVersion": "acme.io/v1", "kind": "Thing", "metadata": {"name": "one", "namespace": "default"}}
    thing["metadata"] |= {"uid": "uid-of-one", "creationTimestamp": "2030-01-01T00:00:00Z"}
    await copy.txn([as_stored(THING, thing)])
    return copy


def as_stored(key: str, obj: Obj) -> Put:
    value, stamp = stamp_offset(orjson.dumps(obj))
    return Put(key, value, stamp=stamp)


async def found(store: MemoryStore, key: str) -> KeyValue:
    entry = await store.get(key)
    assert entry is not None
    return entry


async def change(store: MemoryStore, key: str, changed: Callable[[Obj], object], to: str = "") -> None:
    """Write an object again, under its key or another one, with something wrong in it."""
    entry = await found(store, key)
    obj = orjson.loads(without_stamp(entry.value, entry.mod_revision)[0])
    del obj["metadata"]["resourceVersion"]
    changed(obj)
    await store.txn([as_stored(to or key, obj)])


def problems(report: Report) -> list[tuple[str, str]]:
    return [(problem.key, problem.reason) for problem in report.problems]


async def test_a_healthy_store_has_no_problems(store: MemoryStore) -> None:
    report = await check_store(store, decrypts=False)
    assert problems(report) == []
    assert report.counts["services"] == 3 and report.counts["things.acme.io"] == 1
    assert report.counts["(node port reservations)"] == 1
    assert report.counts.total() == (await store.list("")).total
    assert report.revision == store.revision


META = "metadata"
DEFECTS: dict[str, tuple[str, Callable[[Obj], object], str, str]] = {
    "no uid": (CONFIG_MAP, lambda obj: obj[META].update(uid=""), "", "it has no uid"),
    "another key": (
        CONFIG_MAP,
        lambda obj: obj[META].update(uid="u"),
        "core/configmaps/default/moved",
        "its object belongs under the key core/configmaps/default/settings",
    ),
    "another namespace": (
        CONFIG_MAP,
        lambda obj: obj[META].update(namespace="kube-system"),
        "",
        "its object belongs under the key core/configmaps/kube-system/settings",
    ),
    "a namespace of a cluster-wide object": (
        "core/namespaces/default",
        lambda obj: obj[META].update(namespace="default"),
        "",
        "it has the namespace default, but its kind has none",
    ),
    "a missing namespace": (
        CONFIG_MAP,
        lambda obj: obj[META].update(namespace="nowhere", uid="u"),
        "core/configmaps/nowhere/settings",
        "its namespace nowhere does not exist",
    ),
    "a repeated uid": (
        CONFIG_MAP,
        lambda obj: obj[META].update(name="twin"),
        "core/configmaps/default/twin",
        "its uid UID is also that of core/configmaps/default/settings",
    ),
    "a wrong type": (
        CONFIG_MAP,
        lambda obj: obj.update(data=["a"]),
        "",
        "it is not a ConfigMap: json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string",
    ),
    "no time": (
        CONFIG_MAP,
        lambda obj: obj[META].update(creationTimestamp="yesterday"),
        "",
        "its creationTimestamp 'yesterday' is not a time",
    ),
    "a finalizer that is no name": (
        CONFIG_MAP,
        lambda obj: obj[META].update(finalizers=[""]),
        "",
        "its finalizers are not a list of names",
    ),
    "an owner without a name": (
        CONFIG_MAP,
        lambda obj: obj[META].update(ownerReferences=[{"uid": "u"}]),
        "",
        "a reference to an owner is incomplete",
    ),
    "an unknown resource": (
        CONFIG_MAP,
        lambda obj: obj[META].update(uid="u"),
        "acme.io/widgets/default/settings",
        "no kind of the server and no CustomResourceDefinition has such keys",
    ),
    "an unknown version": (
        THING,
        lambda obj: obj.update(apiVersion="acme.io/v9"),
        "",
        "its definition has no Thing in version acme.io/v9",
    ),
    "a custom object under another key": (
        THING,
        lambda obj: obj[META].update(name="two"),
        "",
        "its object belongs under the key acme.io/things/default/two",
    ),
    "an address that is not one": (
        "core/services/default/other",
        lambda obj: obj["spec"].update(clusterIPs=["x"]),
        "",
        "its cluster IP x is not an address",
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
async def test_a_defect_of_an_object_is_found(store: MemoryStore, defect: str) -> None:
    key, changed, to, reason = DEFECTS[defect]
    uid = orjson.loads((await found(store, key)).value)[META]["uid"]
    await change(store, key, changed, to)
    report = await check_store(store, decrypts=False)
    assert (to or key, reason.replace("UID", uid)) in problems(report)


async def test_values_that_are_no_objects_are_found(store: MemoryStore) -> None:
    await store.txn(
        [Put("core/pods/default/a", b"{"), Put("core/pods/default/b", b"[]"), Put("core/pods/default/c", b"{}")]
    )
    entry = await found(store, CONFIG_MAP)
    await store.txn([Put(CONFIG_MAP, entry.value)])  # with the resourceVersion of the revision before
    reasons = problems(await check_store(store, decrypts=False))
    assert [(key, reason.partition(":")[0]) for key, reason in reasons] == [
        (
            CONFIG_MAP,
            f"its resourceVersion is {entry.mod_revision}, but it was changed at revision {store.revision}",
        ),
        ("core/pods/default/a", "it is not JSON"),
        ("core/pods/default/b", "it is not a JSON object"),
        ("core/pods/default/c", "it has no metadata"),
    ]


async def test_addresses_and_ports_that_do_not_agree_are_found(store: MemoryStore) -> None:
    address = "networking.k8s.io/ipaddresses/10.96.0.80"
    before = store.fork()
    await store.txn([Delete(address), Delete("ranges/nodeports/30080")])
    assert problems(await check_store(store, decrypts=False)) == [
        (WEB, "its cluster IP 10.96.0.80 is not allocated: there is no IPAddress"),
        (WEB, "its node port 30080 is not reserved"),
    ]

    store = before.fork()
    await store.txn([Delete(WEB)])
    assert problems(await check_store(store, decrypts=False)) == [
        (address, "it is allocated to services/default/web, which does not have this cluster IP"),
        ("ranges/nodeports/30080", "it is reserved for the Service default/web, which does not have this node port"),
    ]

    store = before.fork()
    await change(store, address, lambda obj: obj["spec"]["parentRef"].update(name="other"))
    await store.txn([Put("ranges/nodeports/30080", b'{"namespace":"default","name":"other"}')])
    assert problems(await check_store(store, decrypts=False)) == [
        (WEB, "its cluster IP 10.96.0.80 is allocated to services/default/other"),
        (WEB, "its node port 30080 is reserved for default/other"),
    ]

    store = before.fork()
    await change(
        store,
        "core/services/default/other",
        lambda obj: obj["spec"].update(
            orjson.loads(
                b'{"type":"NodePort","clusterIP":"10.96.0.80","clusterIPs":["10.96.0.80"],"ports":[{"port":80,"nodePort":30080}]}'
            )
        ),
    )
    assert problems(await check_store(store, decrypts=False)) == [
        ("core/services/default/other", "its cluster IP 10.96.0.80 is allocated to services/default/web"),
        ("core/services/default/other", "its node port 30080 is reserved for default/web"),
        (WEB, "its cluster IP 10.96.0.80 is also that of core/services/default/other"),
        (WEB, "its node port 30080 is also that of core/services/default/other"),
        (
            "networking.k8s.io/ipaddresses/10.96.0.81",
            "it is allocated to services/default/other, which does not have this cluster IP",
        ),
    ]


async def test_encrypted_values_need_their_keys(store: MemoryStore, tmp_path: Path) -> None:
    path = tmp_path / "encryption.yaml"
    head = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration"}
    path.write_bytes(
        orjson.dumps({**head, "resources": [{"resources": ["configmaps"], "providers": [{"aesgcm": KEYS}]}]})
    )
    encrypted = Encryption(str(path), store, CLOCK).store
    plain = await found(store, CONFIG_MAP)
    value, stamp = without_stamp(plain.value, plain.mod_revision)
    await encrypted.txn([Put(CONFIG_MAP, value, stamp=stamp)])
    location = StoreLocation(tmp_path / "data" / "state.db")
    async with Snapshot(store) as snapshot:
        await write_state(snapshot.pages(), snapshot.revision, location, CLOCK, lost_revisions=False)

    report = await check_location(location, CLOCK, "")
    assert (problems(report), report.encrypted) == ([], 1)
    report = await check_location(location, CLOCK, str(path))
    assert (problems(report), report.encrypted) == ([], 0)

    path.write_bytes(path.read_bytes().replace(KEYS["keys"][0]["secret"].encode(), b64encode(b"x" * 32)))
    report = await check_location(location, CLOCK, str(path))
    assert problems(report) == [(CONFIG_MAP, "it cannot be decrypted: cipher: message authentication failed")]
    with pytest.raises(ConfigError, match="no such file"):
        await check_location(location, CLOCK, str(tmp_path / "none"))


async def test_a_database_in_use_or_damaged_is_refused(tmp_path: Path) -> None:
    location = StoreLocation(tmp_path / "state.db")
    with pytest.raises(ConfigError, match="there is no database at"):
        await check_location(location, CLOCK, "")
    store = SqliteStore.open(tmp_path / "state.db")
    await store.txn([Put("core/configmaps/default/a", b'{"metadata":{}}')])
    with pytest.raises(ConfigError, match="is in use by another process, which must be stopped first"):
        await check_location(location, CLOCK, "")
    await store.close()
    assert len((await check_location(location, CLOCK, "")).problems) > 0
    (tmp_path / "state.db").write_bytes((tmp_path / "state.db").read_bytes().replace(b"metadata", b"metadatb"))
    with pytest.raises(ConfigError, match="is damaged: core/configmaps/default/a at revision 1 is not as written"):
        await check_location(location, CLOCK, "")


WRONG: tuple[object, ...] = (None, 7, "x", "", [], [7], [{}], {}, {"a": 7}, {"cidrs": ["x"]})


async def test_no_damage_ends_the_check(store: MemoryStore) -> None:
    """Any part of an object may be something else; the check reports it, or finds it in order, and goes on."""
    keys = [WEB, THING, CONFIG_MAP, "core/namespaces/default"]
    keys += ["networking.k8s.io/ipaddresses/10.96.0.80", "networking.k8s.io/servicecidrs/kubernetes"]
    keys += ["apiextensions.k8s.io/customresourcedefinitions/things.acme.io", "ranges/nodeports/30080"]
    entries = [await found(store, key) for key in keys]
    small = MemoryStore(History(entries, store.revision))
    assert problems(await check_store(small, decrypts=False)) == []
    for entry in entries:
        obj = orjson.loads(entry.value)
        for path in paths(obj):
            for wrong in WRONG:
                damaged = small.fork()
                await damaged.txn([Put(entry.key, orjson.dumps(replaced(obj, path, wrong)))])
                assert (await check_store(damaged, decrypts=False)).counts.total() == len(keys)


def paths(value: object) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every part of a value."""
    children: Iterable[tuple[str | int, object]] = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for name, child in children:
        yield (name,)
        yield from ((name, *rest) for rest in paths(child))


def replaced(value: Any, path: Sequence[str | int], by: object) -> Any:
    if not path:
        return by
    changed = value.copy()
    changed[path[0]] = replaced(value[path[0]], path[1:], by)
    return changed
