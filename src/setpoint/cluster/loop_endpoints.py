"""`/setpoint/v1/loops`: the control loops of this process, and the gates that hold them back.

    GET  /setpoint/v1/loops                   all loops: queues, reconciles in work, back-off, rates, modes
    GET  /setpoint/v1/loops?watch=true        the same, then what changes, as lines of JSON, at most four each second
    GET  /setpoint/v1/loops?runs=NAME         also the latest reconciles of one loop
    GET  /setpoint/v1/loops?informers=true    also what the informers of the loops have received, and their errors
    POST /setpoint/v1/loops                   {"action": "pause", "loop": "replicaset-controller"}

Actions are `pause`, `resume`, `step` (with `key`, or the next one), `slow` (with `every`, in seconds), `break` (with
`loop`, `kind` or `key`), `clear` (with the `number` of a breakpoint, or all) and `renew`. Without a loop they concern
all. Every one of them renews the hold: ten minutes after the last, all loops run again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

import orjson

from setpoint.apiserver.bodies import check_fields, json_object
from setpoint.apiserver.error_responses import METHOD_NOT_ALLOWED
from setpoint.apiserver.negotiate import JSON
from setpoint.apiserver.request_context import RequestContext, truthy
from setpoint.meta.clock import Clock
from setpoint.meta.errors import BadRequest, Conflict, MethodNotAllowed, NotFound
from setpoint.meta.times import unix_milliseconds
from setpoint.reconcile.gate import HOLD_SECONDS, Mode
from setpoint.reconcile.loop_board import LoopBoard
from setpoint.tasks import first_completed
from setpoint.wire.message import Answer, Response, StreamResponse, StreamWriter

_PERIOD = 0.25
"""Seconds between two messages of a stream."""
_MAX_BUFFERED = 1 << 20
_MAX_EVERY = 300.0
_FIELDS: Final[dict[str, type | tuple[type, ...]]] = {
    "action": str,
    "loop": str,
    "key": str,
    "kind": str,
    "every": (int, float),
    "number": int,
}
_ACTIONS = ("pause", "resume", "step", "slow", "break", "clear", "renew")
_MAX_TEXT = 320
_PARTS = (
    "certificatesigningrequest-cleaner-controller",
    "legacy-serviceaccount-token-cleaner-controller",
    "podcertificaterequest-cleaner-controller",
    "pod-garbage-collector-controller",
    "serviceaccount-controller",
    "persistentvolume-binder-controller",
    "setpoint-local-provisioner-controller",
)
"""Controllers that run periodically, without a queue, or whose loops have names of their own."""


class LoopEndpoints:
    def __init__(
        self, board: LoopBoard, clock: Clock, run_gates: Callable[[], None], controllers: Collection[str] | None
    ) -> None:
        """`run_gates` starts the timers of the gates, unless they run. `controllers` are the names of the controllers
        that run or may be started; None means all."""
        self._board = board
        self._controllers = controllers
        self._clock = clock
        self._run_gates = run_gates

    async def answer(self, ctx: RequestContext) -> Answer:
        method = ctx.request.method
        if method == "POST":
            return _json(self.command(json_object(ctx), ctx.user.name))
        if method != "GET":
            raise MethodNotAllowed(METHOD_NOT_ALLOWED, details={})
        name = self._named(ctx.option("runs")) if ctx.option("runs") else ""
        if "watch" in ctx.query and truthy(ctx.option("watch")):
            return self._stream(name)
        state = self.state(name)
        if "informers" in ctx.query and truthy(ctx.option("informers")):
            state["informers"] = self._board.informers()
        return _json(state)

    def state(self, runs_of: str = "") -> dict[str, Any]:
        board = self._board
        found = {
            "now": unix_milliseconds(self._clock.now()),
            "gate": board.gate(),
            "components": board.components(),
            "loops": [*board.loops().values()],
            "deferred": self._deferred(),
        }
        return {**found, "runs": board.runs(runs_of)} if runs_of else found

    # -- watch ---------------------------------------------------------------------------------------------------------

    def _stream(self, runs_of: str) -> StreamResponse:
        async def run(writer: StreamWriter) -> None:
            await first_completed(self._send(writer, runs_of), _closed(writer))

        return StreamResponse(200, [("Content-Type", JSON)], run)

    async def _send(self, writer: StreamWriter, runs_of: str) -> None:
        """Send everything first, and then the parts that have changed."""
        sent: dict[str, bytes] = {}
        loops: dict[str, dict[str, Any]] = {}
        board = self._board
        while True:
            changed: dict[str, Any] = {}
            parts = {"gate": board.gate(), "components": board.components(), "deferred": self._deferred()}
            if runs_of:
                parts["runs"] = board.runs(runs_of)
            for name, part in parts.items():
                encoded = orjson.dumps(part)
                if sent.get(name) != encoded:
                    sent[name], changed[name] = encoded, orjson.Fragment(encoded)
            now = board.loops()
            rows = [loop for name, loop in now.items() if loops.get(name) is not loop and loops.get(name) != loop]
            removed = [name for name in loops if name not in now]
            if rows or not loops:
                changed["loops"] = rows
            if removed:
                changed["removed"] = removed
            loops = now
            if changed:
                changed["now"] = unix_milliseconds(self._clock.now())
                writer.write(orjson.dumps(changed) + b"\n")
            if writer.buffered > _MAX_BUFFERED:
                return  # the client does not read
            await self._clock.sleep(_PERIOD)
            await writer.drained()

    # -- commands ------------------------------------------------------------------------------------------------------

    def command(self, wanted: dict[str, Any], user: str) -> dict[str, Any]:
        """Execute a command and return the state of the gates. Raises ApiError."""
        check_fields(wanted, _FIELDS)
        action, key, kind = wanted.get("action"), wanted.get("key", ""), wanted.get("kind", "")
        if action not in _ACTIONS:
            raise BadRequest(f"action must be one of {', '.join(_ACTIONS)}")
        if any(len(text) > _MAX_TEXT for text in (key, kind)):
            raise BadRequest(f"key and kind must not be longer than {_MAX_TEXT} characters")
        loop = self._named(wanted["loop"]) if wanted.get("loop") else ""
        gates, found = self._board.gates, {}
        if action == "pause":
            gates.set_mode(Mode.PAUSED, loop)
        elif action == "resume":
            gates.set_mode(Mode.RUN, loop)
        elif action == "slow":
            gates.set_mode(Mode.SLOW, loop, _seconds(wanted))
        elif action == "step":
            stepped = gates.step(loop, key)
            if stepped is None:
                raise Conflict(_nothing_to_step(loop, key))
            found["stepped"] = {"loop": stepped[0], "key": stepped[1]}
        elif action == "break":
            if not (loop or kind or key):
                raise BadRequest("a breakpoint needs a loop, a kind or a key")
            try:
                found["breakpoint"] = gates.add_breakpoint(loop, kind, key)._asdict()
            except ValueError as error:
                raise Conflict(str(error)) from None
        elif action == "clear":
            number = wanted.get("number", 0)
            if not gates.remove_breakpoint(number) and number:
                raise NotFound(f"there is no breakpoint {number}")
        gates.renew()
        self._run_gates()
        if action != "renew":
            gates.by = user
        return {**found, "holdSeconds": HOLD_SECONDS, "gate": self._board.gate()}

    def _named(self, name: str) -> str:
        """Return the full name of a loop. Raises NotFound."""
        names = {*self._board.names(), *self._deferred()}
        for candidate in (name, f"{name}-controller", f"kube-{name}"):
            if candidate in names:
                return candidate
        raise NotFound(f"there is no control loop {name[:63]}; there are {', '.join(sorted(names))}")

    def _deferred(self) -> list[str]:
        """Return the names of controllers that start when the first object of their kinds exists."""
        from setpoint.controllers.builtin import CONTROLLERS, OFF_BY_DEFAULT  # few requests need it

        running, chosen = {*self._board.names(), *_PARTS}, self._controllers
        if chosen is None:
            chosen = [name for name in CONTROLLERS if name not in OFF_BY_DEFAULT]
        return [name for name in chosen if name in CONTROLLERS and name not in running]


def _nothing_to_step(loop: str, key: str) -> str:
    where = f"of {loop}" if loop else "of any loop"
    return f"{key} is not in the queue {where}" if key else f"the queue {where} is empty"


def _seconds(wanted: dict[str, Any]) -> float:
    every = float(wanted.get("every", 1.0))
    if not 0.05 <= every <= _MAX_EVERY:
        raise BadRequest(f"every must be from 0.05 to {_MAX_EVERY:g} seconds")
    return every


async def _closed(writer: StreamWriter) -> None:
    await writer.closed()


def _json(found: dict[str, Any]) -> Response:
    return Response(200, orjson.dumps(found), [("Content-Type", JSON)])
