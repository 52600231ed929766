"""Repeats recorded inputs in virtual time: the loops act anew, and must arrive at the same state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from setpoint.client import Client
from setpoint.cluster.cluster_copy import ClusterCopy
from setpoint.cluster.snapshot_file import Input, StoredChange
from setpoint.cluster.virtual.conditions import owner_of
from setpoint.cluster.virtual.simulation import Livelock, simulation
from setpoint.cluster.virtual.stored_state import state_differences
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import ApiError, NotFound

_SETTLE_WITHIN = 3600.0
_LAG = 15.0
"""Seconds without a write after which the copy has caught up with the end of a recording."""


@dataclass(slots=True)
class ReplayResult:
    """The outcome of a replay."""

    inputs: int = 0
    """The number of inputs that were repeated."""
    refused: list[str] = field(default_factory=list)
    """The inputs that were refused, with the reason."""
    settled: bool = True
    same: bool | None = None
    """Whether the state at the end is the recorded one; None if the recording has none."""
    difference: str = ""
    """How the two differ."""
    digest: str = ""
    """A digest of all writes. The same file and version give the same digest."""


async def replay_inputs(
    copy: ClusterCopy,
    changes: Sequence[StoredChange],
    final: Mapping[str, bytes],
    ended_at: int = 0,
    *,
    until: int = 0,
    interrupted: Callable[[], bool] = lambda: False,
) -> ReplayResult:
    """Start from a copy, repeat the inputs at their moments, and compare the end. Requires a virtual loop.

    With `until`, inputs after that revision are left out, and nothing is compared. Raises Interrupted."""
    result = ReplayResult()
    async with simulation(copy, interrupted=interrupted) as running:
        repeater = _Repeater(running.client)

        async def wait_until(milliseconds: int) -> None:
            moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
            await running.advance((moment - running.clock.now()).total_seconds())

        try:
            for change in changes:
                if until and change.revision > until:
                    break
                await wait_until(change.at)
                for each in change.inputs:
                    result.inputs += 1
                    try:
                        await repeater.repeat(each)
                    except ApiError as error:
                        result.refused.append(f"{each.do} {each.key} of revision {change.revision}: {error.message}")
            if until:
                result.settled = await running.settle(_SETTLE_WITHIN)
            else:
                await wait_until(ended_at)
                result.same, result.difference = _compared(final, running.state())
                if result.same is not True:
                    # The copy may lag behind. What the original had not waited for at the end would be a difference.
                    result.settled = await running.settle(_SETTLE_WITHIN, _LAG)
                    result.same, result.difference = _compared(final, running.state())
        except Livelock as error:
            result.settled, result.same, result.difference = False, False, str(error)
        result.digest = running.embedded.write_log.digest().hexdigest()
    return result


def _compared(final: Mapping[str, bytes], state: Mapping[str, bytes]) -> tuple[bool | None, str]:
    if not final:
        return None, ""
    text = state_differences(final, state)
    return not text, text


class _Repeater:
    """Sends the requests of inputs."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._names: dict[str, str] = {}
        """The names of the objects that stand for recorded ones with generated names, by recorded key."""

    async def repeat(self, wanted: Input) -> None:
        """Send a request. If its object does not exist, it is sent for another object of the same owner that stands
        for no other recorded one. Raises ApiError."""
        resource, namespace, name = await place_of(self._client, wanted.key)
        try:
            await self._send(wanted, resource, namespace, self._names.get(wanted.key, name))
        except NotFound:
            if not wanted.owner or wanted.key in self._names:
                raise
            found = (await self._client.list(resource, namespace)).items
            alike = sorted(each["metadata"]["name"] for each in found if owner_of(each) == wanted.owner)
            free = [each for each in alike if each not in self._names.values()]
            if not free:
                raise
            self._names[wanted.key] = free[0]
            await self._send(wanted, resource, namespace, free[0])

    async def _send(self, wanted: Input, resource: Resource, namespace: str, name: str) -> None:
        body: Any = wanted.body
        client = self._client
        match wanted.do:
            case "create":
                await client.create({"apiVersion": resource.api_version, "kind": resource.kind, **body})
            case "patch":
                await client.patch(resource, name, body, namespace)
            case "status":
                await client.patch(resource, name, body, namespace, subresource="status")
            case "bind":
                target = {"apiVersion": "v1", "kind": "Node", "name": str(body.get("node", ""))}
                meta = {"name": name, "namespace": namespace}
                binding = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
                await client.create(binding, resource=resource, subresource="binding", name=name)
            case "delete":
                grace, propagation = body.get("gracePeriodSeconds"), body.get("propagationPolicy", "")
                await client.delete(resource, name, namespace, grace_period=grace, propagation=propagation)


async def place_of(client: Client, key: str) -> tuple[Resource, str, str]:
    """Return the resource, namespace and name of a key. Raises NotFound."""
    group, plural, rest = key.split("/", 2)
    found = await client.discovery.search(plural if group == "core" else f"{plural}.{group}")
    namespace, _, name = rest.rpartition("/")
    return found, namespace, name
