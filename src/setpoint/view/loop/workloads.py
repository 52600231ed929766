"""The loops of the kinds that run Pods, and of those that scale or start them."""

from __future__ import annotations

from datetime import UTC

from setpoint.meta import cron
from setpoint.meta.conditions import condition_of, is_true
from setpoint.meta.objects import ObjView
from setpoint.view.loop.generic import detail, generation_drift
from setpoint.view.loop.values import IS_ARE, Drift, Gauge, Loop, Phase, Related, count
from setpoint.view.states import FAILING, WAITING, counts_text, pod_category, pod_counts, pod_state, unscheduled_reason
from setpoint.view.why.steps import creation_texts


def deployment(obj: ObjView, related: Related) -> Loop:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    old = status.get("replicas", 0) - status.get("updatedReplicas", 0)
    # During a rollout there may be more Pods than wanted, and those of the older template leave.
    loop = _replicated(obj, related, "deployment-controller", "replicaset-controller", surplus=old <= 0)
    if old > 0 and generation_drift(obj) is None:
        loop.drift.insert(0, _older(old))
        loop.phase = max_phase(loop.phase, Phase.ACTING)
        if status.get("replicas", 0) > status.get("readyReplicas", 0) and loop.phase is Phase.ACTING:
            loop.phase, loop.action = _unready(related)  # the new Pods may be what the rollout waits for
        if loop.phase is Phase.ACTING:
            loop.action = "deployment-controller replaces Pods of the older template step by step."
    if not loop.drift:
        return loop
    progressing = condition_of(obj, "Progressing") or {}
    if spec.get("paused"):
        loop.phase, loop.action = Phase.WAITING, "The rollout is paused (spec.paused)."
    elif progressing.get("reason") == "ProgressDeadlineExceeded" and loop.phase is not Phase.WAITING:
        limit = spec.get("progressDeadlineSeconds", 600)
        loop.phase, loop.action = Phase.STUCK, f"The rollout has made no progress for {limit} s."
    return loop


def _older(number: int) -> Drift:
    return Drift(f"{count(number, 'Pod')} of an older template {'is' if number == 1 else 'are'} left", "0", str(number))


def replicaset(obj: ObjView, related: Related) -> Loop:
    return _replicated(obj, related, "replicaset-controller", "replicaset-controller")


def statefulset(obj: ObjView, related: Related) -> Loop:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    loop = _replicated(obj, related, "statefulset-controller", "statefulset-controller")
    update, current = status.get("updateRevision"), status.get("currentRevision")
    if update != current and update and generation_drift(obj) is None:
        partition = ((spec.get("updateStrategy") or {}).get("rollingUpdate") or {}).get("partition", 0)
        old = max(0, spec.get("replicas", 1) - status.get("updatedReplicas", 0))
        text = f"{count(old, 'Pod', IS_ARE)} not of the newest template" if old else "the rollout is not completed"
        loop.drift.append(Drift(text))
        if (spec.get("updateStrategy") or {}).get("type") == "OnDelete":
            loop.phase, loop.action = Phase.WAITING, "Pods are replaced when they are deleted (OnDelete)."
        elif partition and old <= partition:
            loop.phase, loop.action = Phase.WAITING, f"Pods below number {partition} are not updated (partition)."
        else:
            loop.phase = max_phase(loop.phase, Phase.ACTING)
            loop.action = loop.action or "statefulset-controller replaces one Pod after the other."
    return loop


_SEVERITY = (Phase.SETTLED, Phase.ACTING, Phase.WAITING, Phase.STUCK, Phase.LEAVING)


def max_phase(one: Phase, other: Phase) -> Phase:
    """Return the more severe of two phases."""
    return max(one, other, key=_SEVERITY.index)


