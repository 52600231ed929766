"""Why a Pod is not running and ready: gates, nodes, images, containers, probes, deletion."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from setpoint.meta import quantity
from setpoint.meta.conditions import condition_of, is_true
from setpoint.meta.node_fit import required_nodes, untolerated
from setpoint.meta.objects import ObjView
from setpoint.meta.times import TimeError, parse_duration
from setpoint.view.actors import actor_name
from setpoint.view.why.answer import Finding
from setpoint.view.why.container_logs import log_of
from setpoint.view.why.facts import Facts, Ref, SchedulingAttempt
from setpoint.view.why.finalizers import BUILTIN_REMOVERS, owner_of
from setpoint.view.why.moments import age, clock_time, milliseconds
from setpoint.view.why.rules_selectors import selector_of
from setpoint.view.why.rules_volumes import missing_claims, unbound_claims

_MAX_NODES = 5
"""Number of nodes that are listed."""
_MAX_COUNTED_NODES = 100
"""Number of nodes up to which the free resources of nodes are counted, which reads all Pods."""
_FINISHED = ("Succeeded", "Failed")
_PULL = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"}
_CRASH = "CrashLoopBackOff"
_STARTING = {"ContainerCreating", "PodInitializing", ""}
_BACK_OFF = re.compile(r"back-off ([0-9hms.]{1,20}) restarting")
_KILLED = 600_000
"""Milliseconds for which the Event of a killed container is worth mentioning: back-offs end at 300 s."""
_RECENT = 120_000
"""Milliseconds for which a refused eviction is worth mentioning."""


async def pod_findings(facts: Facts, ref: Ref, pod: ObjView) -> list[Finding]:
    """Return why a Pod is not running and ready; empty if it is, or has completed."""
    status, spec = pod.get("status") or {}, pod.get("spec") or {}
    name = f"Pod {ref.name}"
    if pod["metadata"].get("deletionTimestamp"):
        return [await _leaving(facts, name, ref, pod)]
    if status.get("phase") == "Failed":
        return [_failed(name, pod)]
    if status.get("phase") == "Succeeded" or is_true(pod, "Ready"):
        return []
    if gates := [str(each.get("name")) for each in spec.get("schedulingGates") or ()]:
        text = f"{name} is not scheduled while it has the scheduling {_plural('gate', gates)} {', '.join(gates)}."
        return [Finding("scheduling-gate", text, help=[f"remove spec.schedulingGates of pod/{ref.name}"])]
    if not spec.get("nodeName"):
        return await _unscheduled(facts, name, ref, pod)
    found = [] if (away := await _node_away(facts, name, pod)) is None else [away]
    found += _containers(facts, name, pod)
    if any(each.rule == "crash" for each in found):
        await _explain_crashes(facts, ref, pod, [each for each in found if each.rule == "crash"])
    return found


def _plural(word: str, items: Sequence[object]) -> str:
    return word if len(items) == 1 else f"{word}s"


async def _leaving(facts: Facts, name: str, ref: Ref, pod: ObjView) -> Finding:
    meta = pod["metadata"]
    deadline = milliseconds(meta["deletionTimestamp"])
    if finalizers := meta.get("finalizers"):
        owners = [await owner_of(facts, ref, each) for each in finalizers]
        named = ", ".join(each + owner.clause for each, owner in zip(finalizers, owners, strict=True))
        text = f"{name} is being deleted and waits for the {_plural('finalizer', finalizers)} {named}."
        advice = [
            f"the owner of the finalizer must remove {each}" for each in finalizers if each not in BUILTIN_REMOVERS
        ]
        evidence = list(dict.fromkeys(line for owner in owners for line in owner.evidence))
        return Finding("finalizers", text, evidence, help=advice)
    node = (pod.get("spec") or {}).get("nodeName", "")
    if node and (found := await facts.get("", "nodes", "", node)) is not None and not is_true(found, "Ready"):
        text = f"{name} is being deleted, and its node {node}, which must confirm it, is not ready."
        return Finding("node-away", text)
    until = f"its grace period of {meta.get('deletionGracePeriodSeconds', 0)} s ends at {clock_time(deadline)}"
    return Finding("terminating", f"{name} is being deleted: {until}.")


def _failed(name: str, pod: ObjView) -> Finding:
    status = pod["status"]
    reason, message = status.get("reason") or "", status.get("message") or ""
    initial = [each for each in status.get("initContainerStatuses") or () if not _is_done(each)]
    exited = [
        (what, each, each["state"]["terminated"].get("exitCode"))
        for what, statuses in (("init container", initial), ("container", status.get("containerStatuses") or ()))
        for each in statuses
        if (each.get("state") or {}).get("terminated")
    ]
    codes = [f"{what} {each['name']} exited with code {code}" for what, each, code in exited]
    detail = ": ".join(each for each in (reason, message) if each) or "; ".join(codes)
    logs = [log_of(pod, each) for _, each, code in exited if code]
    text = f"{name} has failed{f': {detail}' if detail else ''}".rstrip(".") + "."
    return Finding("failed", text, log=logs[0] if logs else None)


# -- scheduling --------------------------------------------------------------------------------------------------------


async def _unscheduled(facts: Facts, name: str, ref: Ref, pod: ObjView) -> list[Finding]:
    spec, condition = pod["spec"], condition_of(pod, "PodScheduled")
    created = milliseconds(pod["metadata"].get("creationTimestamp"))
    claims = await missing_claims(facts, pod)
    if condition is None:
        scheduler = spec.get("schedulerName") or "default-scheduler"
        text = f"{name} has waited for a node for {age(facts, created)}, and {scheduler} has not examined it."
        return [*claims, Finding("not-examined", text)]
    since = milliseconds(condition.get("lastTransitionTime")) or created
    # What follows is the outcome of preemption, which is "not found" if no node could be examined.
    message = str(condition.get("message") or "").partition(" preemption:")[0].removesuffix(". not found").rstrip(".")
    text = f"{name} has waited for a node for {age(facts, since)}: {message or 'none fits'}."
    nodes = await facts.list("", "nodes")
    attempt = facts.attempt(ref)
    evidence = [] if claims else await _node_verdicts(facts, pod, nodes, attempt)
    if attempt is not None:
        times = "once" if attempt.attempts == 1 else f"{attempt.attempts} times"
        evidence.append(f"kube-scheduler has tried {times}, last {age(facts, attempt.at)} ago")
    until = "kube-scheduler tries again when a node is added or changes, or a Pod leaves a node."
    if claims or "PersistentVolumeClaim" in message:
        until = f"kube-scheduler tries again when {'the claim exists' if claims else 'its claims have changed'}."
        claims = claims or await unbound_claims(facts, pod)
    return [*claims, Finding("unschedulable", text, evidence, until, _scheduling_help(message, ref, pod, nodes))]


def _scheduling_help(message: str, ref: Ref, pod: ObjView, nodes: Sequence[ObjView]) -> list[str]:
    found = []
    if "Insufficient" in message and (large := _larger_than_any(pod, nodes)):
        found.append(f"a node with more {large}, because no node has as much as is requested; or request less")
    elif "Insufficient" in message:
        found.append("add a node (`setpoint nodes add`), or request less")
    if "taint" in message:
        found.append(f"remove the taint, or add a toleration to pod/{ref.name}")
    if "node affinity/selector" in message:
        found.append("label a node so that it matches, or change the node selector or affinity")
    if "Too many pods" in message:
        found.append("add a node (`setpoint nodes add`)")
    if "unschedulable" in message:
        found.append("`setpoint uncordon` a node")
    return found


def _larger_than_any(pod: ObjView, nodes: Sequence[ObjView]) -> str:
    """Return the resources of which the Pod requests more than any node has in total."""
    found = []
    for resource, wanted in _requests(pod).items():
        every = [((node.get("status") or {}).get("allocatable") or {}).get(resource, "0") for node in nodes]
        if every and all(quantity.compare(wanted, each) > 0 for each in every):
            found.append(resource)
    return " and ".join(found)


async def _node_verdicts(
    facts: Facts, pod: ObjView, nodes: Sequence[ObjView], attempt: SchedulingAttempt | None
) -> list[str]:
    """Return why each of the first nodes does not take the Pod: taints, selectors and resources in detail, other
    reasons in the words of the scheduler."""
    spec, lines = pod["spec"], []
    if not nodes:
        return ["there are no nodes"] if await facts.may_read("core/nodes/") else []
    matches, tolerations = required_nodes(spec), spec.get("tolerations") or ()
    by_plugins = dict(attempt.verdicts) if attempt is not None else {}
    few = len(nodes) <= _MAX_COUNTED_NODES
    pods = await facts.list("", "pods") if few else ()
    width = max(len(node["metadata"]["name"]) for node in nodes[:_MAX_NODES])
    for node in nodes[:_MAX_NODES]:
        name = node["metadata"]["name"]
        if (node.get("spec") or {}).get("unschedulable"):
            verdict = "is cordoned"
        elif (taint := untolerated((node.get("spec") or {}).get("taints") or (), list(tolerations))) is not None:
            verdict = f"has the taint {taint.get('key')}{_suffix('=', taint.get('value'))}"
        elif not matches(node):
            verdict = "does not match the node selector or affinity"
        else:
            verdict = _lacking(pod, node, pods) if few else ""
        if verdict := verdict or by_plugins.get(name, ""):
            lines.append(f"{name:<{width}}  {verdict}")
    if len(nodes) > _MAX_NODES:
        lines.append(f"and {len(nodes) - _MAX_NODES} more nodes")
    return lines


def _lacking(pod: ObjView, node: ObjView, pods: Sequence[ObjView]) -> str:
    """Return the resources of which the node has too little: `cpu: requests 500, free 3200m`."""
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    here = [
        each
        for each in pods
        if (each.get("spec") or {}).get("nodeName") == node["metadata"]["name"]
        and (each.get("status") or {}).get("phase") not in _FINISHED
    ]
    missing = []
    for resource, wanted in _requests(pod).items():
        if resource not in allocatable:
            missing.append(f"{resource}: requests {wanted}, has none")
            continue
        free = allocatable[resource]
        for each in here:
            free = quantity.sub(free, _requests(each).get(resource, "0"))
        if quantity.compare(wanted, free) > 0:
            missing.append(f"{resource}: requests {wanted}, free {free}")
    if "pods" in allocatable and len(here) >= quantity.value(allocatable["pods"]):
        missing.append(f"pods: has {len(here)}, allows {allocatable['pods']}")
    return "; ".join(missing)


def _requests(pod: ObjView) -> dict[str, str]:
    total: dict[str, str] = {}
    for container in (pod.get("spec") or {}).get("containers") or ():
        for resource, wanted in ((container.get("resources") or {}).get("requests") or {}).items():
            total[resource] = quantity.add(total[resource], wanted) if resource in total else wanted
    return total


async def _node_away(facts: Facts, name: str, pod: ObjView) -> Finding | None:
    node_name = pod["spec"]["nodeName"]
    node = await facts.get("", "nodes", "", node_name)
    if node is None:
        known = await facts.may_read(f"core/nodes/{node_name}")
        text = f"{name} is bound to node {node_name}, which does not exist."
        return Finding("no-node", text) if known else None
    ready = condition_of(node, "Ready") or {}
    if ready.get("status") == "True":
        return None
    since = milliseconds(ready.get("lastTransitionTime"))
    text = f"{name} is on node {node_name}, which has not been ready for {age(facts, since)}."
    taints = (node.get("spec") or {}).get("taints") or ()
    for taint in taints:
        if taint.get("effect") != "NoExecute" or not taint.get("timeAdded"):
            continue
        seconds = _tolerated(pod["spec"].get("tolerations") or (), str(taint.get("key")))
        if seconds is not None:
            leaves = milliseconds(taint["timeAdded"]) + 1000 * seconds
            return Finding("node-away", text, until=f"it is evicted at {clock_time(leaves)}")
    return Finding("node-away", text)


def _tolerated(tolerations: Sequence[ObjView], key: str) -> int | None:
    for each in tolerations:
        if each.get("key") in (key, None, "") and each.get("effect") in ("NoExecute", None, ""):
            seconds = each.get("tolerationSeconds")
            return int(seconds) if seconds is not None else None
    return 0


# -- eviction ----------------------------------------------------------------------------------------------------------


async def eviction(facts: Facts, ref: Ref, pod: ObjView) -> list[Finding]:
    """Return that disruption budgets do not allow an eviction which a client has tried lately."""
    refused = [
        each
        for each in facts.refusals(ref)
        if each.verb.endswith("/eviction")
        and each.status == 429
        and (each.resource, each.namespace, each.name) == ("pods", ref.namespace, ref.name)
        and facts.now - each.at <= _RECENT
    ]
    if not refused or pod["metadata"].get("deletionTimestamp"):
        return []
    who = actor_name(refused[0].user, refused[0].agent)
    times = "once" if len(refused) == 1 else f"{len(refused)} times"
    evidence, budgets = [f"{who} tried {times}, last {age(facts, refused[0].at)} ago"], list[str]()
    labels = pod["metadata"].get("labels") or {}
    for budget in await facts.list("policy", "poddisruptionbudgets", ref.namespace):
        status, selector = budget.get("status") or {}, selector_of((budget.get("spec") or {}).get("selector") or {})
        if selector is not None and selector.matches(labels) and not status.get("disruptionsAllowed", 0):
            name = budget["metadata"]["name"]
            budgets.append(name)
            healthy, needed = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
            evidence.append(f"poddisruptionbudget/{name}: {_ready(healthy)}, and {needed} must be")
    if not budgets:
        message = refused[0].message.rstrip(".")
        return [Finding("eviction", f"The eviction of Pod {ref.name} was refused: {message}.", evidence)]
    which = f"disruption {_plural('budget', budgets)} {', '.join(budgets)}"
    text = f"The eviction of Pod {ref.name} waits: the {which} {'allows' if len(budgets) == 1 else 'allow'} none now."
    return [Finding("eviction", text, evidence, help=["more ready Pods, or a budget that requires fewer"])]


def _ready(count: int) -> str:
    return "1 Pod is healthy" if count == 1 else f"{count} Pods are healthy"


# -- containers --------------------------------------------------------------------------------------------------------


def _containers(facts: Facts, name: str, pod: ObjView) -> Iterator[Finding]:
    status, spec = pod.get("status") or {}, pod["spec"]
    initial = status.get("initContainerStatuses") or ()
    count = len(spec.get("initContainers") or ())
    for place, container in enumerate(initial, 1):
        if not _is_done(container) and not container.get("started"):
            which = f"init container {container['name']} ({place} of {count})"
            yield _exited(pod, container, _waiting(facts, name, which, container, spec))
            return
    statuses = status.get("containerStatuses") or ()
    if not statuses:
        node = spec["nodeName"]
        yield Finding("not-started", f"{name} is bound to node {node}, which has not started it yet.")
        return
    for container in statuses:
        if not container.get("ready"):
            yield _exited(pod, container, _waiting(facts, name, f"container {container['name']}", container, spec))
    for gate in spec.get("readinessGates") or ():
        kind = gate.get("conditionType")
        if not is_true(pod, str(kind)):
            yield Finding("readiness-gate", f"{name} is not ready: its readiness gate {kind} is not True.")


def _exited(pod: ObjView, container: ObjView, finding: Finding) -> Finding:
    """Add to a finding about a container how it last exited, and which of its logs may say why."""
    finding.log = log_of(pod, container)
    last = (container.get("lastState") or {}).get("terminated")
    if finding.log is not None and finding.log.previous and last and finding.rule != "crash":
        finding.evidence = [*finding.evidence, _last_exit(last)]
    return finding


def _last_exit(terminated: ObjView) -> str:
    return f"last exit: code {terminated.get('exitCode')}{_suffix(' ', terminated.get('reason'))}"


async def _explain_crashes(facts: Facts, ref: Ref, pod: ObjView, crashes: Sequence[Finding]) -> None:
    """Say of containers that keep exiting which probe fails, if the kubelet has recorded that it killed them."""
    killed = [
        str(each.get("message") or "")
        for each in await facts.list("", "events", ref.namespace)
        if each.get("reason") == "Killing"
        and (each.get("involvedObject") or {}).get("uid") == pod["metadata"].get("uid")
        and facts.now - milliseconds(each.get("lastTimestamp") or each.get("eventTime")) <= _KILLED
    ]
    for finding in crashes:
        name = finding.log.container if finding.log is not None else ""
        for probe in ("liveness", "startup"):
            if any(f"container {name} failed {probe} probe" in each.lower() for each in killed):
                finding.sentence = finding.sentence.replace(
                    "keeps exiting;", f"is killed each time because its {probe} probe fails;"
                )
        if ref.namespace != "default":
            finding.help = [f"{each.removesuffix('`')} -n {ref.namespace}`" for each in finding.help]


def _is_done(container: ObjView) -> bool:
    terminated = (container.get("state") or {}).get("terminated")
    return terminated is not None and terminated.get("exitCode") == 0


def _waiting(facts: Facts, name: str, which: str, container: ObjView, spec: ObjView) -> Finding:
    state = container.get("state") or {}
    waiting, terminated = state.get("waiting") or {}, state.get("terminated")
    reason, message = str(waiting.get("reason") or ""), str(waiting.get("message") or "").rstrip(".")
    if reason in _PULL:
        text = f"{name} waits for {which}: its image {container.get('image')} cannot be pulled ({reason})."
        return Finding("image-pull", text, [message] if message else [], help=["correct the image, or its pull secret"])
    if reason == _CRASH:
        last = (container.get("lastState") or {}).get("terminated") or {}
        times = container.get("restartCount", 0)
        restarts = "1 time" if times == 1 else f"{times} times"
        text = f"{name} is not ready: {which} keeps exiting; it was restarted {restarts}."
        ended = milliseconds(last.get("finishedAt"))
        evidence = [_last_exit(last)]
        evidence += [f"it ended {age(facts, ended)} ago"] if ended else []
        evidence += [message] if message else []
        chosen = "" if len(spec["containers"]) == 1 and which.startswith("container") else f" -c {container['name']}"
        again = ended + _back_off(message)
        until = f"it is started again at about {clock_time(again)}" if again > max(ended, facts.now) else ""
        advice = f"`setpoint logs --previous {name.partition(' ')[2]}{chosen}`"
        return Finding("crash", text, evidence, until, [advice])
    if waiting and reason not in _STARTING:
        text = f"{name} waits for {which}: {reason}{f': {message}' if message else ''}."
        return Finding("container-config", text)
    if waiting:
        return Finding("starting", f"{name} waits for {which}, which is being started.")
    if terminated is not None:
        code = terminated.get("exitCode")
        return Finding("exited", f"{name} is not ready: {which} exited with code {code} ({terminated.get('reason')}).")
    declared: ObjView = next(
        (each for each in spec.get("containers") or () if f"container {each['name']}" == which),
        {},
    )
    if not container.get("started") and declared.get("startupProbe"):
        return Finding("startup-probe", f"{name} is not ready: the startup probe of {which} has not succeeded.")
    if declared.get("readinessProbe"):
        return Finding("readiness-probe", f"{name} is not ready: the readiness probe of {which} does not succeed.")
    return Finding("not-ready", f"{name} is not ready: {which} is running and not ready.")


def _back_off(message: str) -> int:
    """Return the milliseconds between the end of a container and its next start, which the kubelet states; 0 if it does
    not."""
    stated = _BACK_OFF.match(message)
    try:
        return parse_duration(stated[1]) // 1_000_000 if stated is not None else 0
    except TimeError:
        return 0


def _suffix(separator: str, value: object) -> str:
    return f"{separator}{value}" if value else ""
