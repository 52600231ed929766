"""Why no control loop acts on an object: none runs, none leads, it waits in a queue, or its writes are refused."""

from __future__ import annotations

from collections.abc import Sequence

from setpoint.meta.objects import ObjView
from setpoint.view.actors import INTERACTIVE, actor_name
from setpoint.view.loops import LOOPS_PATH
from setpoint.view.why.answer import Finding
from setpoint.view.why.controllers import CONTROLLERS, READ_RESOURCES
from setpoint.view.why.facts import Facts, Hold, InformerState, LoopKey, Ref, Refusal, Watcher, Written
from setpoint.view.why.moments import age, clock_time, milliseconds

_MANAGER_LEASE, _SCHEDULER_LEASE = "kube-controller-manager", "kube-scheduler"
_LEASES = "coordination.k8s.io/leases/kube-system/"
_RECENT = 120_000
"""Milliseconds for which a refusal is worth mentioning."""
_RENEW_DEADLINE = 2 / 3
"""The part of the duration of its Lease after which a leader that could not renew it gives up, by default."""
_LAG = 1_000
"""Milliseconds after which a change that an informer has not received is worth mentioning."""
_LAG_WRITES = 400
"""Maximum number of the latest writes that are searched for such changes."""
_GENERIC = {"generic-garbage-collector", "namespace-controller", "resourcequota-controller", "kube-controller-manager"}
_MANY_CONFLICTS = 5
"""Number of conflicts of one client that are more than the usual retries."""
_OWN_GROUPS = ".k8s.io"
_FROM_ELSEWHERE = {"Ingress"}
"""Built-in kinds that have a controller only if one is installed."""
_WITHOUT_CONTROLLER = {"ConfigMap", "Secret", "Event", "Lease", "Role", "ClusterRole", "RoleBinding", "Node", "Service"}


async def loop_findings(facts: Facts, ref: Ref, obj: ObjView, *, explained: bool = False) -> list[Finding]:
    """Return why the loops do not act on the object now. If refusals are `explained` already, they are left out."""
    found = []
    scheduled = ref.kind == "Pod" and _is_scheduled(obj)
    if not scheduled and (starting := _not_synced(facts, ref)) is not None:
        return [starting]
    if (absent := await _absent(facts, ref, obj)) is not None:
        return [absent]
    name = f"{ref.kind} {ref.name}"
    if not scheduled:
        found += await informer_findings(facts, ref)
    if (hold := facts.hold(ref)) is not None and not scheduled:
        found.append(_held(hold))
    found += [] if explained else await refusal_findings(facts, ref)
    for loop in facts.loops(ref):
        if _is_backing_off(loop):
            found.append(await _backs_off(facts, name, loop, explained=bool(found) or explained))
        elif loop.working and loop.since and facts.now - loop.since > _LAG:
            text = f"{loop.controller} has been reconciling {name} for {age(facts, loop.since)}."
            found.append(Finding("reconciling", text))
        elif loop.position > 1 or (loop.position and not found and loop.since and facts.now - loop.since > _LAG):
            text = f"{name} is number {loop.position} in the queue of {loop.controller}."
            found.append(Finding("queued", text, await _queue_evidence(facts, ref, loop)))
    meta = obj["metadata"]
    observed = (obj.get("status") or {}).get("observedGeneration")
    if isinstance(observed, int) and observed < meta.get("generation", 0) and ref.kind != "Pod":
        who = CONTROLLERS.get(ref.kind, "Its controller")
        text = f"{who} has not observed generation {meta['generation']} of {name}; it has observed {observed}."
        found.append(Finding("not-observed", text))
    return found or _unwatched_here(facts, ref)


async def backoff_findings(facts: Facts, ref: Ref) -> list[Finding]:
    """Return which loops fail with the object and wait before they try again."""
    name = f"{ref.kind} {ref.name}"
    return [await _backs_off(facts, name, loop, explained=False) for loop in facts.loops(ref) if _is_backing_off(loop)]


def _is_backing_off(loop: LoopKey) -> bool:
    return bool(loop.failures and loop.due)


async def _backs_off(facts: Facts, name: str, loop: LoopKey, *, explained: bool) -> Finding:
    """Return the finding that the reconciles of the object fail. The error, which may name any other object, is shown
    to users who may read those of all loops, unless the failure is `explained` already."""
    first = f", first {age(facts, loop.failing_since)} ago" if loop.failing_since else ""
    error, help_text = "", []
    if loop.error and not explained:
        if await facts.may_read_loops():
            error = f": {loop.error.rstrip('.')}"
        else:
            help_text = [f"the right to get {LOOPS_PATH}, to see its error"]
    sentence = f"{loop.controller} has failed {_times(loop.failures)} with {name}{first}{error}."
    return Finding("back-off", sentence, until=f"it tries again at {clock_time(loop.due)}", help=help_text)


