"""Why an object other than a Pod is not as its specification demands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from setpoint.meta import cron
from setpoint.meta.conditions import condition_of, conditions_of, is_true
from setpoint.meta.objects import ObjView
from setpoint.meta.selectors import from_map
from setpoint.meta.times import unix_milliseconds
from setpoint.view.actors import actor_of
from setpoint.view.why.answer import Finding
from setpoint.view.why.facts import Facts, Ref
from setpoint.view.why.moments import age, clock_time, milliseconds
from setpoint.view.why.question import last_spec_write
from setpoint.view.why.rules_deletion import leaving
from setpoint.view.why.rules_loops import loop_findings, rule_of_message
from setpoint.view.why.rules_pods import pod_findings
from setpoint.view.why.rules_selectors import claimed_by_others, name_taken, network_policy, similar_pods
from setpoint.view.why.rules_volumes import unbound_claim

_MAX_PODS = 4
_NEGATIVE = ("Stalled", "Degraded", "Failed", "ReplicaFailure")
"""Types of conditions that report a problem if they are True."""
_POSITIVE = ("Ready", "Available", "Established", "Progressing", "ScalingActive", "AbleToScale", "Healthy", "Synced")
"""Types of conditions that report a problem if they are False."""


async def object_findings(facts: Facts, key: str, ref: Ref, obj: ObjView) -> list[Finding]:
    """Return why the object is not as desired; empty if no reason is known."""
    if obj["metadata"].get("deletionTimestamp") and ref.kind != "Pod":
        return await leaving(facts, ref, obj)
    rule = _RULES.get((ref.group, ref.kind))
    found = await rule(facts, key, ref, obj) if rule is not None else _conditions(ref, obj)
    if (ref.group, ref.kind) in _CLAIMING:
        found += await claimed_by_others(facts, ref, obj)
    return found


def _name(ref: Ref) -> str:
    return f"{ref.kind} {ref.name}"


def _spec(obj: ObjView) -> ObjView:
    return obj.get("spec") or {}


def _status(obj: ObjView) -> ObjView:
    return obj.get("status") or {}


async def _by_whom(facts: Facts, key: str, field: str) -> str:
    """Return who set a field, and when, as far as the history says."""
    change = await last_spec_write(facts, key, field)
    if change is None or change.write.cause is None or not change.write.cause.at:
        return ""
    return f", set by {actor_of(change.write.cause)} {age(facts, change.write.cause.at)} ago"


# -- workloads ---------------------------------------------------------------------------------------------------------


async def _deployment(facts: Facts, key: str, ref: Ref, obj: ObjView) -> list[Finding]:
    spec, status, found = _spec(obj), _status(obj), list[Finding]()
    wanted = spec.get("replicas", 1)
    done = status.get("updatedReplicas", 0) == wanted == status.get("availableReplicas", 0) == status.get("replicas", 0)
    observed = status.get("observedGeneration", 0) >= obj["metadata"].get("generation", 0)
    if spec.get("paused") and not (done and observed):
        who = await _by_whom(facts, key, "spec.paused")
        text = f"The rollout of {_name(ref)} is paused (spec.paused{who})."
        found.append(Finding("paused", text, help=[f"`setpoint rollout resume deployment/{ref.name}`"]))
    if done and observed:
        return [*found, *await _no_replicas(facts, key, ref, obj)]
    progressing = condition_of(obj, "Progressing") or {}
    found += await _replicasets(facts, ref, obj)
    if progressing.get("reason") == "ProgressDeadlineExceeded":
        limit = spec.get("progressDeadlineSeconds", 600)
        found.append(Finding("deadline", f"The rollout of {_name(ref)} has made no progress for {limit} s."))
    if not found and (failure := condition_of(obj, "ReplicaFailure")) is not None and failure.get("status") == "True":
        found.append(_failure(ref, failure))
    seconds = spec.get("minReadySeconds", 0)
    if not found and seconds and status.get("readyReplicas", 0) > status.get("availableReplicas", 0):
        waiting = status["readyReplicas"] - status.get("availableReplicas", 0)
        text = f"{waiting} ready {_word('Pod', waiting)} of {_name(ref)} must stay ready for {seconds} s first."
        found.append(Finding("min-ready", text))
    return found


async def _no_replicas(facts: Facts, key: str, ref: Ref, obj: ObjView) -> list[Finding]:
    if _spec(obj).get("replicas", 1):
        return []
    who = await _by_whom(facts, key, "spec.replicas")
    return [Finding("no-replicas", f"{_name(ref)} wants no Pods: its spec.replicas is 0{who}.")]


def _failure(ref: Ref, condition: ObjView) -> Finding:
    message = str(condition.get("message", "")).rstrip(".")
    return Finding(rule_of_message(message) or "replica-failure", f"Pods of {_name(ref)} cannot be created: {message}.")


def _word(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


async def _replicasets(facts: Facts, ref: Ref, obj: ObjView) -> list[Finding]:
    """Return the findings of the ReplicaSets of a Deployment that should have Pods."""
    found: list[Finding] = []
    for each in await facts.list("apps", "replicasets", ref.namespace, obj["metadata"].get("uid", "")):
        if _spec(each).get("replicas", 0):
            name = each["metadata"]["name"]
            own = Ref("apps", "replicasets", "ReplicaSet", ref.namespace, name)
            own_findings = await _replicaset(facts, f"apps/replicasets/{ref.namespace}/{name}", own, each)
            if not own_findings and _status(each).get("replicas", 0) < _spec(each)["replicas"]:
                own_findings = await loop_findings(facts, own, each)
            found += own_findings
    return found


async def _replicaset(facts: Facts, key: str, ref: Ref, obj: ObjView) -> list[Finding]:
    wanted, status = _spec(obj).get("replicas", 1), _status(obj)
    found: list[Finding] = []
    failure = condition_of(obj, "ReplicaFailure")
    if failure is not None and failure.get("status") == "True":
        found.append(_failure(ref, failure))
    if status.get("readyReplicas", 0) < wanted:
        found += await _own_pods(facts, ref, obj)
    return found or await _no_replicas(facts, key, ref, obj)


async def _own_pods(facts: Facts, ref: Ref, owner: ObjView) -> list[Finding]:
    """Return the findings of an object's Pods. Equal ones of several Pods are one."""
    pods = await facts.list("", "pods", ref.namespace, owner["metadata"].get("uid", ""))
    by_rule: dict[tuple[str, str], list[tuple[str, Finding]]] = {}
    for pod in pods:
        name = pod["metadata"]["name"]
        for finding in await pod_findings(facts, Ref("", "pods", "Pod", ref.namespace, name), pod):
            plain = finding.sentence.replace(f"Pod {name}", "Pod")
            by_rule.setdefault((finding.rule, plain), []).append((name, finding))
    found = []
    for same in by_rule.values():
        name, first = same[0]
        if len(same) > 1:
            others = ", ".join(f"pod/{each}" for each, _ in same[1:_MAX_PODS])
            more = f" and {len(same) - _MAX_PODS} more" if len(same) > _MAX_PODS else ""
            first.evidence = [*first.evidence, f"the same: {others}{more}"]
        found.append(first)
    return found


