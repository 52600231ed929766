"""A volume is never bound to two claims, in any order of events and with any crash of the binder.

Users make and delete claims and volumes at random; the controllers crash after random writes, and what they see comes
late, twice and in pieces. The promise is checked at every single revision; that everything has found its place, when it
is quiet again.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from crashing import Crashing

from setpoint.client.resources import builtin
from setpoint.cluster.virtual.link import Proceed, Write
from setpoint.meta.errors import AlreadyExists, Conflict, Forbidden, NotFound
from setpoint.meta.objects import Obj
from setpoint.store.interface import Event
from setpoint.testing import VirtualCluster, run_virtual, virtual_cluster

CLAIMS, VOLUMES = builtin("persistentvolumeclaims"), builtin("persistentvolumes")
CONTROLLERS = [
    "persistentvolume-binder-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "setpoint-local-provisioner-controller",
]
_ACTIONS = 40
_NAMES = 8


class Watchman:
    """Sees every revision in the moment it is made."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self.claims: dict[str, Obj] = {}
        self.volumes: dict[str, Obj] = {}
        self.wrong: list[str] = []
        self.bound = 0
        store = cluster.embedded.store
        store.watch("", store.revision, self._see)

    def _see(self, events: Sequence[Event], revision: int) -> None:
        for event in events:
            for prefix, kept in (("persistentvolumeclaims/", self.claims), ("persistentvolumes/", self.volumes)):
                if not event.key.startswith(f"core/{prefix}"):
                    continue
                name = event.key.removeprefix(f"core/{prefix}")
                if event.now is None:
                    kept.pop(name, None)
                else:
                    before, kept[name] = kept.get(name), json.loads(event.now.value)
                    if kept is self.claims:
                        self._check_claim(before, kept[name])
                    else:
                        self._check_volume(before, kept[name])

    def _check_claim(self, before: Obj | None, claim: Obj) -> None:
        if not is_bound(claim) or (before is not None and is_bound(before)):
            return
        self.bound += 1
        name, uid = claim["spec"]["volumeName"], claim["metadata"]["uid"]
        volume = self.volumes.get(name)
        if volume is not None and (volume["spec"].get("claimRef") or {}).get("uid") != uid:
            self.wrong.append(f"{name} is bound to by {claim['metadata']['name']}, and is not its own")
        others = [
            other["metadata"]["name"]
            for other in self.claims.values()
            if is_bound(other) and other["spec"]["volumeName"] == name and other["metadata"]["uid"] != uid
        ]
        if others:
            self.wrong.append(f"{name} is bound to by {claim['metadata']['name']} and by {others}")

    def _check_volume(self, before: Obj | None, volume: Obj) -> None:
        """It is not taken from one claim for another."""
        old, new = (((each or {"spec": {}})["spec"].get("claimRef") or {}).get("uid") for each in (before, volume))
        if before is not None and before["metadata"]["uid"] == volume["metadata"]["uid"] and old and new and old != new:
            self.wrong.append(f"{volume['metadata']['name']} was taken from {old} for {new}")


def is_bound(claim: Obj) -> bool:
    return bool((claim.get("status") or {}).get("phase") == "Bound")


def a_claim(name: str, chance: random.Random) -> Obj:
    spec: Obj = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": f"{chance.choice((1, 1, 2))}Gi"}},
        "storageClassName": chance.choice(("", "", "", "now")),
    }
    if chance.random() < 0.15:
        spec["volumeName"] = f"disk-{chance.randrange(_NAMES)}"
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}


def a_volume(name: str, chance: random.Random) -> Obj:
    spec: Obj = {
        "capacity": {"storage": f"{chance.choice((1, 2, 3))}Gi"},
        "accessModes": ["ReadWriteOnce", "ReadWriteMany"][: chance.choice((1, 2))],
        "hostPath": {"path": "/tmp/x"},
        "persistentVolumeReclaimPolicy": chance.choice(("Retain", "Delete")),
    }
    if chance.random() < 0.15:
        spec["claimRef"] = {"namespace": "default", "name": f"claim-{chance.randrange(_NAMES)}"}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


async def act(cluster: VirtualCluster, chance: random.Random) -> None:
    claim, volume = f"claim-{chance.randrange(_NAMES)}", f"disk-{chance.randrange(_NAMES)}"
    drawn = chance.random()
    with suppress(NotFound, AlreadyExists, Conflict):
        if drawn < 0.35:
            await cluster.client.create(a_claim(claim, chance))
        elif drawn < 0.65:
            await cluster.client.create(a_volume(volume, chance))
        elif drawn < 0.85:
            await cluster.client.delete(CLAIMS, claim, "default")
        elif drawn < 0.9:
            await cluster.client.delete(VOLUMES, volume)
        else:
            found = await cluster.client.get(VOLUMES, volume)
            if (found.get("status") or {}).get("phase") == "Released":
                found["spec"].pop("claimRef", None)  # its data may be reused
                await cluster.client.update(found)


