"""Two servers on a real etcd: what one has begun, the other continues."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from etcd_process import EtcdProcess, etcd_process
from server_harness import ServerHarness

pytest.importorskip("google.protobuf")

from setpoint.store.etcd import store as etcd_store
from setpoint.store.etcd.store import EtcdStore

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    with etcd_process(tmp_path) as running:
        yield running


async def test_a_list_continues_on_a_server_that_started_later(
    etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is older than its replica is read from etcd; it is too old only if etcd says so."""
    monkeypatch.setattr(etcd_store, "_REPLAYED", 1)
    number = partial(os.urandom, 16)
    one = await ServerHarness.open(await EtcdStore.open([etcd.endpoint], number=number))
    for name in "abcd":
        await one.make(CONFIGMAPS, {"metadata": {"name": name}})
    page = (await one.get(f"{CONFIGMAPS}?limit=2")).json
    for name in "cd":
        assert (await one.delete(f"{CONFIGMAPS}/{name}")).status == 200
    store = await EtcdStore.open([etcd.endpoint], number=number)
    other = await ServerHarness.open(store)
    assert store.compacted > int(page["metadata"]["resourceVersion"])
    path = f"{CONFIGMAPS}?limit=2&continue={page['metadata']['continue']}"
    rest = (await other.get(path)).json
    assert [item["metadata"]["name"] for item in rest["items"]] == ["c", "d"]
    assert rest["metadata"]["resourceVersion"] == page["metadata"]["resourceVersion"]
    exact = f"{CONFIGMAPS}?resourceVersion={page['metadata']['resourceVersion']}&resourceVersionMatch=Exact"
    assert len((await other.get(exact)).json["items"]) == 4
    await one.store.compact(one.store.revision)
    assert (await other.get(path)).json["reason"] == "Expired"
    assert [item["metadata"]["name"] for item in (await other.get(CONFIGMAPS)).json["items"]] == ["a", "b"]
    await one.close()
    await other.close()