def _not_synced(facts: Facts, ref: Ref) -> Finding | None:
    """Return the finding that the component that reconciles the object has not received all that exists. Its loops
    begin only after that."""
    missing = [each for each in facts.informers(ref) if not each.synced]
    if not missing:
        return None
    read = _read_by_controller(ref)
    ranks = {resource: rank for rank, resource in enumerate(read)}
    first, *others = sorted(missing, key=lambda each: (not each.error, ranks.get(each.resource, len(ranks))))
    more = f" and {len(others)} more resources" if len(others) > 1 else f" and {others[0].resource}" if others else ""
    text = f"The loops of {first.component} do not run yet: they wait for the first list of {first.resource}{more}."
    return Finding("not-synced", text, _failure_of(facts, first), _retry_of(first))


async def informer_findings(facts: Facts, ref: Ref) -> list[Finding]:
    """Return which changes the component that reconciles the object has not received, of the resources that it reads
    for that, and which of these it cannot watch."""
    read = _read_by_controller(ref)
    states = [each for each in facts.informers(ref) if each.synced and each.resource in read]
    behind = any(each.revision < facts.newest for each in states)
    writes = await facts.recent(facts.newest + 1, 0, _LAG_WRITES) if behind else []
    found = []
    for state in sorted(states, key=lambda each: read.index(each.resource)):
        late = [each for each in writes if each.revision > state.revision and _concerns(each, state, ref)]
        since = min((each.cause.at for each in late if each.cause is not None and each.cause.at), default=facts.now)
        if facts.now - since > _LAG:
            found.append(_lagging(facts, state, late, since))
        elif state.error:
            text = f"{state.component} has not been able to watch {state.resource} for {age(facts, state.since)}."
            found.append(Finding("informer-error", text, [state.error.rstrip(".")], _retry_of(state)))
    return found


def _resource_of(ref: Ref) -> str:
    return f"{ref.plural}.{ref.group}" if ref.group else ref.plural


def _read_by_controller(ref: Ref) -> Sequence[str]:
    return READ_RESOURCES.get(ref.kind, (_resource_of(ref),))


def _concerns(write: Written, state: InformerState, ref: Ref) -> bool:
    """Return whether an informer has to receive a write; one with a selector, only writes of the object itself."""
    plural, _, group = state.resource.partition(".")
    prefix = f"{group or 'core'}/{plural}/"
    if state.selective:
        return state.resource == _resource_of(ref) and prefix + ref.path in write.keys
    return any(key.startswith(prefix) for key in write.keys)


def _lagging(facts: Facts, state: InformerState, late: list[Written], since: int) -> Finding:
    """Return the finding that an informer has not received these writes, newest first, of which the first is old."""
    changes, first = "the last change", ""
    if len(late) > 1:
        changes, first = f"the last {len(late)} changes", "the first of them "
    made = f"{first}made {age(facts, since)} ago"
    text = f"{state.component} has not received {changes} of {state.resource}, {made}."
    position = f"its informer is at revision {state.revision}, the last change has revision {late[0].revision}"
    return Finding("informer-lag", text, [position, *_failure_of(facts, state)], _retry_of(state))


def _failure_of(facts: Facts, state: InformerState) -> list[str]:
    if not state.error:
        return []
    return [f"its requests have failed for {age(facts, state.since)}: {state.error.rstrip('.')}"]


def _retry_of(state: InformerState) -> str:
    return f"it tries again at {clock_time(state.retry)}" if state.error and state.retry else ""


async def _queue_evidence(facts: Facts, ref: Ref, loop: LoopKey) -> list[str]:
    found = [f"it has waited for {age(facts, loop.since)}"] if loop.since else []
    prefix = f"{ref.group or 'core'}/{ref.plural}/"
    names = [each for each in loop.others if await facts.may_read(prefix + each)]
    if names:
        found.append(f"{loop.controller} is reconciling {', '.join(names)}")
    return found


def _held(hold: Hold) -> Finding:
    who = f" by {hold.by}" if hold.by else ""
    until = f"unless this is renewed, it runs again at {clock_time(hold.until)}" if hold.until else ""
    if hold.mode == "slow":
        return Finding("slowed", f"{hold.loop} was slowed down{who}.", until=until)
    help_text = ["`setpoint loops resume`, or `setpoint loops step` for a single reconcile"]
    return Finding("held", f"{hold.loop} is paused{who}.", until=until, help=help_text)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


