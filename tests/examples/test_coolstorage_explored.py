"""With any single fault, there is one bucket for each object in the end, and none without an object."""

from __future__ import annotations

from examples.coolstorage_operator import CoolStorage, ProviderClient, coolstorage_operator
from examples.coolstorage_operator.provider import Provider

from setpoint.meta.objects import Obj
from setpoint.sdk import Operator, is_true
from setpoint.testing import Exploration, VirtualClock, VirtualCluster

COOL = CoolStorage.ref


class Outside(Provider):
    """With what has to be the same in the end: how many buckets there were, and how those that are there look."""

    def __init__(self) -> None:
        super().__init__(VirtualClock().monotonic, provisioning_seconds=1.0)

    def state(self) -> Obj:
        left = sorted((each["id"], each["sizeGB"], each["versioning"]) for each in self.buckets.values())
        return {"created": self.created, "left": left}


def operator(provider: Outside) -> Operator:
    async def send(method: str, target: str, key: str, body: Obj | None) -> tuple[int, Obj]:
        return provider.answer(method, target, key, body)

    return coolstorage_operator(ProviderClient(send))


def storage(name: str) -> Obj:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": COOL[0], "kind": COOL[1], "metadata": meta, "spec": {"sizeGB": 20}}


async def story(cluster: VirtualCluster, provider: Outside) -> None:
    async def ready(name: str) -> bool:
        return is_true(await cluster.client.get(COOL, name, "default"), "Ready")

    await cluster.client.create(storage("photos"))
    await cluster.until(lambda: ready("photos"), within=300, every=2)
    await cluster.client.create(storage("films"))
    await cluster.until(lambda: ready("films"), within=300, every=2)
    await cluster.client.patch(COOL, "films", {"spec": {"versioning": True}}, "default")
    await cluster.client.delete(COOL, "photos", "default")
    await cluster.until(lambda: len(provider.buckets) == 1, within=300, every=2)
    provider.buckets["bkt-0002"]["sizeGB"] = 1


def exploration() -> Exploration:
    return Exploration(operator, story, outside=Outside, afterwards="3m", controllers=(), scheduler=False)


def test_one_bucket_for_one_object() -> None:
    found = exploration()
    found.explore(faults=("crash-before",))  # between making a bucket and noting it, for example
    found.explore(limit=4)  # a few of all others
