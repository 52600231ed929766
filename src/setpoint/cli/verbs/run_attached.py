"""`run -it`: attach to the created Pod until it terminates."""

from __future__ import annotations

from typing import Any

from setpoint.cli.failures import Exit, Failed
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import Target
from setpoint.cli.verbs.attach import attach_to_pod
from setpoint.cli.waiting import TIMED_OUT, TimedOut, follow, within
from setpoint.client.resources import builtin
from setpoint.meta.errors import NotFound
from setpoint.meta.objects import Obj

_OVER = ("Succeeded", "Failed")


async def run_attached(invocation: Invocation, made: list[Obj], restart: str) -> int | None:
    """Return the exit code of the container if it terminates by itself."""
    meta = made[0]["metadata"]
    target = Target(builtin("pods"), meta["namespace"], meta["name"])
    try:
        pod = await _until(invocation, target, lambda pod: _phase(pod) in _OVER or _is_ready(pod))
        await attach_to_pod(invocation, pod)
        if invocation.flags.leave_stdin_open or restart == "Always":
            return None
        ends = _OVER if restart == "Never" else ("Succeeded",)
        return _reported(await _until(invocation, target, lambda pod: _phase(pod) in ends))
    finally:
        if invocation.flags.rm:
            await _remove(invocation, made)


async def _until(invocation: Invocation, target: Target, enough: Any) -> Obj:
    def seen(pod: Obj | None) -> bool:
        if pod is None:
            raise NotFound(f'pods "{target.name}" not found')
        return bool(enough(pod))

    try:
        found = await within(invocation.io, invocation.flags.pod_running_timeout, follow(invocation, target, seen))
    except TimedOut:
        raise Failed(TIMED_OUT) from None
    assert found is not None
    return found


def _reported(pod: Obj) -> int:
    if _phase(pod) == "Succeeded":
        return 0
    where = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    states = [one.get("state") or {} for one in (pod.get("status") or {}).get("containerStatuses") or ()]
    ended = states[0].get("terminated") if states else None
    if not ended or not ended.get("exitCode"):
        raise Failed(f"pod {where} failed with unknown exit code")
    raise Exit(ended["exitCode"], f"pod {where} terminated ({ended.get('reason', '')})\n{ended.get('message', '')}")


async def _remove(invocation: Invocation, made: list[Obj]) -> None:
    for obj in made:
        meta, plural = obj["metadata"], f"{obj['kind'].lower()}s"
        try:
            await invocation.client.delete(
                builtin(plural), meta["name"], meta["namespace"], propagation=invocation.flags.cascade.capitalize()
            )
        except NotFound:
            continue
        if not invocation.flags.quiet:
            invocation.print(f'{obj["kind"].lower()} "{meta["name"]}" deleted from {meta["namespace"]} namespace')


def _phase(pod: Obj) -> str:
    return str((pod.get("status") or {}).get("phase") or "")


def _is_ready(pod: Obj) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return _phase(pod) == "Running" and any(
        one.get("type") == "Ready" and one.get("status") == "True" for one in conditions
    )