async def _statefulset(facts: Facts, key: str, ref: Ref, obj: ObjView) -> list[Finding]:
    spec, status = _spec(obj), _status(obj)
    wanted, found = spec.get("replicas", 1), await _no_replicas(facts, key, ref, obj)
    if status.get("readyReplicas", 0) < wanted:
        taken, own = await name_taken(facts, ref, obj), await _own_pods(facts, ref, obj)
        found += [*taken, *own]
        if own and not taken and spec.get("podManagementPolicy", "OrderedReady") == "OrderedReady":
            existing = status.get("replicas", 0)
            if existing < wanted:
                found[0].evidence.append(f"pod/{ref.name}-{existing} is created after that: Pods start in order")
    update = spec.get("updateStrategy") or {}
    if status.get("updateRevision") != status.get("currentRevision"):
        partition = (update.get("rollingUpdate") or {}).get("partition", 0)
        if update.get("type") == "OnDelete":
            found.append(Finding("on-delete", f"Pods of {_name(ref)} are updated when they are deleted (OnDelete)."))
        elif partition:
            who = await _by_whom(facts, key, "spec.updateStrategy")
            text = f"Pods of {_name(ref)} below number {partition} are not updated (partition {partition}{who})."
            found.append(Finding("partition", text))
    return found


async def _daemonset(facts: Facts, key: str, ref: Ref, obj: ObjView) -> list[Finding]:
    status = _status(obj)
    if not status.get("desiredNumberScheduled", 0) and status.get("observedGeneration"):
        return [Finding("no-node-matches", f"No node matches {_name(ref)}: it wants no Pods.")]
    ready = status.get("numberReady", 0) >= status.get("desiredNumberScheduled", 0)
    return [] if ready else await _own_pods(facts, ref, obj)


