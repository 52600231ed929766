"""Pods, listers and managers for tests of the volumes of real nodes."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from host_pods import UID, make_pod
from stopped_clock import StoppedClock

from setpoint.kinds.typed import Pod
from setpoint.meta.clock import Clock
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.times import format_time
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.directories import NodeDirectories
from setpoint.node.host.volumes.builder import NodeIdentity
from setpoint.node.host.volumes.container_mounts import VolumeFeatures
from setpoint.node.host.volumes.interface import SetUpError
from setpoint.node.host.volumes.manager import VolumeManager
from setpoint.node.host.volumes.pod_certificates import Credentials, CredentialsReader
from setpoint.node.host.volumes.tokens import TokenRequester
from setpoint.node.pod_status import PodState

__all__ = [
    "UID",
    "InstantClock",
    "Objects",
    "Provider",
    "claim",
    "config_map",
    "manager",
    "no_credentials",
    "persistent",
    "pod_with",
    "secret",
    "tokens",
]


@dataclass
class Objects:
    """A lister over plain dicts, keyed by name: all objects are in one namespace."""

    config_maps: dict[str, Obj] = field(default_factory=dict)
    secrets: dict[str, Obj] = field(default_factory=dict)
    bundles: list[Obj] = field(default_factory=list)
    claims: dict[str, Obj] = field(default_factory=dict)
    volumes: dict[str, Obj] = field(default_factory=dict)

    def config_map(self, namespace: str, name: str) -> ObjView | None:
        return self.config_maps.get(name)

    def secret(self, namespace: str, name: str) -> ObjView | None:
        return self.secrets.get(name)

    def trust_bundles(self) -> list[ObjView]:
        return [*self.bundles]

    def claim(self, namespace: str, name: str) -> ObjView | None:
        return self.claims.get(name)

    def volume(self, name: str) -> ObjView | None:
        return self.volumes.get(name)


class InstantClock(StoppedClock):
    """A clock on which time passes only by sleeping, which takes no time."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._elapsed += seconds


class Provider:
    def __init__(self, **allocatable: str) -> None:
        self._state = PodState("10.0.0.1", allocatable=allocatable)

    @property
    def pod_state(self) -> PodState:
        return self._state


def config_map(**data: str) -> Obj:
    return {"metadata": {"name": "m"}, "data": data}


def secret(**data: bytes) -> Obj:
    return {"metadata": {"name": "s"}, "data": {key: b64encode(value).decode() for key, value in data.items()}}


def claim(volume: str = "pv", phase: str = "Bound", **changes: Any) -> Obj:
    return {
        "metadata": {"name": "c", "namespace": "shop", "uid": "claim-uid", **changes},
        "spec": {"volumeName": volume},
        "status": {"phase": phase},
    }


def persistent(name: str = "pv", annotations: dict[str, str] | None = None, **spec: Any) -> Obj:
    meta = {"name": name, "annotations": annotations or {}}
    return {"metadata": meta, "spec": {"claimRef": {"uid": "claim-uid"}, "accessModes": ["ReadWriteOnce"], **spec}}


def pod_with(*volumes: Obj, mounts: list[Obj] | None = None, uid: str = UID, **spec: Any) -> Pod:
    """Return a Pod whose container mounts each of the volumes at the path of its name."""
    default = [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in volumes]
    container = {"volumeMounts": default if mounts is None else mounts}
    return make_pod(container, metadata={"uid": uid}, volumes=[*volumes], **spec)


def tokens(clock: Clock, *, seconds: int = 3600, asked: list[Obj] | None = None) -> TokenRequester:
    """Return a function that issues tokens named `token-1`, `token-2` and so on."""
    count = 0

    async def request(namespace: str, account: str, body: Obj) -> ObjView:
        nonlocal count
        count += 1
        if asked is not None:
            asked.append({"namespace": namespace, "account": account, **body["spec"]})
        expires = clock.now().timestamp() + seconds
        text = format_time(clock.now().fromtimestamp(expires, clock.now().tzinfo))
        return {
            "spec": {"expirationSeconds": seconds},
            "status": {"token": f"token-{count}", "expirationTimestamp": text},
        }

    return request


def no_credentials(pod: Pod, volume: str, index: int) -> Credentials:
    raise SetUpError("credential bundle is not issued yet")


@contextmanager
def manager(
    directory: Path,
    objects: Objects | None = None,
    clock: Clock | None = None,
    features: Callable[[], VolumeFeatures] = VolumeFeatures,
    labels: dict[str, str] | None = None,
    credentials: CredentialsReader = no_credentials,
) -> Iterator[VolumeManager]:
    time = clock or InstantClock()
    pool = BlockingPool(2)
    directories = NodeDirectories(directory / "node", directory / "logs", directory / "run")
    node = NodeIdentity("node-1", lambda: labels or {})
    try:
        yield VolumeManager(directories, pool, time, objects or Objects(), tokens(time), credentials, node, features)
    finally:
        pool.close()
