"""`/setpoint/v1/faults`: faults that users inject into the cluster, to see how it copes with them.

    GET  /setpoint/v1/faults     what is possible, and what is in effect
    POST /setpoint/v1/faults     {"fault": "node-stop", "node": "node-2"}
    POST /setpoint/v1/faults     {"undo": "f3"}

A fault is a request of the user who injects it, with the user's own rights, or a command to a component of this
process. An Event records each with its author, also in the history. Every fault can be undone or ends by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import orjson

from setpoint.apiserver.api_resources import CacheReader
from setpoint.apiserver.bodies import check_fields, json_object
from setpoint.apiserver.error_responses import METHOD_NOT_ALLOWED
from setpoint.apiserver.negotiate import JSON
from setpoint.apiserver.request_context import RequestContext
from setpoint.client import Client
from setpoint.cluster.fault_actions import Effect, FaultActions, is_simulated
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import ApiError, BadRequest, Conflict, MethodNotAllowed, NotFound
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.times import format_time, unix_milliseconds
from setpoint.node.simulation_annotations import PARTITIONED, STATE, STOPPED
from setpoint.tasks import TaskRegistry
from setpoint.view.faults import COMPONENTS, FAULTS, MAX_SECONDS, FaultKind, fault_sentence
from setpoint.wire.message import Answer, Response

if TYPE_CHECKING:
    from setpoint.apiserver.server import ApiServer
    from setpoint.cluster.components import Components

log = logging.getLogger("setpoint.cluster")

_MAX_ACTIVE = 200
_MAX_TEXT = 320
_TYPES: Final[dict[str, type | tuple[type, ...]]] = {
    "fault": str,
    "undo": str,
    "node": str,
    "namespace": str,
    "pod": str,
    "container": str,
    "image": str,
    "component": str,
    "seconds": (int, float),
    "milliseconds": int,
    "percent": int,
    "code": int,
}
_RANGES: Final = {"seconds": (1, MAX_SECONDS), "milliseconds": (1, 10_000), "percent": (1, 100), "code": (0, 255)}
_NODE_STATES: Final = {STOPPED: "node-stop", PARTITIONED: "node-partition"}


@dataclass(slots=True)
class ActiveFault:
    """A fault that is in effect."""

    id: str
    fault: str
    args: dict[str, Any]
    by: str
    since: datetime | None
    """When it was injected; None if that is not known."""
    effect: Effect

    @property
    def until(self) -> datetime | None:
        if self.since is None or not self.effect.seconds:
            return None
        return self.since + timedelta(seconds=self.effect.seconds)

    @property
    def target(self) -> tuple[str, ...]:
        """Distinguishes it from other faults, whatever their numbers are."""
        return (self.fault, *(str(self.args.get(name, "")) for name in _TYPES if name not in _RANGES))

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "fault": self.fault,
            "title": FAULTS[self.fault].title,
            "args": self.args,
            "by": self.by,
            "text": f"{fault_sentence(self.fault, self.args)}{self.effect.note}",
            "since": 0 if self.since is None else unix_milliseconds(self.since),
            "until": 0 if self.until is None else unix_milliseconds(self.until),
            "undo": self.effect.undo is not None,
        }


class FaultEndpoints:
    def __init__(
        self,
        api: ApiServer,
        components: Components,
        clock: Clock,
        ids: Ids,
        client_of: Callable[[UserInfo], Client],
    ) -> None:
        """`client_of` returns a client with the rights of a user who was authenticated already."""
        self._actions = FaultActions(api, components, clock, ids)
        self._reader = CacheReader(api.resources)
        self._clock = clock
        self._client_of = client_of
        self._active: dict[str, ActiveFault] = {}
        self._number = 0
        self._timers = TaskRegistry()
        self._lock = asyncio.Lock()
        """Held while a fault is injected or ended: components must not be started and stopped at once."""

    async def stop(self) -> None:
        await self._timers.stop()

    async def answer(self, ctx: RequestContext) -> Answer:
        if ctx.request.method == "GET":
            return _json(self.state())
        if ctx.request.method != "POST":
            raise MethodNotAllowed(METHOD_NOT_ALLOWED, details={})
        body = json_object(ctx)
        check_fields(body, _TYPES)
        if "undo" in body:
            return _json({"ended": await self._undo(body["undo"], ctx.user)})
        fault, args = _checked(body)
        async with self._lock:
            return _json(await self._inject(fault, args, ctx.user), 201)

    def state(self) -> dict[str, Any]:
        nodes = [*self._reader.list("", "nodes")]
        return {
            "now": unix_milliseconds(self._clock.now()),
            "possible": [each.to_json() for each in FAULTS.values()],
            "active": [each.to_json() for each in self.active()],
            "components": [*COMPONENTS],
            "simulatedNodes": sum(map(is_simulated, nodes)),
            "realNodes": sum(not is_simulated(each) for each in nodes),
        }

    def active(self) -> list[ActiveFault]:
        """Return the faults that are in effect, the newest first."""
        for each in tuple(self._active.values()):
            if not each.effect.holds():
                del self._active[each.id]
        return [*reversed(self._active.values()), *self._stopped_nodes()]

    def _stopped_nodes(self) -> list[ActiveFault]:
        """Return the nodes that were stopped otherwise, such as by `setpoint nodes stop`."""
        known = {each.args.get("node") for each in self._active.values()}
        found = []
        for node in self._reader.list("", "nodes"):
            name = node["metadata"]["name"]
            fault = _NODE_STATES.get((node["metadata"].get("annotations") or {}).get(STATE, ""))
            if fault is not None and name not in known:
                effect = Effect(self._actions.node_started(name))
                found.append(ActiveFault(f"node:{name}", fault, {"node": name}, "", None, effect))
        return found

    # -- commands ------------------------------------------------------------------------------------------------------

    async def _inject(self, fault: FaultKind, args: dict[str, Any], user: UserInfo) -> dict[str, Any]:
        if len(self._active) >= _MAX_ACTIVE:
            raise Conflict(f"there are {_MAX_ACTIVE} faults already; undo some first")
        client = self._client_of(user)
        effect = await self._actions.inject(fault.id, client, args)
        self._number += 1
        found = ActiveFault(f"f{self._number}", fault.id, args, user.name, self._clock.now(), effect)
        for other in tuple(self._active.values()):
            if other.target == found.target:
                del self._active[other.id]
        if effect.undo is not None:
            self._active[found.id] = found
            if effect.seconds:
                self._timers.start(self._expire(found))
        log.warning("fault injected by %s: %s", user.name, found.to_json()["text"])
        await self._record(client, found, "FaultInjected", f"{user.name} {found.to_json()['text']}")
        return {"injected": found.to_json(), "active": [each.to_json() for each in self.active()]}

    async def _undo(self, wanted: str, user: UserInfo) -> dict[str, Any]:
        async with self._lock:
            found = next((each for each in self.active() if each.id == wanted), None)
            if found is None or found.effect.undo is None:
                raise NotFound(f"the fault {wanted[:63]} is not in effect")
            client = self._client_of(user)
            await found.effect.undo(client)
            self._active.pop(found.id, None)
            log.warning("fault undone by %s: %s", user.name, found.to_json()["text"])
            text = f"{user.name} ended what {found.by or 'a user'} did: {found.to_json()['text']}"
            await self._record(client, found, "FaultEnded", text)
            return found.to_json()

    async def _expire(self, fault: ActiveFault) -> None:
        await self._clock.sleep(fault.effect.seconds)
        async with self._lock:
            if self._active.pop(fault.id, None) is not None and fault.effect.expire is not None:
                await fault.effect.expire()

    async def _record(self, client: Client, fault: ActiveFault, reason: str, message: str) -> None:
        """Write an Event about a fault as the user. A failure does not matter: the fault is in effect."""
        about = fault.effect.about
        if about is None and "component" in fault.args:
            lease = COMPONENTS[fault.args["component"]]
            about = self._reader.get("coordination.k8s.io", "leases", "kube-system", lease)
            about = about and {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", **about}
        try:
            await client.create(self._event(about, fault, reason, message))
        except ApiError as error:
            log.warning("no Event records the fault: %s", error)

    def _event(self, about: ObjView | None, fault: ActiveFault, reason: str, message: str) -> Obj:
        meta = (about or {}).get("metadata") or {"name": "kube-system"}
        namespace = meta.get("namespace") or "default"
        if about is None:
            about = {"kind": "Namespace", "apiVersion": "v1"}
        now = self._clock.now()
        stamp = format_time(now)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"fault-{fault.id}-{reason.lower()}-{unix_milliseconds(now)}",
                "namespace": namespace,
            },
            "involvedObject": {
                "kind": about.get("kind", ""),
                "apiVersion": about.get("apiVersion", ""),
                "name": meta["name"],
                **{key: meta[key] for key in ("namespace", "uid") if meta.get(key)},
            },
            "reason": reason,
            "message": message[:1000],
            "type": "Warning" if reason == "FaultInjected" else "Normal",
            "source": {"component": "fault-injection"},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }


def _checked(body: dict[str, Any]) -> tuple[FaultKind, dict[str, Any]]:
    """Return the fault of a request and its arguments, with defaults. Raises BadRequest."""
    fault = FAULTS.get(body.get("fault", ""))
    if fault is None:
        raise BadRequest(f"fault must be one of {', '.join(FAULTS)}")
    args: dict[str, Any] = {}
    for name in fault.fields:
        if not body.get(name):
            raise BadRequest(f"the fault {fault.id} needs the field {name}")
    for name, value in {**fault.options, **body}.items():
        if name == "fault":
            continue
        if name not in fault.fields and name not in fault.options:
            raise BadRequest(f"the fault {fault.id} has no field {name}")
        if isinstance(value, str) and (len(value) > _MAX_TEXT or ("/" in value and name != "image")):
            raise BadRequest(f"{name} must be a name")
        if name in _RANGES and not _RANGES[name][0] <= value <= _RANGES[name][1]:
            low, high = _RANGES[name]
            raise BadRequest(f"{name} must be from {low:g} to {high:g}")
        args[name] = value
    return fault, args


def _json(found: dict[str, Any], status: int = 200) -> Response:
    return Response(status, orjson.dumps(found), [("Content-Type", JSON)])
