"""Tokens of service accounts in volumes, as the kubelet requests them: for one Pod, and while it lives.

Most simulated containers never look at theirs. So a token is requested when a program is about to run that names the
place where it would be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError

if TYPE_CHECKING:
    from setpoint.node.pod_worker import PodWorker

Obj = Mapping[str, Any]

_ACCOUNTS = builtin("serviceaccounts")
_LONGEST = 24 * 3600.0


class ServiceTokens:
    def __init__(self, client_for: Callable[[str], Client], clock: Clock) -> None:
        self._client_for = client_for
        self._clock = clock

    async def provide(self, worker: PodWorker, command: Sequence[str] = ()) -> None:
        """Before its containers start, or before a command does. One without arguments is a shell for somebody."""
        spec = worker.spec
        sources = [*_sources(spec)]
        if not sources:
            return
        said = [*(command or _programs(spec))]
        if not said:
            return
        places = {mount["name"]: mount["mountPath"] for each in _containers(spec) for mount in each["volumeMounts"]}
        now = self._clock.now().timestamp()
        for volume, source in sources:
            place, kept = places.get(volume, ""), worker.situation.tokens.get((volume, source["path"]))
            first = place.strip("/").partition("/")[0]
            looked_at = len(command) == 1 or any(first in each for each in said)
            if first and looked_at and (kept is None or now >= kept[1]):
                token = await self._request(worker, source)
                if token:
                    lasts = min(0.8 * (source.get("expirationSeconds") or 3600), _LONGEST)
                    worker.situation.tokens[(volume, source["path"])] = (token, now + lasts)

    async def _request(self, worker: PodWorker, source: Obj) -> str:
        meta = worker.pod["metadata"]
        wanted: dict[str, Any] = {
            "audiences": [source["audience"]] if source.get("audience") else [],
            "expirationSeconds": source.get("expirationSeconds") or 3600,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]},
        }
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": wanted}
        name = worker.spec.get("serviceAccountName") or "default"
        try:
            made = await self._client_for(worker.node.name).create(
                request, resource=_ACCOUNTS, namespace=meta["namespace"], name=name, subresource="token"
            )
        except ApiError:
            return ""  # the account may be gone; whoever looks finds no token
        return str(made["status"]["token"])


def _sources(spec: Obj) -> Iterator[tuple[str, Obj]]:
    for volume in spec.get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            if source.get("serviceAccountToken"):
                yield volume["name"], source["serviceAccountToken"]


def _containers(spec: Obj) -> Iterator[Obj]:
    for field in ("initContainers", "containers", "ephemeralContainers"):
        yield from (each for each in spec.get(field) or () if each.get("volumeMounts"))


def _programs(spec: Obj) -> Iterator[str]:
    for container in _containers(spec):
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        if words:
            yield from words
            yield from (each["value"] for each in container.get("env") or () if each.get("value"))
