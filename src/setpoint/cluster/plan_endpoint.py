"""`POST /setpoint/v1/plan`: predicts what a change would do, on a copy of the cluster in virtual time.

    {"changes": [{"type": "stop", "node": "node-2"}], "until": 360, "keep": "what-if"}
    {"changes": [...], "until": "settled", "faults": {"controllers": "drop-watch:1+conflict:2"}}

`until` is a number of seconds, or `settled`. The copy is of the state now, of a moment of the past (`at`), or of a
virtual fork (`fork`). `faults` are injected between components of the copy and its API server (`view/fault_plan.py`);
GET lists what is possible. With `keep`, a virtual fork of this name shows the end, instead of one that had the name
before. The answer has the prediction (`view/plan.py`), as values and in words, and the requests of which the change
consists: a client sends them to make the change to the cluster itself. The copy has all objects and the change is made
by an administrator, so the right to this path is an administrator's.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from setpoint.apiserver.bodies import check_fields, json_object
from setpoint.apiserver.error_responses import METHOD_NOT_ALLOWED
from setpoint.apiserver.negotiate import JSON
from setpoint.apiserver.request_context import RequestContext
from setpoint.cluster.cluster_copy import ClusterCopy
from setpoint.cluster.forks import Forks
from setpoint.cluster.virtual.change import ChangeRequest, check_changes, make, requests_of, stopped_nodes
from setpoint.cluster.virtual.component_faults import requested_faults
from setpoint.cluster.virtual.plan import plan
from setpoint.cluster.virtual.simulation import Interrupted, Simulation
from setpoint.cluster.virtual.time import run_virtual
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, BadRequest, MethodNotAllowed, ServiceUnavailable
from setpoint.view.fault_plan import COMPONENTS, Plan, possible_in_copies
from setpoint.view.plan import PlanResult, as_json, report
from setpoint.wire.message import Answer, Response

_FIELDS: Final[dict[str, type | tuple[type, ...]]] = {
    "changes": list,
    "until": (str, int, float),
    "at": str,
    "fork": str,
    "keep": str,
    "namespace": str,
    "faults": dict,
}
_MAX_SECONDS = 366 * 24 * 3600.0
_MAX_VALUES = 2_000
"""The number of changes and events that an answer has as values."""


class _Outcome(NamedTuple):
    result: PlanResult
    end: ClusterCopy | None
    """The state at the end; None if the simulation did not get there."""
    requests: list[ChangeRequest]


class PlanEndpoint:
    def __init__(self, forks: Forks, clock: Clock) -> None:
        self._forks = forks
        self._clock = clock

    async def answer(self, ctx: RequestContext) -> Answer:
        if ctx.request.method == "GET":
            return _json({"components": [*COMPONENTS], "faults": possible_in_copies()})
        if ctx.request.method != "POST":
            raise MethodNotAllowed(METHOD_NOT_ALLOWED, details={})
        wanted = json_object(ctx)
        check_fields(wanted, _FIELDS)
        changes, until = check_changes(wanted.get("changes", [])), _until(wanted.get("until", "settled"))
        faults = requested_faults(wanted)
        if wanted.get("at") and wanted.get("fork"):
            raise BadRequest("say at or fork, not both")
        began = self._clock.monotonic()
        if wanted.get("fork"):
            copy = self._forks.state_of(wanted["fork"])
        else:
            copy = await self._forks.copy(wanted.get("at", ""), ctx.now)
        outcome = await self._simulated(copy, changes, until, faults)
        result, namespace = outcome.result, wanted.get("namespace") or "default"
        found = as_json(result)
        for name in ("changes", "events", "firstLook"):
            found[name] = found[name][:_MAX_VALUES]
        fork = None
        if wanted.get("keep") and outcome.end is not None:
            fork = self._forks.described(await self._forks.put(wanted["keep"], outcome.end, copy.revision, ctx.now))
        answer = {
            **found,
            "revision": copy.revision,
            "objects": len(copy.objects),
            "report": report(result, namespace),
            "requests": [each.to_json() for each in outcome.requests],
            "fork": fork,
            "took": round(self._clock.monotonic() - began, 3),
        }
        return _json(answer)

    async def _simulated(
        self,
        copy: ClusterCopy,
        changes: Sequence[Mapping[str, Any]],
        until: float | None,
        faults: Mapping[str, Plan],
    ) -> _Outcome:
        ended = threading.Event()
        is_ending = self._forks.is_ending

        def interrupted() -> bool:
            return ended.is_set() or is_ending()

        async with self._forks.advancing:
            try:
                return await asyncio.to_thread(run_virtual, _predicted, copy, changes, until, faults, interrupted)
            except Interrupted:
                raise ServiceUnavailable("the server is stopping") from None
            finally:
                ended.set()  # the thread ends too if the client is gone


async def _predicted(
    copy: ClusterCopy,
    changes: Sequence[Mapping[str, Any]],
    until: float | None,
    faults: Mapping[str, Plan],
    interrupted: Callable[[], bool],
) -> _Outcome:
    kept: list[ClusterCopy] = []
    requests: list[ChangeRequest] = []

    async def change(simulation: Simulation) -> list[str]:
        requests.clear()  # of an earlier run
        for each in changes:
            try:
                requests.extend(await requests_of(simulation.client, each))
            except ApiError:
                continue  # `make` reports it
        return await make(simulation.client, simulation.clock, changes)

    result = await plan(
        copy,
        change,
        until=until,
        stopped=stopped_nodes(changes),
        interrupted=interrupted,
        keep=kept.append,
        faults=faults,
    )
    return _Outcome(result, kept[0] if kept else None, requests)


def _json(found: dict[str, Any]) -> Response:
    return Response(200, orjson.dumps(found), [("Content-Type", JSON)])


def _until(found: Any) -> float | None:
    if found == "settled":
        return None
    if isinstance(found, str) or not 0 < found <= _MAX_SECONDS:
        raise BadRequest(f"until must be settled, or up to {_MAX_SECONDS:.0f} seconds")
    return float(found)