async def _job(facts: Facts, key: str, ref: Ref, obj: ObjView) -> list[Finding]:
    spec = _spec(obj)
    failed = condition_of(obj, "Failed") or {}
    if failed.get("status") == "True":
        message = str(failed.get("message", "")).rstrip(".")
        return [Finding("job-failed", f"{_name(ref)} has failed: {failed.get('reason')}: {message}.")]
    if is_true(obj, "Complete"):
        return []
    if spec.get("suspend"):
        who = await _by_whom(facts, key, "spec.suspend")
        return [Finding("suspended", f"{_name(ref)} is suspended (spec.suspend{who}).")]
    if spec.get("parallelism") == 0:
        return [Finding("parallelism", f"{_name(ref)} runs no Pods: its parallelism is 0.")]
    return await _own_pods(facts, ref, obj)


async def _cronjob(facts: Facts, key: str, ref: Ref, obj: ObjView) -> list[Finding]:
    spec, status = _spec(obj), _status(obj)
    if spec.get("suspend"):
        who = await _by_whom(facts, key, "spec.suspend")
        return [Finding("suspended", f"{_name(ref)} is suspended (spec.suspend{who}).")]
    active = status.get("active") or ()
    if active and spec.get("concurrencyPolicy") == "Forbid":
        name = active[0].get("name")
        return [Finding("forbid", f"{_name(ref)} starts no Job while job/{name} runs (concurrencyPolicy Forbid).")]
    try:
        zone = cron.load_zone(spec["timeZone"]) if spec.get("timeZone") else None
        schedule = cron.parse(str(spec.get("schedule", "")))
        due = cron.next_after(schedule, datetime.fromtimestamp(facts.now / 1000, zone or UTC))
    except ValueError as error:
        return [Finding("schedule", f"The schedule of {_name(ref)} is not valid: {error}.")]
    if due is None:
        return [Finding("schedule", f"The schedule {spec.get('schedule')} of {_name(ref)} has no next time.")]
    when = clock_time(unix_milliseconds(due))
    return [Finding("schedule", f"{_name(ref)} starts its next Job at {when} ({spec.get('schedule')}).")]


async def _autoscaler(facts: Facts, key: str, ref: Ref, obj: ObjView) -> list[Finding]:
    found = []
    for each in conditions_of(obj):
        message = f"{each.get('reason')}: {str(each.get('message', '')).rstrip('.')}"
        if each.get("type") in ("ScalingActive", "AbleToScale") and each.get("status") == "False":
            found.append(Finding("not-scaling", f"{_name(ref)} does not scale: {message}."))
        elif each.get("type") == "ScalingLimited" and each.get("status") == "True":
            found.append(Finding("limited", f"{_name(ref)} is limited: {message}."))
    return found


# -- others ------------------------------------------------------------------------------------------------------------


async def _service(facts: Facts, key: str, ref: Ref, obj: ObjView) -> list[Finding]:
    spec, found = _spec(obj), list[Finding]()
    if spec.get("type") == "ExternalName":
        return []
    if selector := spec.get("selector"):
        pods = await facts.list("", "pods", ref.namespace)
        matching = [each for each in pods if from_map(selector).matches(each["metadata"].get("labels") or {})]
        shown = ",".join(f"{name}={value}" for name, value in selector.items())
        if not matching:
            text = f"{_name(ref)} has no endpoints: its selector {shown} matches no Pod in namespace {ref.namespace}."
            found.append(Finding("no-endpoints", text, await similar_pods(facts, selector, ref.namespace, pods)))
        elif not any(is_true(each, "Ready") for each in matching):
            text = f"{_name(ref)} has no ready endpoints: none of {len(matching)} matching Pods is ready."
            found.append(Finding("no-endpoints", text))
            for pod in matching[:_MAX_PODS]:
                own = Ref("", "pods", "Pod", ref.namespace, pod["metadata"]["name"])
                found += await pod_findings(facts, own, pod)
    if spec.get("type") == "LoadBalancer" and not (_status(obj).get("loadBalancer") or {}).get("ingress"):
        found.append(Finding("load-balancer", f"{_name(ref)} has no address: no load balancer has assigned one."))
    return found


async def _budget(facts: Facts, key: str, ref: Ref, obj: ObjView) -> list[Finding]:
    status = _status(obj)
    if status.get("disruptionsAllowed", 0):
        return []
    now, needed = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    text = f"{_name(ref)} allows no evictions: {now} Pods are healthy, and {needed} must be."
    evidence: list[str] = []
    if not status.get("expectedPods", 0):
        text = f"{_name(ref)} allows no evictions: its selector matches no Pods."
        labels = (_spec(obj).get("selector") or {}).get("matchLabels") or {}
        evidence = await similar_pods(facts, labels, ref.namespace, await facts.list("", "pods", ref.namespace))
    return [Finding("no-disruption", text, evidence)]


