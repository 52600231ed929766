"""Manifests of static Pods, and how changes of the files are noticed."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from stopped_clock import StoppedClock

from setpoint.kinds.typed import Pod
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.static_pod_files import StaticPodError, StaticPodFiles, priority_warning, static_pod
from setpoint.system import SystemClock

NOW = datetime(2026, 1, 2, 3, 4, 5, 678900, tzinfo=UTC)
PATH = Path("/etc/manifests/web.yaml")


def manifest(name: str = "web", **spec: Any) -> bytes:
    containers = [{"name": "main", "image": "busybox"}]
    meta = {"name": name, "labels": {"app": name}, "annotations": {"note": "mine"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": containers, **spec}}
    return json.dumps(pod).encode()


def read(data: bytes, path: Path = PATH, node: str = "node-1") -> Any:
    return static_pod(data, path, node, NOW)


def problem(data: bytes) -> str:
    with pytest.raises(StaticPodError) as failure:
        read(data)
    return str(failure.value)


def test_metadata_and_defaults_of_a_static_pod() -> None:
    pod = read(manifest(tolerations=[{"key": "a", "operator": "Exists"}]))
    meta, spec = pod["metadata"], pod["spec"]
    assert (meta["name"], meta["namespace"]) == ("web-node-1", "default")
    assert meta["labels"] == {"app": "web"}
    assert meta["annotations"] == {
        "note": "mine",
        "kubernetes.io/config.hash": meta["uid"],
        "kubernetes.io/config.seen": "2026-01-02T03:04:05.678900Z",
        "kubernetes.io/config.source": "file",
    }
    assert spec["nodeName"] == "node-1"
    assert spec["tolerations"] == [{"key": "a", "operator": "Exists"}, {"operator": "Exists", "effect": "NoExecute"}]
    assert (spec["restartPolicy"], spec["dnsPolicy"], spec["terminationGracePeriodSeconds"]) == (
        "Always",
        "ClusterFirst",
        30,
    )
    assert spec["containers"][0]["imagePullPolicy"] == "Always"
    assert "serviceAccountName" not in spec and "generation" not in meta and "resourceVersion" not in meta
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


def test_uid_depends_on_content_path_and_node() -> None:
    uid = read(manifest())["metadata"]["uid"]
    assert len(uid) == 32
    as_yaml = b"# a comment\napiVersion: v1\nkind: Pod\nmetadata: {labels: {app: web}, name: web, annotations: {note: mine}}\n"
    as_yaml += b"spec:\n  containers:\n  - {name: main, image: busybox}\n"
    assert read(as_yaml)["metadata"]["uid"] == uid
    assert static_pod(manifest(), PATH, "node-1", datetime(2027, 1, 1, tzinfo=UTC))["metadata"]["uid"] == uid
    others = {
        read(manifest(hostNetwork=True))["metadata"]["uid"],
        read(manifest(), Path("/other"))["metadata"]["uid"],
        read(manifest(), node="node-2")["metadata"]["uid"],
    }
    assert len(others | {uid}) == 4


def env(**source: Any) -> Any:
    return [{"name": "c", "image": "i", "env": [{"name": "A", "valueFrom": source}]}]


@pytest.mark.parametrize(
    ("spec", "resource"),
    [
        ({"serviceAccountName": "me"}, "serviceaccounts"),
        ({"imagePullSecrets": [{"name": "s"}]}, "secrets"),
        ({"containers": env(secretKeyRef={"name": "s", "key": "k"})}, "secrets"),
        ({"containers": env(configMapKeyRef={"name": "s", "key": "k"})}, "configmaps"),
        ({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}, "secrets"),
        ({"volumes": [{"name": "v", "configMap": {"name": "s"}}]}, "configmaps"),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "s"}}]}, "persistentvolumeclaims"),
        ({"volumes": [{"name": "v", "csi": {"driver": "d.example"}}]}, "csidrivers (via CSI volumes)"),
        ({"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}]}}]}, "secrets"),
        ({"volumes": [{"name": "v", "projected": {"sources": [{"configMap": {"name": "s"}}]}}]}, "configmaps"),
    ],
)
def test_references_to_api_objects_are_refused(spec: dict[str, Any], resource: str) -> None:
    assert problem(manifest(**spec)) == f"static pods may not reference {resource}"


def test_volumes_that_need_no_api_are_accepted() -> None:
    downward = {"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}]}}
    volumes = [
        {"name": "a", "hostPath": {"path": "/a"}},
        {"name": "b", "emptyDir": {}},
        {"name": "c", "projected": {"sources": [downward]}},
    ]
    assert len(read(manifest(volumes=volumes))["spec"]["volumes"]) == 3


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a: [", f"{PATH}: couldn't parse as pod("),
        (b"just text", f"{PATH}: couldn't parse as pod(it is not a v1 Pod), please check config file"),
        (b'{"apiVersion": "v1", "kind": "Service"}', "it is not a v1 Pod"),
        (b'{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": 3}}', "couldn't parse as pod(json: cannot"),
        (b'{"apiVersion": "v1", "kind": "Pod"}', "invalid pod: name is needed for the pod"),
        (manifest(containers=[]), "invalid pod: spec.containers: Required value"),
        (manifest("Web_1"), 'invalid pod: metadata.name: Invalid value: "Web_1-node-1"'),
    ],
)
def test_bad_manifests_have_a_clear_reason(data: bytes, message: str) -> None:
    assert message in problem(data)


def test_priority_warnings() -> None:
    def warning(**spec: Any) -> str:
        return priority_warning({"spec": spec})

    assert warning() == ""
    assert warning(priorityClassName="system-node-critical", priority=2_000_001_000) == ""
    assert warning(priorityClassName="x").startswith("Static pod has priorityClassName and nil priority.")
    assert warning(priority=5).startswith("Static pod has priority without priorityClassName.")
    assert warning(priorityClassName="x", priority=5).startswith("Static pod has a priority other than 2000001000")


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def pool() -> Any:
    made = BlockingPool(2)
    yield made
    made.close()


class Seen:
    """The static Pods of the last read."""

    def __init__(self) -> None:
        self.pods: Mapping[str, Pod] = {}
        self.reads = 0
        self._changed = asyncio.Event()

    def __call__(self, pods: Mapping[str, Pod]) -> None:
        self.pods = pods
        self.reads += 1
        self._changed.set()

    @property
    def names(self) -> set[str]:
        return set(self.pods)

    async def until(self, check: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not check():
                self._changed.clear()
                await self._changed.wait()


async def test_all_files_of_a_directory_are_read_once_in_good_order(
    tmp_path: Path, pool: BlockingPool, caplog: pytest.LogCaptureFixture
) -> None:
    clock, seen = StoppedClock(), Seen()
    files = StaticPodFiles(tmp_path, "n", pool, clock, seen)
    (tmp_path / "a.yaml").write_bytes(manifest("a"))
    (tmp_path / "b.json").write_bytes(manifest("b"))
    (tmp_path / "without-suffix").write_bytes(manifest("c"))
    (tmp_path / ".hidden.yaml").write_bytes(manifest("hidden"))
    (tmp_path / "bad.yaml").write_bytes(b"kind: Nothing")
    (tmp_path / "directory").mkdir()
    with caplog.at_level(logging.WARNING, "setpoint.node"):
        for _ in range(3):
            await files.read()
    assert seen.names == {"default/a-n", "default/b-n", "default/c-n"}
    bad = f"{tmp_path / 'bad.yaml'}: couldn't parse as pod(it is not a v1 Pod), please check config file"
    assert sorted(record.message for record in caplog.records) == [
        f"the static Pod file {tmp_path / 'bad.yaml'} is ignored: {bad}",
        f"the static Pod file {tmp_path / 'directory'} is ignored: it is a directory, and directories are not searched",
    ]


async def test_file_that_becomes_invalid_keeps_its_pod_for_a_while(tmp_path: Path, pool: BlockingPool) -> None:
    clock, seen = StoppedClock(), Seen()
    files = StaticPodFiles(tmp_path, "n", pool, clock, seen)
    path = tmp_path / "a.yaml"
    path.write_bytes(manifest("a"))
    await files.read()
    path.write_bytes(manifest("a")[:40])
    await files.read()
    assert seen.names == {"default/a-n"}
    await clock.advance(19)
    await files.read()
    assert seen.names == {"default/a-n"}
    await clock.advance(1)
    await files.read()
    assert seen.names == set()
    path.write_bytes(manifest("a"))
    await files.read()
    assert seen.names == {"default/a-n"}


async def test_one_file_instead_of_a_directory(tmp_path: Path, pool: BlockingPool) -> None:
    seen = Seen()
    path = tmp_path / "one.yaml"
    path.write_bytes(manifest("one"))
    (tmp_path / "other.yaml").write_bytes(manifest("other"))
    await StaticPodFiles(path, "n", pool, StoppedClock(), seen).read()
    assert seen.names == {"default/one-n"}


async def test_missing_directory_has_no_pods(
    tmp_path: Path, pool: BlockingPool, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Seen()
    with caplog.at_level(logging.WARNING, "setpoint.node"):
        await StaticPodFiles(tmp_path / "none", "n", pool, StoppedClock(), seen).read()
    assert seen.reads == 1 and not seen.pods
    assert caplog.messages == [f"{tmp_path / 'none'} does not exist: there are no static Pods"]


@asynccontextmanager
async def following(path: Path, pool: BlockingPool) -> AsyncIterator[Seen]:
    seen = Seen()
    running = asyncio.ensure_future(StaticPodFiles(path, "n", pool, SystemClock(), seen).run())
    try:
        await seen.until(lambda: seen.reads > 0)
        yield seen
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("inotify", [True, False], ids=["inotify", "polling"])
async def test_changes_are_noticed(
    tmp_path: Path, pool: BlockingPool, inotify: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not inotify:
        monkeypatch.setattr("setpoint.node.host.file_watch._inotify", lambda *_: -1)
    async with following(tmp_path, pool) as seen:
        path = tmp_path / "a.yaml"
        path.write_bytes(manifest("a"))
        await seen.until(lambda: seen.names == {"default/a-n"})
        first = seen.pods["default/a-n"]["metadata"]["uid"]
        path.write_bytes(manifest("a", hostNetwork=True))
        await seen.until(lambda: seen.pods["default/a-n"]["metadata"]["uid"] != first)
        path.rename(tmp_path / ".a.yaml")
        await seen.until(lambda: not seen.pods)
        (tmp_path / ".a.yaml").rename(path)
        await seen.until(lambda: bool(seen.pods))
        path.unlink()
        await seen.until(lambda: not seen.pods)


async def test_directory_may_be_replaced(tmp_path: Path, pool: BlockingPool) -> None:
    directory = tmp_path / "manifests"
    directory.mkdir()
    async with following(directory, pool) as seen:
        directory.rename(tmp_path / "former")
        directory.mkdir()
        (directory / "a.yaml").write_bytes(manifest("a"))
        await seen.until(lambda: seen.names == {"default/a-n"})
        (directory / "b.yaml").write_bytes(manifest("b"))
        await seen.until(lambda: seen.names == {"default/a-n", "default/b-n"})
