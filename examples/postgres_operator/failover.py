"""Failover: keeps one instance the primary, by the holder of a Lease and by labels of Pods."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from setpoint.meta.objects import Obj
from setpoint.meta.times import format_micro
from setpoint.sdk import Conflict, Context, Kind, NotFound, is_true

from .children import ROLE, Cluster, labels, lease_name, selector
from .instance import POSITION

Lease = Kind("coordination.k8s.io/v1", "Lease")
Pod = Kind("v1", "Pod")
DURATION = 10
"""Seconds after which a Lease that was not renewed has expired."""
WAIT_FOR_POSITIONS = 10.0
"""Seconds that an instance gets to report its position after the Lease has expired or was released."""


class Choice(NamedTuple):
    holder: str = ""
    """The identity of the next holder; empty if nothing is to be changed."""
    look_again: float = 0.0
    """Seconds after which the choice must be made again; 0 if only changes of objects matter."""
    vacant: bool = False
    """Whether there is no primary now."""


def lease(cluster: Cluster) -> Obj:
    """Made once: afterwards the operator sets its holder, and the holder renews it."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": lease_name(cluster), "labels": labels(cluster)},
        "spec": {"leaseDurationSeconds": DURATION},
    }


def identity(pod: Obj) -> str:
    """Return the holder that a Pod is. A Pod that replaces another one has the same name and is another holder."""
    return f"{pod['metadata']['name']}_{pod['metadata']['uid']}"


def choose(found: Obj, pods: Iterable[Obj], unchanged: float) -> Choice:
    """Return the next holder of the Lease. `unchanged` is the time in seconds since it was last renewed or changed.

    A Lease that was never renewed has a holder that has no data yet, or runs on a simulated node: any other Pod can
    take its place. Otherwise the holder is replaced only when it has released the Lease or the Lease has expired, by
    the replica that has received most. An instance that has not reported its position, because it has no data, is never
    chosen.
    """
    spec = found["spec"]
    holder = spec.get("holderIdentity") or ""
    present = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    if not spec.get("renewTime"):
        if any(identity(pod) == holder for pod in present):
            return Choice()
        first = min(present, key=lambda pod: (not is_true(pod, "Ready"), _ordinal(pod)), default=None)
        return Choice(identity(first)) if first else Choice(vacant=True)
    expires = float(spec["leaseDurationSeconds"]) if holder else 0.0
    if unchanged < expires:
        return Choice(look_again=min(DURATION / 2, expires - unchanged + 0.1))
    term = spec.get("leaseTransitions") or 0
    positions = {identity(pod): _position(pod, term) for pod in present}
    silent = [
        pod for pod in present if is_true(pod, "Ready") and not positions[identity(pod)] and identity(pod) != holder
    ]
    candidates = [pod for pod in present if positions[identity(pod)]]
    if not candidates or (silent and unchanged < expires + WAIT_FOR_POSITIONS):
        return Choice(look_again=1.0, vacant=True)
    best = max(candidates, key=lambda pod: (positions[identity(pod)], is_true(pod, "Ready"), -_ordinal(pod)))
    return Choice(identity(best), look_again=1.0, vacant=True)


def _ordinal(pod: Obj) -> int:
    return int(pod["metadata"]["name"].rpartition("-")[2])


def _position(pod: Obj, term: int) -> tuple[int, ...]:
    """Return the timeline and the position that a Pod reported in this term; empty if it did not."""
    words = (pod["metadata"].get("annotations") or {}).get(POSITION, "").split()
    if len(words) != 3 or not all(word.isdigit() for word in words) or int(words[0]) != term:
        return ()
    return int(words[1]), int(words[2])


# -- acting ----------------------------------------------------------------------------------------------------------


class Primary(NamedTuple):
    name: str
    """The Pod that is the primary or shall be; empty if there is none yet."""
    vacant: bool
    """Whether no instance is known to accept writes."""
    look_again: float
    """Seconds after which to look again; 0 if changes of objects are enough."""


class LeaseTimes:
    """Since when each Lease has been as it is, by the clock of this process: those of the nodes may differ.

    A restart of the operator begins again, which delays a failover and does no harm."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[tuple[str, str], float]] = {}

    def unchanged(self, cluster: Cluster, found: Obj, now: float) -> float:
        spec = found["spec"]
        state = (spec.get("holderIdentity") or "", spec.get("renewTime") or "")
        known = self._seen.get(cluster.uid)
        if known is None or known[0] != state:
            known = self._seen[cluster.uid] = (state, now)
        return now - known[1]

    def forget(self, cluster: Cluster) -> None:
        self._seen.pop(cluster.uid, None)


def holder_changed(old: Obj | None, new: Obj | None) -> bool:
    """Return whether another instance holds the Lease, or renewed it for the first time. All other renewals, one each
    second, are no reason to reconcile."""
    specs = [(each or {}).get("spec", {}) for each in (old, new)]
    before, now = ((spec.get("holderIdentity"), bool(spec.get("renewTime"))) for spec in specs)
    return before != now


async def keep_primary(ctx: Context[Any, Any], cluster: Cluster, times: LeaseTimes) -> Primary:
    """Give the Lease to another instance if its holder is lost, and label the Pods with their roles."""
    found = await ctx.make_once(lease(cluster))
    pods = (await ctx.client.list(Pod.ref, cluster.namespace, label_selector=_text(selector(cluster)))).items
    choice = choose(found, pods, times.unchanged(cluster, found, ctx.clock.monotonic()))
    if choice.holder:
        found = await _give(ctx, found, choice.holder)
        name = _name(choice.holder)
        ctx.event("PrimaryChosen", f"{name} becomes the primary")
    holder = found["spec"].get("holderIdentity") or ""
    for pod in pods:
        await _label(ctx, pod, "primary" if identity(pod) == holder else "replica")
    return Primary(_name(holder), choice.vacant and not choice.holder, choice.look_again)


async def _give(ctx: Context[Any, Any], found: Obj, holder: str) -> Obj:
    """Write the new holder. A Lease that was renewed meanwhile is left alone: Conflict requeues the cluster."""
    spec = found["spec"]
    changed = {
        **spec,
        "holderIdentity": holder,
        "leaseTransitions": (spec.get("leaseTransitions") or 0) + 1,
        "acquireTime": format_micro(ctx.clock.now()),
    }
    return await ctx.client.update({**found, "spec": changed})


async def _label(ctx: Context[Any, Any], pod: Obj, role: str) -> None:
    meta = pod["metadata"]
    if (meta.get("labels") or {}).get(ROLE) == role:
        return
    patch = {"metadata": {"uid": meta["uid"], "labels": {ROLE: role}}}
    try:
        await ctx.client.patch(Pod.ref, meta["name"], patch, meta["namespace"])
    except (Conflict, NotFound):
        return  # another Pod has its name now; its creation enqueues the cluster


def _name(holder: str) -> str:
    return holder.rpartition("_")[0]


def _text(labels: dict[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items())