async def _node(facts: Facts, key: str, ref: Ref, obj: ObjView) -> list[Finding]:
    found = []
    ready = condition_of(obj, "Ready") or {}
    if ready.get("status") != "True":
        since = age(facts, milliseconds(ready.get("lastTransitionTime")))
        message = str(ready.get("message", "")).rstrip(".")
        text = f"{_name(ref)} has not been ready for {since}: {ready.get('reason')}: {message}."
        found.append(Finding("node-not-ready", text))
    if _spec(obj).get("unschedulable"):
        who = await _by_whom(facts, key, "spec.unschedulable")
        text = f"{_name(ref)} accepts no new Pods: it is cordoned (spec.unschedulable{who})."
        found.append(Finding("cordoned", text, help=[f"`setpoint uncordon {ref.name}`"]))
    return found


def _conditions(ref: Ref, obj: ObjView) -> list[Finding]:
    """Return the conditions of any kind that report a problem by their usual names."""
    found = []
    for each in conditions_of(obj):
        bad = (each.get("type") in _POSITIVE and each.get("status") == "False") or (
            each.get("type") in _NEGATIVE and each.get("status") == "True"
        )
        if bad:
            detail = ": ".join(str(each[part]).rstrip(".") for part in ("reason", "message") if each.get(part))
            text = f"Condition {each['type']} of {_name(ref)} is {each['status']}{f': {detail}' if detail else ''}."
            found.append(Finding("condition", text))
    return found


Rule = Callable[[Facts, str, Ref, ObjView], Awaitable[list[Finding]]]
_RULES: dict[tuple[str, str], Rule] = {
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replicaset,
    ("", "ReplicationController"): _replicaset,
    ("apps", "StatefulSet"): _statefulset,
    ("apps", "DaemonSet"): _daemonset,
    ("batch", "Job"): _job,
    ("batch", "CronJob"): _cronjob,
    ("autoscaling", "HorizontalPodAutoscaler"): _autoscaler,
    ("", "Service"): _service,
    ("", "PersistentVolumeClaim"): unbound_claim,
    ("policy", "PodDisruptionBudget"): _budget,
    ("networking.k8s.io", "NetworkPolicy"): network_policy,
    ("", "Node"): _node,
}
_CLAIMING = {("apps", "ReplicaSet"), ("", "ReplicationController"), ("apps", "StatefulSet"), ("apps", "DaemonSet")}
"""The kinds whose controllers adopt the Pods that match a selector."""


# -- no reason is known ------------------------------------------------------------------------------------------------


def no_reason(ref: Ref, obj: ObjView) -> tuple[str, list[str]]:
    """Return the sentence for an object about which there is no finding, and where a person may find more."""
    status, facts, complete = _status(obj), list[str](), True
    if (counts := _counts(ref, obj)) is not None:
        ready, wanted, what = counts
        facts.append(f"{ready} of {wanted} {what} are ready")
        complete = ready >= wanted
    elif ref.kind == "Job" and is_true(obj, "Complete"):
        facts.append("it is complete")
    elif status.get("phase"):
        facts.append(f"its phase is {status['phase']}")
    if isinstance(observed := status.get("observedGeneration"), int):
        facts.append(f"generation {observed} is observed")
        complete = complete and observed >= obj["metadata"].get("generation", 0)
    detail = f": {' and '.join(facts)}" if facts else ""
    look = [f"`setpoint describe {ref.text}` shows its Events."]
    if not complete:
        return f"{_name(ref)} is not as desired, and no reason is known{detail}.", look
    if facts or (ref.group, ref.kind) in _RULES:
        return f"{_name(ref)} is as desired, as far as can be seen{detail}.", []
    return f"No problem of {_name(ref)} is known, but objects of its kind are not examined.", look


def _counts(ref: Ref, obj: ObjView) -> tuple[int, int, str] | None:
    """Return how many Pods are ready and wanted; None if the kind has no Pods."""
    spec, status = _spec(obj), _status(obj)
    if "replicas" in spec and ref.kind in ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController"):
        return status.get("readyReplicas", 0), spec["replicas"], "replicas"
    if ref.kind == "DaemonSet":
        return status.get("numberReady", 0), status.get("desiredNumberScheduled", 0), "Pods"
    return None