async def _absent(facts: Facts, ref: Ref, obj: ObjView) -> Finding | None:
    """Return the finding that no controller acts on objects of this kind."""
    is_pod = ref.kind == "Pod"
    if is_pod and _is_scheduled(obj):
        return None
    controller = "kube-scheduler" if is_pod else CONTROLLERS.get(ref.kind)
    running, others = facts.controllers(), facts.other_servers()
    leader = _SCHEDULER_LEASE if is_pod else _MANAGER_LEASE
    lease = None
    if controller is not None:
        if running is not None and controller in running:
            return None
        lease = await facts.get("coordination.k8s.io", "leases", "kube-system", leader)
        if lease is not None and (problem := _leaderless(facts, lease)) is not None:
            return problem
    if ref.kind in _WITHOUT_CONTROLLER:
        return None
    watchers = [each for each in facts.watchers(ref) if _may_act(each, controller)]
    if any(not each.ended for each in watchers):
        return None
    if others != 0:
        # Clients of other servers are not known here. But controllers of several servers elect a leader.
        if controller is None or lease is not None or not await facts.may_read(_LEASES + leader):
            return None
        text = f"No {leader} holds its Lease: {controller} does not run, unless it does so without leader election."
        return Finding("no-leader", text)
    if controller is not None:
        return Finding("no-controller", f"{controller} does not run.")
    if watchers:
        last = max(watchers, key=lambda each: each.ended)
        who = actor_name(last.user, last.agent)
        text = f"No client watches {ref.plural}. The last one, {who}, stopped {age(facts, last.ended)} ago."
        return Finding("no-controller", text)
    return Finding("no-controller", f"No client watches {ref.plural}: probably no controller for them runs.")


def unattended(facts: Facts, ref: Ref) -> list[Finding]:
    """Return that nothing acts on an object of a kind that only clients from elsewhere could have a controller for."""
    if "." not in ref.group or (ref.group.endswith(_OWN_GROUPS) and ref.kind not in _FROM_ELSEWHERE):
        return []
    if any(not each.ended for each in facts.watchers(ref) if _may_act(each, None)) or facts.other_servers() != 0:
        return []
    text = f"No client watches {ref.plural}: probably no controller for them runs."
    return [Finding("no-controller", text)]


def _unwatched_here(facts: Facts, ref: Ref) -> list[Finding]:
    """Return the finding that this server cannot say whether a controller runs for a custom kind, because other servers
    may have clients that watch it."""
    others = facts.other_servers()
    if others == 0 or ref.kind in _WITHOUT_CONTROLLER or ref.kind == "Pod" or ref.kind in CONTROLLERS:
        return []
    if any(not each.ended and _may_act(each, None) for each in facts.watchers(ref)):
        return []
    count = "other API servers" if others is None else _servers(others)
    text = f"No client of this API server watches {ref.plural}; those of {count} are not known here."
    return [Finding("not-watched-here", text)]


def _servers(count: int) -> str:
    return "the other API server" if count == 1 else f"{count} other API servers"


def _is_scheduled(pod: ObjView) -> bool:
    spec = pod.get("spec") or {}
    return bool(spec.get("nodeName")) or spec.get("schedulerName", "default-scheduler") != "default-scheduler"


def _may_act(watcher: Watcher, controller: str | None) -> bool:
    """Return whether a client that watches the kind may be its controller."""
    if watcher.agent in INTERACTIVE:
        return False
    name = watcher.user.rpartition(":")[2]
    if controller == "kube-scheduler":
        return "scheduler" in name or "scheduler" in watcher.agent
    return controller is not None or name not in _GENERIC


def _leaderless(facts: Facts, lease: ObjView) -> Finding | None:
    """Return the finding that a Lease has no holder, has expired, or is not renewed."""
    spec, name = lease.get("spec") or {}, lease["metadata"]["name"]
    renewed, holder = milliseconds(spec.get("renewTime")), spec.get("holderIdentity")
    lasts = 1000 * (spec.get("leaseDurationSeconds") or 0)
    ends = renewed + lasts
    if not holder:
        since = age(facts, renewed)
        return Finding("no-leader", f"{name} has had no leader for {since}: the last one gave up its Lease.")
    if ends < facts.now:
        return Finding("no-leader", f"{name} has had no leader for {age(facts, ends)}: its Lease has expired.")
    if facts.now - renewed <= lasts * _RENEW_DEADLINE:
        return None
    sentence = f"The leader of {name}, {holder}, has not renewed its Lease for {age(facts, renewed)}."
    return Finding("no-leader", sentence, until=f"another one may become the leader at {clock_time(ends)}")