async def dying(cluster: VirtualCluster, chance: random.Random) -> None:
    """The controllers, after one write in ten."""
    link = cluster.links["controllers"]
    while True:
        died, before = asyncio.Event(), link.write_interceptor

        async def through(write: Write, proceed: Proceed, died: asyncio.Event = died, before: Any = before) -> Any:
            answer = await (proceed() if before is None else before(write, proceed))
            if write.is_counted and chance.random() < 0.1:
                link.severed = True
                died.set()
                await asyncio.Event().wait()
            return answer

        link.write_interceptor = through
        await died.wait()
        link.write_interceptor = before
        await cluster.kill("controllers")
        link.severed = False
        await cluster.sleep(chance.uniform(0, 2))
        await cluster.start("controllers")


async def disturbing(cluster: VirtualCluster, seed: int) -> None:
    async with cluster.faults(f"noise:{seed}/1h", of="controllers"):
        await cluster.sleep(3600)


def misplaced(watchman: Watchman) -> list[str]:
    """What is not where it belongs when nothing disturbs any more."""
    found = []
    for name, claim in watchman.claims.items():
        phase, volume = claim["status"]["phase"], watchman.volumes.get(claim["spec"].get("volumeName", ""))
        if phase == "Bound":
            if volume is None or (volume["spec"].get("claimRef") or {}).get("uid") != claim["metadata"]["uid"]:
                found.append(f"{name} is bound to a volume that is not its own")
            elif volume["status"]["phase"] != "Bound":
                found.append(f"the volume of {name} is {volume['status']['phase']}")
    uids = {claim["metadata"]["uid"]: claim for claim in watchman.claims.values()}
    for name, volume in watchman.volumes.items():
        uid, phase = (volume["spec"].get("claimRef") or {}).get("uid"), volume["status"]["phase"]
        if uid is None and phase != "Available":
            found.append(f"{name} is free and {phase}")
        elif uid in uids and uids[uid]["spec"].get("volumeName") != name:
            found.append(f"{name} is promised to a claim that has another")
        elif uid is not None and uid not in uids and phase not in ("Released", "Failed"):
            found.append(f"{name} is {phase} for a claim that is gone")
    free = [volume for volume in watchman.volumes.values() if not volume["spec"].get("claimRef")]
    for name, claim in watchman.claims.items():
        if claim["spec"].get("volumeName") or claim["status"]["phase"] != "Pending":
            continue
        size = int(claim["spec"]["resources"]["requests"]["storage"][0])
        if claim["spec"]["storageClassName"] == "now":
            found.append(f"nobody made a volume for {name}")
        elif any(int(volume["spec"]["capacity"]["storage"][0]) >= size for volume in free):
            found.append(f"{name} waits although there is a volume")
    return found


async def live(seed: int) -> Watchman:
    chance = random.Random(seed)
    options: Obj = {"nodes": 0, "scheduler": False, "seed": seed, "controllers": CONTROLLERS}
    async with virtual_cluster(**options) as cluster, asyncio.TaskGroup() as tasks:
        watchman = Watchman(cluster)
        await cluster.client.create(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": "now"},
                "provisioner": "setpoint.dev/local",
            }
        )
        noisy = tasks.create_task(disturbing(cluster, seed)) if seed % 3 else None
        await cluster.sleep(5)
        deadly = tasks.create_task(dying(cluster, chance))
        for _ in range(_ACTIONS):
            # Often many at once: then claims compete for the same volumes.
            await asyncio.gather(*(act(cluster, chance) for _ in range(chance.choice((1, 1, 4)))))
            await cluster.sleep(chance.choice((0, 0, 0.01, 0.5, 5)))
        for task in (noisy, deadly):
            if task is not None:
                task.cancel()
        await cluster.instant()
        link = cluster.links["controllers"]
        link.clear()
        link.severed = False
        await cluster.kill("controllers")
        await cluster.start("controllers")
        await cluster.sleep(120)
        return watchman


@pytest.mark.parametrize("seed", range(12))
def test_a_volume_is_never_bound_to_two_claims(seed: int) -> None:
    watchman = run_virtual(live, seed)
    assert not watchman.wrong
    assert not misplaced(watchman)
    assert watchman.bound, "something happened at all"


# -- a crash on the way -----------------------------------------------------------------------------------------------

SETS = builtin("statefulsets", "apps")


async def a_set_with_claims(cluster: VirtualCluster) -> None:
    """Up, a claim grows, down, one claim goes, and then the set."""
    wish = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    mounts = [{"name": "data", "mountPath": "/d"}]
    spec = {
        "serviceName": "db",
        "replicas": 2,
        "selector": {"matchLabels": {"app": "db"}},
        "template": {
            "metadata": {"labels": {"app": "db"}},
            "spec": {"containers": [{"name": "c", "image": "nginx", "volumeMounts": mounts}]},
        },
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": wish}],
    }
    meta = {"name": "db", "namespace": "default"}
    await cluster.client.create({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": spec})
    await cluster.sleep(30)
    larger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    with suppress(Forbidden):  # after a crash it may not be bound yet
        await cluster.client.patch(CLAIMS, "data-db-0", larger, "default")
    await cluster.sleep(10)
    await cluster.client.patch(SETS, "db", {"spec": {"replicas": 1}}, "default")
    await cluster.sleep(60)
    await cluster.client.delete(CLAIMS, "data-db-1", "default")
    await cluster.sleep(30)


def test_a_crash_after_any_write_does_not_change_the_end_state() -> None:
    Crashing((a_set_with_claims,)).crash("a_set_with_claims", 4)