def _replicated(obj: ObjView, related: Related, observer: str, creator: str, *, surplus: bool = True) -> Loop:
    """Return the loop of a kind with `spec.replicas`: `observer` reconciles it, `creator` creates and deletes its Pods.
    With `surplus`, Pods beyond the wanted number are a difference."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    wanted, total, ready = spec.get("replicas", 1), status.get("replicas", 0), status.get("readyReplicas", 0)
    counts = pod_counts(related.pods) if related.pods is not None else {}
    observed = counts_text(counts) if counts else _status_counts(total, ready)
    desired = creation_texts(obj) or [count(wanted, "replica")]
    if "replicas" not in spec:
        desired.insert(0, count(wanted, "replica"))
    loop = Loop(desired, [observed], gauge=Gauge(ready, wanted, "Pods ready"))
    behind = generation_drift(obj)
    if behind is None and not status and wanted:
        behind = Drift(f"{observer} has not observed it yet")
    if behind is not None:
        loop.drift.append(behind)
        loop.phase, loop.action = Phase.ACTING, f"{observer} has to observe the change."
        return loop
    if total < wanted:
        loop.drift.append(Drift(f"{count(wanted - total, 'Pod', IS_ARE)} missing", str(wanted), str(total)))
        loop.phase, loop.action = Phase.ACTING, f"{creator} creates {count(wanted - total, 'Pod')}."
    elif total > wanted and surplus:
        loop.drift.append(Drift(f"{count(total - wanted, 'Pod', IS_ARE)} too many", str(wanted), str(total)))
        loop.phase, loop.action = Phase.ACTING, f"{creator} deletes {count(total - wanted, 'Pod')}."
    if ready < min(total, wanted):
        lacking = min(total, wanted) - ready
        loop.drift.append(Drift(f"{count(lacking, 'Pod', IS_ARE)} not ready", str(wanted), str(ready)))
        loop.phase, action = _unready(related)
        loop.action = loop.action or action
    failure = condition_of(obj, "ReplicaFailure") or {}
    if failure.get("status") == "True":
        loop.drift.append(Drift(f"Pods cannot be created{detail(failure)}"))
        loop.phase, loop.action = Phase.WAITING, f"{creator} tries again, with growing pauses."
    return loop


def _status_counts(total: int, ready: int) -> str:
    if not total:
        return "no Pods"
    return f"{ready} ready" + (f", {total - ready} not ready" if total > ready else "")


def _unready(related: Related) -> tuple[Phase, str]:
    """Return phase and action for Pods that are not ready: the worst of them decides."""
    categories = {pod_category(each): each for each in related.pods or ()}
    if (pod := categories.get(FAILING)) is not None:
        name, state = pod["metadata"]["name"], pod_state(pod)
        return Phase.WAITING, f"pod/{name} is in {state}: its kubelet tries again, with growing pauses."
    if (pod := categories.get(WAITING)) is not None:
        name, reason = pod["metadata"]["name"], unscheduled_reason(pod)
        if reason:
            return Phase.WAITING, f"kube-scheduler found no node for pod/{name}: {reason}."
        return Phase.ACTING, f"kube-scheduler looks for a node for pod/{name}."
    return Phase.ACTING, "The kubelets start the Pods and report when they are ready."


def daemonset(obj: ObjView, related: Related) -> Loop:
    status = obj.get("status") or {}
    wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
    current, updated = status.get("currentNumberScheduled", 0), status.get("updatedNumberScheduled", 0)
    counts = pod_counts(related.pods) if related.pods is not None else {}
    loop = Loop(
        ["a Pod on every matching node", *creation_texts(obj)],
        [
            counts_text(counts) or _status_counts(current, ready),
            f"{count(wanted, 'node')} {'matches' if wanted == 1 else 'match'}",
        ],
        gauge=Gauge(ready, wanted, "Pods ready"),
    )
    behind = generation_drift(obj)
    if behind is None and not status:
        behind = Drift("daemonset-controller has not observed it yet")
    if behind is not None:
        loop.drift.append(behind)
        loop.phase, loop.action = Phase.ACTING, "daemonset-controller has to observe the change."
        return loop
    if current < wanted:
        loop.drift.append(Drift(f"{count(wanted - current, 'Pod', IS_ARE)} missing", str(wanted), str(current)))
        loop.phase = Phase.ACTING
        loop.action = f"daemonset-controller creates {count(wanted - current, 'Pod')}."
    if ready < current:
        loop.drift.append(Drift(f"{count(current - ready, 'Pod', IS_ARE)} not ready", str(wanted), str(ready)))
        loop.phase, action = _unready(related)
        loop.action = loop.action or action
    if updated < current:
        loop.drift.append(_older(current - updated))
        loop.phase = max_phase(loop.phase, Phase.ACTING)
        loop.action = loop.action or "daemonset-controller replaces them step by step."
    if misplaced := status.get("numberMisscheduled", 0):
        loop.drift.append(Drift(f"{count(misplaced, 'Pod', IS_ARE)} on a node that needs none"))
        loop.phase = max_phase(loop.phase, Phase.ACTING)
        loop.action = loop.action or "daemonset-controller deletes them."
    return loop


def job(obj: ObjView, related: Related) -> Loop:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    wanted, done = spec.get("completions") or spec.get("parallelism") or 1, status.get("succeeded", 0)
    active, failed = status.get("active", 0), status.get("failed", 0)
    facts = [f"{active} active" if active else "", f"{done} succeeded", f"{failed} failed" if failed else ""]
    loop = Loop(
        [count(wanted, "completion"), *creation_texts({"spec": (spec.get("template") or {}).get("spec") or {}})],
        [", ".join(each for each in facts if each)],
        gauge=Gauge(done, wanted, "completions"),
    )
    if is_true(obj, "Complete"):
        loop.gauge, loop.action = Gauge(done, done, "completions"), "It is complete."
        return loop
    ended = condition_of(obj, "Failed") or {}
    if ended.get("status") == "True":
        loop.drift.append(Drift(f"it has failed{detail(ended)}"))
        loop.phase, loop.action = Phase.STUCK, "job-controller does not try again."
        return loop
    remaining = max(0, wanted - done)
    loop.drift.append(Drift(f"{count(remaining, 'completion', IS_ARE)} missing", str(wanted), str(done)))
    if failed:
        loop.drift.append(Drift(f"{count(failed, 'Pod', ('has', 'have'))} failed"))
    if spec.get("suspend"):
        loop.phase, loop.action = Phase.WAITING, "It is suspended (spec.suspend)."
    elif active:
        loop.phase, loop.action = Phase.ACTING, f"{count(active, 'Pod')} {'works' if active == 1 else 'work'} on it."
    elif failed:
        loop.phase, loop.action = Phase.WAITING, "job-controller starts another Pod after a pause."
    else:
        loop.phase, loop.action = Phase.ACTING, "job-controller creates its Pods."
    return loop


def cronjob(obj: ObjView, related: Related) -> Loop:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    active = len(status.get("active") or ())
    observed = [f"{count(active, 'Job')} active"] if active else ["no Job active"]
    if last := status.get("lastScheduleTime"):
        observed.append(f"last started at {last}")
    schedule = str(spec.get("schedule", ""))
    loop = Loop([f"schedule {schedule}"], observed)
    if spec.get("suspend"):
        loop.desired.append("suspended")
        loop.action = "It starts no Jobs while it is suspended (spec.suspend)."
        return loop
    try:
        zone = cron.load_zone(spec["timeZone"]) if spec.get("timeZone") else None
        due = cron.next_after(cron.parse(schedule), related.now.astimezone(zone or UTC))
    except ValueError as error:
        loop.drift.append(Drift(f"its schedule is not valid: {error}"))
        loop.phase, loop.action = Phase.STUCK, "cronjob-controller starts no Jobs."
        return loop
    when = f"{due.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if due is not None else ""
    loop.action = f"cronjob-controller starts the next Job at {when}." if when else "Its schedule has no next time."
    return loop


def autoscaler(obj: ObjView, related: Related) -> Loop:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    target = spec.get("scaleTargetRef") or {}
    name = f"{str(target.get('kind', '')).lower()}/{target.get('name', '')}"
    least, most = spec.get("minReplicas", 1), spec.get("maxReplicas", 0)
    current, wanted = status.get("currentReplicas", 0), status.get("desiredReplicas", 0)
    # It is 0 until a number has been computed, and while the target is scaled to 0.
    computed = f"{wanted} computed from the metrics" if wanted else "no number computed from the metrics"
    loop = Loop(
        [f"{least} to {count(most, 'replica')} of {name}"],
        [f"{count(current, 'replica')}, {computed}"],
        gauge=Gauge(current, wanted, "replicas") if wanted else None,
    )
    for condition in ("AbleToScale", "ScalingActive"):
        found = condition_of(obj, condition) or {}
        if found.get("status") == "False":
            loop.drift.append(Drift(f"it does not scale{detail(found)}"))
            loop.phase = Phase.WAITING
            loop.action = "horizontal-pod-autoscaler tries again in its next period."
    if not loop.drift and wanted and current != wanted:
        loop.drift.append(Drift(f"{current} of {count(wanted, 'replica')}", str(wanted), str(current)))
        loop.phase, loop.action = Phase.ACTING, f"horizontal-pod-autoscaler scales {name}."
    return loop