async def refusal_findings(facts: Facts, ref: Ref, *, own: bool = False) -> list[Finding]:
    """Return the recent refusals, one finding for each message; with `own`, only those of writes of the object. The
    message, which names the object, is shown to users who may read that."""
    recent: dict[tuple[str, str], list[Refusal]] = {}
    for refusal in _relevant(facts, ref, own=own):
        # An eviction that a budget does not allow is a finding of the Pod.
        evicted = refusal.status == 429 and refusal.verb.endswith("/eviction")
        if refusal.reason not in ("Conflict", "AlreadyExists") and not evicted:
            recent.setdefault((refusal.user, refusal.reason), []).append(refusal)
    found = [] if own else _conflicts(facts, ref)
    for refusals in recent.values():
        last = refusals[0]
        who = actor_name(last.user, last.agent)
        tried = f"{_times(len(refusals))}, last {age(facts, last.at)} ago"
        # The page replaces the name of its user by "you", so no verb may depend on it.
        if last.reason == "Forbidden" and _is_rbac(last):
            sentence = f"No RBAC rule allows {who} to {_infinitive(last.verb)} {last.resource}; refused {tried}."
        else:
            what = f"to {_infinitive(last.verb)} {last.resource}"
            sentence = f"The server refused requests of {who} {what}: {tried} ({last.reason})."
        evidence = [last.message.rstrip(".")] if await facts.may_read(_key(last)) else []
        found.append(Finding(_rule(last), sentence, evidence))
    return found


def _key(refusal: Refusal) -> str:
    """Return the key of the object that was not written; the name is empty if the server had to make one."""
    plural, _, group = refusal.resource.partition(".")
    namespace = f"{refusal.namespace}/" if refusal.namespace else ""
    return f"{group or 'core'}/{plural}/{namespace}{refusal.name}"


def _relevant(facts: Facts, ref: Ref, *, own: bool = False) -> list[Refusal]:
    """Return the recent refusals of writes of the object, and of its own controller: objects of other kinds may have
    the same name."""
    resource = _resource_of(ref)
    return [
        each
        for each in facts.refusals(ref)
        if facts.now - each.at <= _RECENT
        and (
            (each.resource, each.namespace, each.name) == (resource, ref.namespace, ref.name)
            or (not own and each.key == ref.path and _is_own_controller(ref, each))
        )
    ]


def _is_own_controller(ref: Ref, refusal: Refusal) -> bool:
    """Return whether the reconcile in which the write was refused may be one of the object."""
    if (controller := CONTROLLERS.get(ref.kind)) is not None:
        return _plain(controller) == _plain(refusal.user.rpartition(":")[2])
    # The built-in controllers reconcile objects of other kinds.
    return ref.kind not in _WITHOUT_CONTROLLER and not refusal.user.startswith("system:serviceaccount:kube-system:")


def _plain(controller: str) -> str:
    """Return the name of a controller without what differs between it and its service account."""
    return controller.replace("-", "").removesuffix("controller")


def _conflicts(facts: Facts, ref: Ref) -> list[Finding]:
    """Return the clients whose writes fail again and again because others write the same object."""
    times: dict[str, list[Refusal]] = {}
    for each in _relevant(facts, ref):
        if each.reason == "Conflict":
            times.setdefault(actor_name(each.user, each.agent), []).append(each)
    return [
        Finding(
            "conflict-loop",
            f"{who} was refused {_times(len(found))} in the last 2 minutes because others wrote the object meanwhile.",
            help=[f"`setpoint why {ref.text} --conflicts` names who writes it"],
        )
        for who, found in times.items()
        if len(found) >= _MANY_CONFLICTS
    ]


def _infinitive(verb: str) -> str:
    """Return a verb of the API in words: `create`, `patch the status of`."""
    name, _, subresource = verb.partition("/")
    return f"{name} the {subresource} of" if subresource else name


def _is_rbac(refusal: Refusal) -> bool:
    return " cannot " in refusal.message and "is forbidden: User " in refusal.message


def _rule(refusal: Refusal) -> str:
    return "rights" if _is_rbac(refusal) else rule_of_message(refusal.message) or "refused"


def rule_of_message(message: str) -> str:
    """Return what refused a write, by the message of the server: `quota`, `webhook`, `policy`; empty if it is
    another."""
    if "exceeded quota" in message:
        return "quota"
    if "admission webhook" in message:
        return "webhook"
    return "policy" if "ValidatingAdmissionPolicy" in message else ""
