"""With any single fault, the cluster ends with the content of the source."""

from __future__ import annotations

import tempfile
from pathlib import Path

from examples.gitops import Sources, Sync, gitops_operator

from setpoint.meta.objects import Obj
from setpoint.sdk import Operator
from setpoint.testing import Exploration, VirtualCluster

SYNC, CONFIG_MAP = Sync.ref, ("v1", "ConfigMap")
CONFIG = "{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {colour: %s}}"


class Source:
    """A directory of its own for each run."""

    def __init__(self) -> None:
        self._keep = tempfile.TemporaryDirectory()
        self.root = Path(self._keep.name)
        (self.root / "source").mkdir()

    def write(self, name: str, colour: str) -> None:
        (self.root / "source" / f"{name}.yaml").write_text(CONFIG % (name, colour))

    def remove(self, name: str) -> None:
        (self.root / "source" / f"{name}.yaml").unlink()

    def state(self) -> None:
        return None


def operator(source: Source) -> Operator:
    return gitops_operator(Sources(source.root, source.root / "copies"))


async def colours(cluster: VirtualCluster) -> Obj:
    found = await cluster.all(CONFIG_MAP)
    return {each["metadata"]["name"]: each["data"]["colour"] for each in found if "colour" in each.get("data", {})}


async def story(cluster: VirtualCluster, source: Source) -> None:
    async def holds(**expected: str) -> bool:
        found = await cluster.client.get(SYNC, "site", "default")
        done = found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]
        return done and await colours(cluster) == expected

    source.write("one", "blue")
    source.write("two", "blue")
    meta = {"name": "site", "namespace": "default"}
    spec = {"path": "source", "interval": "30s"}
    await cluster.client.create({"apiVersion": SYNC[0], "kind": SYNC[1], "metadata": meta, "spec": spec})
    await cluster.until(lambda: holds(one="blue", two="blue"), within=300, every=5)
    await cluster.client.patch(CONFIG_MAP, "one", {"data": {"colour": "red"}}, "default")
    await cluster.until(lambda: holds(one="blue", two="blue"), within=300, every=5)
    source.remove("two")
    source.write("three", "green")
    await cluster.until(lambda: holds(one="blue", three="green"), within=300, every=5)
    # It leaves the source as soon as it is made: also one who did not live to note that it made it has to clean up.
    source.write("four", "grey")
    await cluster.until(lambda: cluster.find(CONFIG_MAP, "four"), within=300, every=0.5)
    source.remove("four")


def exploration() -> Exploration:
    return Exploration(operator, story, outside=Source, controllers=(), scheduler=False)


def test_the_cluster_equals_the_source() -> None:
    found = exploration()
    found.explore(faults=("crash-before",))
    found.explore(limit=4)  # a few of all others
