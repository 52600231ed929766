"""A cluster moves from SQLite to etcd and back, is backed up and restored there, with the commands of the docs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from etcd_process import etcd_process
from server_process import server_process

KINDS = "configmaps,secrets,services,serviceaccounts,namespaces,clusterroles,things.acme.io,customresourcedefinitions"
OBJECTS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.acme.io}
spec:
  group: acme.io
  names: {plural: things, kind: Thing}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {size: {type: integer}}}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: default}, data: {a: "1"}}
---
{apiVersion: v1, kind: Secret, metadata: {name: token, namespace: default}, stringData: {a: hidden}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: default}, spec: {type: NodePort, ports: [{port: 80}]}}
"""
THING = "{apiVersion: acme.io/v1, kind: Thing, metadata: {name: one, namespace: default}, size: 3}"


def setpoint(directory: Path, line: str, code: int = 0, stdin: str = "") -> str:
    path = os.pathsep.join(filter(None, (str(Path("src").resolve()), os.environ.get("PYTHONPATH", ""))))
    done = subprocess.run(
        [sys.executable, "-m", "setpoint", *line.split()],
        cwd=directory,
        env={"HOME": str(directory), "PATH": os.environ["PATH"], "PYTHONPATH": path},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, f"setpoint {line}: {done.stderr or done.stdout}"
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr if code else done.stdout


def visible(directory: Path) -> tuple[dict[str, Any], list[int]]:
    """Return the objects as clients see them, without their resourceVersions, and those."""
    kubeconfig = directory / "data" / "admin.kubeconfig"
    items = json.loads(setpoint(directory, f"get {KINDS} -A -o json --kubeconfig {kubeconfig}"))["items"]
    revisions = [int(item["metadata"].pop("resourceVersion")) for item in items]
    return {f"{item['kind']} {item['metadata']['uid']}": item for item in items}, revisions


@pytest.mark.slow
def test_a_cluster_moves_to_etcd_and_back(tmp_path: Path) -> None:
    first, second, third = tmp_path / "first", tmp_path / "second", tmp_path / "third"
    for directory in (first, second, third):
        directory.mkdir()
    kubeconfig = "--kubeconfig data/admin.kubeconfig"
    with etcd_process(tmp_path) as etcd:
        url = etcd.endpoint
        with server_process(first):
            setpoint(first, f"apply -f - {kubeconfig}", stdin=OBJECTS)
            setpoint(first, f"wait --for condition=established crd/things.acme.io {kubeconfig}")
            setpoint(first, f"apply -f - {kubeconfig}", stdin=THING)
            expected, before = visible(first)
        assert "were copied to" in setpoint(first, f"store copy data {url}")
        assert "no problems" in setpoint(first, f"store check {url}")

        with server_process(second, "--etcd-servers", url):
            found, after = visible(second)
            assert found == expected
            assert min(after) > max(before)
            changed = setpoint(second, f"annotate configmap settings moved=yes -o json {kubeconfig}")
            assert int(json.loads(changed)["metadata"]["resourceVersion"]) > max(after)
            expected, before = visible(second)
            setpoint(second, f"backup one.backup --etcd-servers {url}")
            refused = setpoint(second, f"restore one.backup --etcd-servers {url} --force", code=1)
            assert "renewed their Leases" in refused

        assert "were copied to" in setpoint(third, f"store copy {url} data --force")
        with server_process(third):
            found, after = visible(third)
            assert found == expected
            assert sorted(after) == sorted(before)
            changed = setpoint(third, f"annotate configmap settings moved=back --overwrite -o json {kubeconfig}")
            assert int(json.loads(changed)["metadata"]["resourceVersion"]) > max(before)

        # What was saved from etcd is restored into another prefix.
        prefix = f"--etcd-servers {url} --etcd-prefix /restored"
        assert "continues at revision 1000" in setpoint(second, f"restore one.backup {prefix}")
        with server_process(second, "--etcd-servers", url, "--etcd-prefix", "/restored"):
            found, after = visible(second)
            assert found == expected
            assert min(after) > max(before) + 900_000_000


@contextmanager
def stopped_at_the_end(directory: Path) -> Iterator[None]:
    """Stop the cluster in the background, also if the test fails."""
    try:
        yield
    finally:
        setpoint(directory, "down --data-dir data")


@pytest.mark.slow
def test_a_cluster_in_an_external_etcd_does_not_start_without_it(tmp_path: Path) -> None:
    """An empty database, or an old one, would look as if everything were lost."""
    up = "up --data-dir data --port 0 --nodes 0 --detach"
    with etcd_process(tmp_path) as etcd, stopped_at_the_end(tmp_path):
        in_etcd = f"are in etcd: give --etcd-servers {etcd.endpoint} and the other flags of etcd as before"
        assert "the same command goes on" in setpoint(tmp_path, f"{up} --etcd-servers {etcd.endpoint}")
        assert "with the same --etcd-servers" in setpoint(tmp_path, "down --data-dir data")
        for line in (up, "store check --data-dir data", "backup one.backup --data-dir data"):
            assert in_etcd in setpoint(tmp_path, line, code=1)
        setpoint(tmp_path, f"store copy {etcd.endpoint} data --force")
    with stopped_at_the_end(tmp_path):
        for line in (f"{up} --store sqlite", "down --data-dir data", up):
            setpoint(tmp_path, line)


SUCCEEDED = 'setpoint_backups_total{result="success"} 1'


def metrics(directory: Path) -> str:
    return setpoint(directory, "get --raw /metrics --kubeconfig data/admin.kubeconfig")


def wait_for_backup(directory: Path) -> None:
    deadline = time.monotonic() + 60
    while SUCCEEDED not in metrics(directory):
        assert time.monotonic() < deadline


@pytest.mark.slow
def test_a_server_writes_scheduled_backups(tmp_path: Path) -> None:
    with server_process(tmp_path, "--backup-interval", "1h", "--backup-keep", "2"):
        wait_for_backup(tmp_path)
    (backup,) = (tmp_path / "data" / "backups").iterdir()
    assert "state of" in setpoint(tmp_path, f"restore {backup} --data-dir restored")
    assert "no problems" in setpoint(tmp_path, "store check restored")


@pytest.mark.slow
def test_one_of_two_servers_on_etcd_writes_the_backups(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    with etcd_process(tmp_path) as etcd:
        flags = ("--etcd-servers", etcd.endpoint, "--backup-interval", "1h")
        with server_process(two, *flags):
            with server_process(one, *flags):
                wait_for_backup(two)
                for _ in range(5):  # seconds in which it would have written one
                    assert 'setpoint_backups_total{result="success"} 0' in metrics(one)
            assert not (one / "data" / "backups").exists()
