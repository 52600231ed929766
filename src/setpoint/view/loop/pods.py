"""The loop of a Pod: the scheduler chooses its node, and the node runs it."""

from __future__ import annotations

from setpoint.meta.conditions import is_true
from setpoint.meta.objects import ObjView
from setpoint.view.loop.values import Drift, Loop, Phase, Related, count
from setpoint.view.states import is_ready, pod_state, unscheduled_reason, waiting_reason
from setpoint.view.why.steps import creation_texts


def pod(obj: ObjView, related: Related) -> Loop:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    node, phase = spec.get("nodeName") or "", status.get("phase") or "Pending"
    statuses = status.get("containerStatuses") or ()
    total = len(spec.get("containers") or ())
    ready = sum(bool(each.get("ready")) for each in statuses)
    restarts = sum(int(each.get("restartCount") or 0) for each in statuses)
    observed = [pod_state(obj), f"{ready} of {count(total, 'container')} ready"]
    observed += [f"on {node}"] if node else []
    observed += [count(restarts, "restart")] if restarts else []
    desired = creation_texts(obj) or [count(total, "container")]
    loop = Loop([*desired, "running and ready"], observed)
    if phase == "Succeeded":
        loop.desired[-1] = "run to completion"
        loop.action = "It has completed."
        return loop
    if phase == "Failed":
        reason = ": ".join(str(status[part]).rstrip(".") for part in ("reason", "message") if status.get(part))
        loop.drift.append(Drift(f"it has failed{f': {reason}' if reason else ''}"))
        loop.phase, loop.action = Phase.STUCK, "It does not run again; the controller that owns it may replace it."
        return loop
    if is_ready(obj):
        return loop
    if gates := [str(each.get("name")) for each in spec.get("schedulingGates") or ()]:
        loop.drift.append(Drift("it is not scheduled"))
        loop.phase, loop.action = Phase.WAITING, f"It has the scheduling gate {', '.join(gates)}."
    elif not node:
        reason = unscheduled_reason(obj)
        loop.drift.append(Drift(f"it has no node{f': {reason}' if reason else ''}"))
        loop.phase = Phase.WAITING if reason else Phase.ACTING
        again = "kube-scheduler tries again when a node or another Pod changes."
        loop.action = again if reason else "kube-scheduler looks for a node."
    else:
        _on_node(obj, node, loop)
    return loop


def _on_node(obj: ObjView, node: str, loop: Loop) -> None:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    reason = waiting_reason(obj)
    if reason:
        message = _message(status)
        loop.drift.append(Drift(f"a container waits: {reason}{f': {message}' if message else ''}"))
        loop.phase = Phase.WAITING
        loop.action = f"kubelet {node} tries again, with growing pauses."
        return
    statuses = status.get("containerStatuses") or ()
    running = [each for each in statuses if "running" in (each.get("state") or {})]
    lacking = [str(each.get("name")) for each in statuses if not each.get("ready")]
    if not statuses or len(running) < len(statuses):
        init = len(spec.get("initContainers") or ())
        done = sum(_is_done(each) for each in status.get("initContainerStatuses") or ())
        text = (
            f"init container {done + 1} of {init} is running" if done < init else "its containers are not running yet"
        )
        loop.drift.append(Drift(text))
        loop.phase, loop.action = Phase.ACTING, f"kubelet {node} starts the containers."
        return
    gates = [str(each.get("conditionType")) for each in spec.get("readinessGates") or ()]
    closed = [each for each in gates if not is_true(obj, each)]
    if lacking:
        loop.drift.append(Drift(f"container {', '.join(lacking)} is not ready"))
        loop.phase, loop.action = Phase.ACTING, f"kubelet {node} waits for the probes to succeed."
    elif closed:
        loop.drift.append(Drift(f"readiness gate {', '.join(closed)} is not True"))
        loop.phase, loop.action = Phase.WAITING, "The controller of the readiness gate has to set it."
    else:
        loop.drift.append(Drift("it is not ready"))
        loop.phase, loop.action = Phase.ACTING, f"kubelet {node} reports when it is ready."


def _is_done(container: ObjView) -> bool:
    terminated = (container.get("state") or {}).get("terminated")
    return terminated is not None and terminated.get("exitCode") == 0


def _message(status: ObjView) -> str:
    """Return the message of the first container that waits."""
    for each in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        if waiting := (each.get("state") or {}).get("waiting"):
            return str(waiting.get("message") or "").rstrip(".")
    return ""
