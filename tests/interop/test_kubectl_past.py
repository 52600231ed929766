"""Unmodified kubectl at a moment of the past: `kubectl --server https://host:port/at/<when>`."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from kubectl_runner import Kubectl, kubectls, until
from postgres_cluster import MANIFEST
from server_process import server_process

BINARIES = kubectls()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BINARIES, reason="no kubectl on the path, nor in SETPOINT_TEST_KUBECTL"),
]
CRD = "crd/postgresclusters.db.example.com"
ORDERS = "apiVersion: db.example.com/v1\nkind: PostgresCluster\nmetadata: {name: orders}\nspec: {engineVersion: '16'}\n"


def test_the_past_with_kubectl(tmp_path: Path) -> None:
    """Within the history in memory, and beyond it in a file: compaction happens every second here."""
    home = tmp_path / "home"
    home.mkdir()
    flags = ("--authorization-mode", "Node,RBAC", "--history-retention", "1h", "--etcd-compaction-interval", "1s")
    with server_process(tmp_path, *flags) as running:
        newest = Kubectl(BINARIES[-1], running.kubeconfig, home, "default")
        server = newest("config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}")
        newest("apply", "-f", str(MANIFEST))
        until(lambda: newest.run("wait", "--for=condition=Established", CRD, "--timeout=10s").code == 0)
        until(lambda: newest.run("apply", "-f", "-", stdin=ORDERS).code == 0)
        newest("create", "configmap", "settings", "--from-literal=level=info")
        then = newest.get("configmap", "settings")["metadata"]["resourceVersion"]
        there = datetime.now(UTC)
        time.sleep(1.0)
        newest("delete", "configmap", "settings")
        newest("delete", CRD)

        def is_archived() -> bool:
            newest("annotate", "namespace", "default", "--overwrite", f"now={time.time()}")
            with sqlite3.connect(f"file:{tmp_path}/data/history.db?mode=ro", uri=True) as file:
                (known,) = file.execute("SELECT value FROM fact WHERE name = 'newest'").fetchone()
            return int(known) > int(then) + 5

        until(is_archived)
        for binary in BINARIES:
            kubectl = Kubectl(binary, running.kubeconfig, home, "default")

            def past(*words: str, when: str = then, kubectl: Kubectl = kubectl) -> str:
                return kubectl("--server", f"{server}/at/{when}", *words)

            table = past("get", "configmaps", "-A")
            assert re.search(r"default +settings +1 +\d+s", table), table
            assert json.loads(past("get", "cm", "settings", "-o", "json"))["data"] == {"level": "info"}
            assert "orders" in past("get", "postgresclusters", "-A")
            assert "level:" in past("describe", "configmap", "settings")
            assert "postgresclusters" in past("api-resources", "--api-group=db.example.com")
            assert "engineVersion" in past("explain", "postgrescluster.spec")
            assert "settings" not in past("get", "configmaps", "-A", when="now")
            assert "settings" in past("get", "configmaps", "-A", when=there.isoformat().replace("+00:00", "Z"))

            def ago(past: Callable[..., str] = past) -> bool:
                """A little later than `there`, unless kubectl takes long to start."""
                seconds = (datetime.now(UTC) - there).total_seconds() - 0.2
                return "settings" in past("get", "configmaps", "-A", when=f"-{seconds:.2f}s")

            until(ago)
            assert "NAMESPACE" in past("get", "namespaces,configmaps", "-A", "-o", "wide")
            refused = kubectl.refused("--server", f"{server}/at/{then}", "delete", "configmap", "settings")
            assert "the past cannot be changed" in refused
            refused = kubectl.refused("--server", f"{server}/at/1970-01-02T00:00:00Z", "get", "pods")
            assert "410" in refused  # discovery of kubectl drops the message
