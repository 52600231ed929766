"""Synchronization of a directory and of Git repositories, on a whole cluster in virtual time."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from examples.gitops import Sources, Sync, gitops_operator

from setpoint.meta.objects import Obj
from setpoint.sdk import Invalid, is_true
from setpoint.testing import VirtualCluster, virtual

SYNC, CONFIG_MAP, DEPLOYMENT = Sync.ref, ("v1", "ConfigMap"), ("apps/v1", "Deployment")

DEFINITION = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")

CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: %s}
data: {colour: blue}
"""
WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: nginx}]
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
"""
TEAPOTS = """
apiVersion: example.com/v1
kind: Teapot
metadata: {name: brown}
spec: {cups: 2}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: teapots.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: teapots, singular: teapot, kind: Teapot}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {cups: {type: integer}}}}
"""


def sync(**spec: Any) -> Obj:
    meta = {"name": "site", "namespace": "default"}
    return {"apiVersion": SYNC[0], "kind": SYNC[1], "metadata": meta, "spec": {"path": "source", **spec}}


def by_hand(name: str) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


@asynccontextmanager
async def with_sync(cluster: VirtualCluster, root: Path, **spec: Any) -> AsyncIterator[None]:
    (root / "source").mkdir(exist_ok=True)
    async with cluster.running(gitops_operator(Sources(root, root / "copies"))):
        await cluster.client.create(sync(**spec))
        await cluster.sleep(20)
        yield


async def status(cluster: VirtualCluster) -> Obj:
    found: Obj = (await cluster.client.get(SYNC, "site", "default"))["status"]
    return found


async def condition(cluster: VirtualCluster, type: str = "Synced") -> tuple[str, str, str]:
    (found,) = (each for each in (await status(cluster))["conditions"] if each["type"] == type)
    return found["status"], found["reason"], found["message"]


async def names(cluster: VirtualCluster) -> set[str]:
    return {each["metadata"]["name"] for each in await cluster.all(CONFIG_MAP)} - {"kube-root-ca.crt"}


def git(repo: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.com", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, *arguments], cwd=repo, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(repo: Path, **files: str) -> str:
    for name, text in files.items():
        (repo / f"{name}.yaml").write_text(text)
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "another")
    return git(repo, "rev-parse", "HEAD")


@virtual(nodes=1)
async def test_a_directory_is_applied_and_becomes_healthy(cluster: VirtualCluster, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "inner").mkdir(parents=True)
    (source / "inner" / "web.yaml").write_text(WEB)
    (source / "teapots.yml").write_text(TEAPOTS)
    (source / "config.json").write_text('{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}')
    (source / "README.md").write_text("not a manifest")
    async with with_sync(cluster, tmp_path):
        found = await cluster.client.get(SYNC, "site", "default")
        assert is_true(found, "Synced")
        assert is_true(found, "Healthy")
        assert found["status"]["revision"].startswith("sha256:")
        assert len(found["status"]["inventory"]) == 5
        assert (await cluster.client.get(("example.com/v1", "Teapot"), "brown", "default"))["spec"] == {"cups": 2}
        await cluster.client.patch(DEPLOYMENT, "web", {"metadata": {"labels": {"by": "hand"}}}, "shop")
        await cluster.advance("2m")
        assert await cluster.client.get(SYNC, "site", "default") == found, "what others add is no drift"
        await cluster.client.delete(SYNC, "site", "default")
        await cluster.settle(quiet=10)
        assert await cluster.find(("v1", "Namespace"), "shop", "") is None, "what it applied goes with it"
        assert (
            await cluster.find(("apiextensions.k8s.io/v1", "CustomResourceDefinition"), "teapots.example.com") is None
        )


@virtual(nodes=1)
async def test_drift_is_reported_and_corrected(cluster: VirtualCluster, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "web.yaml").write_text(WEB + "---" + CONFIG % "one")
    async with with_sync(cluster, tmp_path):
        containers = [{"name": "web", "image": "httpd"}]
        patch = {"spec": {"replicas": 5, "template": {"spec": {"containers": containers}}}}
        await cluster.client.patch(DEPLOYMENT, "web", patch, "shop", kind="strategic")
        await cluster.client.delete(CONFIG_MAP, "one", "default")
        await cluster.advance("70s")
        assert {each["object"]: each["fields"] for each in (await status(cluster))["drift"]} == {
            "ConfigMap default/one": ["(deleted)"],
            "Deployment shop/web": [".spec.replicas", ".spec.template.spec.containers[web].image"],
        }
        assert (await cluster.client.get(DEPLOYMENT, "web", "shop"))["spec"]["replicas"] == 2
        assert await names(cluster) == {"one"}
        assert ("Warning", "DriftUndone", "ConfigMap default/one: (deleted)") in await cluster.events("site")
        assert (await condition(cluster))[0] == "True"


@virtual(nodes=0, controllers=())
async def test_drift_can_be_reported_only(cluster: VirtualCluster, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "one.yaml").write_text(CONFIG % "one")
    async with with_sync(cluster, tmp_path, undo=False):
        with pytest.raises(Invalid, match="once a second is the most"):
            await cluster.client.patch(SYNC, "site", {"spec": {"interval": "5ms"}}, "default")
        await cluster.client.patch(CONFIG_MAP, "one", {"data": {"colour": "red"}}, "default")
        await cluster.advance("70s")
        assert (await condition(cluster))[:2] == ("False", "Drifted")
        before = await cluster.client.get(SYNC, "site", "default")
        await cluster.advance("5m")
        assert await cluster.client.get(SYNC, "site", "default") == before, "the same drift is told once"
        assert (await cluster.client.get(CONFIG_MAP, "one", "default"))["data"] == {"colour": "red"}
        (tmp_path / "source" / "one.yaml").write_text(CONFIG.replace("blue", "green") % "one")
        await cluster.advance("70s")
        assert (await cluster.client.get(CONFIG_MAP, "one", "default"))["data"] == {"colour": "green"}
        assert (await condition(cluster))[0] == "True"


@virtual(nodes=0, controllers=())
async def test_objects_removed_from_the_source_are_pruned(cluster: VirtualCluster, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("one", "two", "three", "four"):
        (source / f"{name}.yaml").write_text(CONFIG % name)
    async with with_sync(cluster, tmp_path, interval="10s"):
        await cluster.sleep(1)  # until a round that may still run has ended
        await cluster.client.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine"}}, namespace="default"
        )
        # Somebody made this one again by hand: it is theirs now.
        await cluster.client.delete(CONFIG_MAP, "two", "default")
        await cluster.client.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "two"}}, namespace="default"
        )
        keep = {"metadata": {"annotations": {"gitops.example.com/prune": "false"}}}
        await cluster.client.patch(CONFIG_MAP, "three", keep, "default")
        for name in ("one", "two", "three"):
            (source / f"{name}.yaml").unlink()
        await cluster.sleep(15)
        assert await names(cluster) == {"mine", "two", "three", "four"}

        await cluster.client.delete(SYNC, "site", "default")
        await cluster.sleep(1)
        assert await names(cluster) == {"mine", "two", "three"}, "what it applied goes with it"
        assert await cluster.find(SYNC, "site") is None


@virtual(nodes=0, controllers=())
async def test_invalid_manifests_are_reported_and_only_suspend_pruning(cluster: VirtualCluster, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "one.yaml").write_text(CONFIG % "one")
    async with with_sync(cluster, tmp_path, interval="10s"):
        (source / "one.yaml").unlink()
        (source / "broken.yaml").write_text("kind: [")
        (source / "invalid.yaml").write_text(CONFIG % "Not_A_Name")
        (source / "strange.yaml").write_text(CONFIG.replace("ConfigMap", "Unheard") % "x")
        (source / "two.yaml").write_text(CONFIG % "two")
        (source / "again.yaml").write_text(CONFIG % "two")
        await cluster.sleep(15)
        assert await names(cluster) == {"one", "two"}, "the rest goes on, nothing is pruned"
        found = await status(cluster)
        told = {each["file"]: each["message"] for each in found["problems"]}
        assert set(told) == {"broken.yaml", "invalid.yaml", "strange.yaml", "two.yaml"}
        assert told["two.yaml"] == "ConfigMap default/two is in again.yaml too"
        assert "Unheard" in told["strange.yaml"]
        assert (await condition(cluster))[:2] == ("False", "Problems")

        for name in ("broken", "invalid", "strange", "again"):
            (source / f"{name}.yaml").unlink()
        await cluster.sleep(15)
        assert await names(cluster) == {"two"}
        assert (await status(cluster))["problems"] == []


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
@virtual(nodes=0, controllers=())
async def test_a_git_repository(cluster: VirtualCluster, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    git(repo, "init", "--quiet", "--initial-branch", "main")
    first = commit(repo, one=CONFIG % "one")
    async with with_sync(cluster, tmp_path, repo=str(repo), path=".", interval="10s"):
        assert (await status(cluster))["revision"] == first
        second = commit(repo, two=CONFIG % "two")
        await cluster.sleep(15)
        assert (await status(cluster))["revision"] == second
        assert await names(cluster) == {"one", "two"}

        await cluster.client.patch(SYNC, "site", {"spec": {"revision": first}}, "default")
        await cluster.sleep(1)
        assert await names(cluster) == {"one"}, "back to where it was"
        await cluster.client.patch(SYNC, "site", {"spec": {"revision": None, "branch": "nowhere"}}, "default")
        await cluster.sleep(1)
        assert (await condition(cluster))[:2] == ("False", "SourceProblem")
        assert "nowhere" in (await condition(cluster))[2]
        assert await names(cluster) == {"one"}

        await cluster.client.patch(SYNC, "site", {"spec": {"suspend": True, "branch": "main"}}, "default")
        await cluster.advance("1m")
        assert (await condition(cluster))[:2] == ("Unknown", "Suspended")
        assert await names(cluster) == {"one"}


@virtual(nodes=0, controllers=())
async def test_paths_outside_the_root_are_rejected(cluster: VirtualCluster, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret.yaml").write_text(CONFIG % "secret")
    (root / "link").symlink_to(tmp_path)
    async with with_sync(cluster, root):
        for path in ("..", "/etc", "link", "missing"):
            await cluster.client.patch(SYNC, "site", {"spec": {"path": path}}, "default")
            await cluster.sleep(1)
            assert (await condition(cluster))[:2] == ("False", "SourceProblem")
            assert path in (await condition(cluster))[2]
        (root / "source" / "stolen.yaml").symlink_to(tmp_path / "secret.yaml")
        await cluster.client.patch(SYNC, "site", {"spec": {"path": "source"}}, "default")
        await cluster.sleep(1)
        assert (await condition(cluster))[0] == "True"
        assert await names(cluster) == set()
