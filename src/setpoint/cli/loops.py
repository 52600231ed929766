"""`setpoint loops`: shows the control loops of a cluster; pauses, steps and slows them down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from setpoint.cli.command import Command
from setpoint.cli.escaping import escaped
from setpoint.cli.failures import Failed
from setpoint.cli.flags import duration, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.tabwriter import align
from setpoint.meta.errors import NotFound
from setpoint.meta.times import human_duration
from setpoint.view.loops import error_lines, gate_sentence, loop_rows

PATH = "/setpoint/v1/loops"
_NONE = (
    "the control loops of this cluster cannot be watched: they run in another process, or it is not a Setpoint cluster"
)
_RENEW_SECONDS = 120.0


async def show(invocation: Invocation) -> None:
    """Print the loops, once or until Ctrl-C."""
    if len(invocation.args) > 1:
        invocation.usage("name at most one loop")
    name, watch = invocation.args[0] if invocation.args else "", invocation.flags.watch
    renewed = invocation.io.clock.monotonic()
    while True:
        found = await _read(invocation, f"runs={name}" if name else "")
        invocation.print(_described(found, name, every=invocation.flags.all))
        if not watch:
            return
        invocation.flush()
        await invocation.io.clock.sleep(invocation.flags.interval)
        if found["gate"]["until"] and invocation.io.clock.monotonic() - renewed > _RENEW_SECONDS:
            renewed = invocation.io.clock.monotonic()
            await invocation.client.sender.json("POST", PATH, body={"action": "renew"})
        invocation.print("")


async def _read(invocation: Invocation, query: str = "") -> dict[str, Any]:
    try:
        return await invocation.client.sender.json("GET", PATH, query)
    except NotFound as error:
        raise Failed(error.message if "control loop" in error.message else _NONE) from None


def _described(found: dict[str, Any], name: str, *, every: bool) -> str:
    loops, now = found["loops"], found["now"]
    if name:
        running = {run for each in loops if (run := each["name"]) in (name, f"{name}-controller", f"kube-{name}")}
        loops = [each for each in loops if each["name"] in running]
    lines = [_table(loop_rows(loops, now, every=every or bool(name)))]
    lines += ["", *errors] if (errors := error_lines(loops)) else []
    if name and found.get("runs"):
        rows = [["AGO", "KEY", "TOOK", "WRITES", "BECAUSE OF", "OUTCOME"]]
        rows += [_run(each, now) for each in found["runs"]]
        lines += ["", _table(rows)]
    sentence = gate_sentence(found["gate"], now)
    return escaped("\n".join([*lines, "", sentence] if sentence else lines))


def _table(rows: list[list[str]]) -> str:
    return align("\n".join("\t".join(row) for row in rows), least=6, padding=3)


def _run(run: dict[str, Any], now: int) -> list[str]:
    more = f" and {run['trigger_count'] - len(run['triggers'])} more" if run["trigger_count"] else ""
    revisions = ", ".join(map(str, run["triggers"])) + more
    causes = [f"revision {revisions}" if run["triggers"] else "", run["besides"]]
    return [
        human_duration(max(0.0, (now - run["at"]) / 1000)),
        run["key"] or "-",
        "runs" if run["took"] is None else f"{run['took']:.1f} ms",
        str(run["writes"]),
        ", ".join(filter(None, causes)) or "-",
        run["error"] or run["reason"] or "done",
    ]


def _commands(action: str) -> Callable[[Invocation], Awaitable[None]]:
    async def run(invocation: Invocation) -> None:
        flags: dict[str, Any] = {}
        if action == "slow":
            flags["every"] = invocation.flags.every
        names = invocation.args or [""]
        for name in names:
            await _send(invocation, {"action": action, **flags, **({"loop": name} if name else {})})
        await _print_gate(invocation)

    return run


async def step(invocation: Invocation) -> None:
    if len(invocation.args) > 2:
        invocation.usage("name a loop and a key: setpoint loops step [NAME [KEY]]")
    wanted = dict(zip(("loop", "key"), invocation.args, strict=False))
    stepped = (await _send(invocation, {"action": "step", **wanted}))["stepped"]
    invocation.print(f"{stepped['loop']} reconciles {stepped['key'] or 'what is due'}.")


async def stop_at(invocation: Invocation) -> None:
    flags, key = invocation.flags, invocation.args[0] if invocation.args else ""
    if len(invocation.args) > 1:
        invocation.usage("name at most one key: setpoint loops break [NAMESPACE/NAME]")
    if flags.clear:
        await _send(invocation, {"action": "clear"})
    else:
        wanted = {"key": key, "kind": flags.kind, "loop": flags.loop}
        await _send(invocation, {"action": "break", **{name: value for name, value in wanted.items() if value}})
    await _print_gate(invocation)


async def _send(invocation: Invocation, body: dict[str, Any]) -> dict[str, Any]:
    try:
        reply = await invocation.client.sender.request("POST", PATH, body=orjson.dumps(body))
    except NotFound as error:
        raise Failed(error.message if "control loop" in error.message else _NONE) from None
    found: dict[str, Any] = orjson.loads(reply.body)
    return found


async def _print_gate(invocation: Invocation) -> None:
    found = await _read(invocation)
    invocation.print(gate_sentence(found["gate"], found["now"]) or "All loops run.")


COMMAND = Command(
    "Show the control loops: queues, back-offs, rates; or pause, step and slow them down",
    show,
    (
        switch("watch", "w", help="Show them again and again, until Ctrl-C; paused loops stay paused meanwhile."),
        duration("interval", default=1.0, help="The time between two tables of --watch."),
        switch("all", help="Also show loops that have not done anything."),
    ),
    usage="[NAME]",
    about="""Every controller and the scheduler is a loop with a queue of keys. A key that changes several times while
it is queued is reconciled once; `x3` says that three changes led to it.

A paused loop reconciles nothing, but its queue grows and its Lease is renewed. `step` lets one reconcile happen. Ten
minutes after the last such command, or the end of `setpoint loops --watch`, all loops run again by themselves.""",
    children={
        "pause": Command("Pause loops, or all", _commands("pause"), usage="[NAME ...]"),
        "resume": Command("Let loops run again, or all", _commands("resume"), usage="[NAME ...]"),
        "step": Command("Let one reconcile happen, of the next key or a chosen one", step, usage="[NAME [KEY]]"),
        "slow": Command(
            "Let loops, or all together, reconcile one key at a time",
            _commands("slow"),
            (duration("every", default=1.0, help="The time between two reconciles."),),
            usage="[NAME ...]",
        ),
        "break": Command(
            "Pause all loops before an object is reconciled",
            stop_at,
            (
                text("kind", help="The kind of the object, such as ReplicaSet."),
                text("loop", help="The loop."),
                switch("clear", help="Remove all breakpoints."),
            ),
            usage="[NAMESPACE/NAME]",
        ),
    },
    examples="""
    # Which changes are coalesced?
    setpoint loops pause replicaset
    kubectl delete pods --all
    setpoint loops replicaset
    setpoint loops step replicaset
    setpoint loops resume

    # Watch a rollout in slow motion
    setpoint loops slow --every 2s
    """,
)
