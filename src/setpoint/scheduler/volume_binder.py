"""Binds volumes of claims with WaitForFirstConsumer: what each node offers, reservations, and their binding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import numpy as np

from setpoint.kinds.storage.binding import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    annotations_of,
    capacity,
    claim_class,
    claim_reference,
    has_access_modes,
    is_reserved_for,
    requested,
    same_attributes_class,
    same_volume_mode,
    volume_class,
    waits_for_consumer,
)
from setpoint.meta.goformat import quote
from setpoint.meta.node_fit import node_selector
from setpoint.meta.objects import ObjView
from setpoint.meta.quantity import compare, value
from setpoint.meta.selectors import from_label_selector
from setpoint.scheduler.affinity import LabelRequirement, NodeSelector
from setpoint.scheduler.framework import Refusal, Rejected
from setpoint.scheduler.listers import Listers
from setpoint.scheduler.node_table import Mask, NodeTable

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node, PersistentVolume, PersistentVolumeClaim, Pod

_NO_PROVISIONER = "kubernetes.io/no-provisioner"
WRONG_NODE = "node(s) didn't match PersistentVolume's node affinity"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
VOLUME_MISSING = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
BIND_TIMEOUT = 600.0
UNBOUND_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"


def pod_claims(pod: Pod) -> Iterator[tuple[str, bool]]:
    """Yield the name of each claim that a Pod uses, and whether it is an ephemeral claim."""
    for volume in pod["spec"].get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            yield volume["persistentVolumeClaim"].get("claimName") or "", False
        elif "ephemeral" in volume:
            yield f"{pod['metadata']['name']}-{volume['name']}", True


def uses_claim(pod: Pod, claim: PersistentVolumeClaim | None) -> bool:
    if claim is None or claim["metadata"]["namespace"] != pod["metadata"]["namespace"]:
        return False
    return any(name == claim["metadata"]["name"] for name, _ in pod_claims(pod))


def _is_for_pod(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    uid = pod["metadata"]["uid"]
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("uid") == uid for owner in owners)


def _is_fully_bound(claim: PersistentVolumeClaim) -> bool:
    return bool((claim.get("spec") or {}).get("volumeName")) and BIND_COMPLETED in annotations_of(claim)


def _could_serve(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether the volume satisfies the claim, regardless of the node. A reserved one need only match in size and
    mode."""
    mine = is_reserved_for(volume, claim)
    if (volume["spec"].get("claimRef") and not mine) or "deletionTimestamp" in volume["metadata"]:
        return False
    if compare(capacity(volume), requested(claim)) < 0:
        return False
    if not same_volume_mode(volume, claim) or not same_attributes_class(volume, claim):
        return False
    selector = claim["spec"].get("selector")
    return mine or (
        (volume.get("status") or {}).get("phase") == "Available"
        and (selector is None or from_label_selector(selector).matches(volume["metadata"].get("labels") or {}))
        and volume_class(volume) == claim_class(claim)
        and has_access_modes(volume, claim)
    )


def _bound_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume | None:
    """Return the volume with a reference to the claim, or None if it is complete already."""
    if (volume["spec"].get("claimRef") or {}).get("uid") == claim["metadata"]["uid"] and is_reserved_for(volume, claim):
        return None
    noted = dict(annotations_of(volume))
    if not is_reserved_for(volume, claim):
        noted[BOUND_BY_CONTROLLER] = "yes"
    metadata = {**volume["metadata"], **({"annotations": noted} if noted else {})}
    spec = {**volume["spec"], "claimRef": claim_reference(claim)}
    return cast("PersistentVolume", {**volume, "metadata": metadata, "spec": spec})


def _with_selected_node(claim: PersistentVolumeClaim, node: str) -> PersistentVolumeClaim:
    return {**claim, "metadata": {**claim["metadata"], "annotations": {**annotations_of(claim), SELECTED_NODE: node}}}


def volume_limit(stored: ObjView) -> int | None:
    """Return the largest volume that a CSIStorageCapacity permits, or None."""
    limit = stored.get("maximumVolumeSize") or stored.get("capacity")
    return None if limit is None else value(limit)


T = TypeVar("T", bound=ObjView)


class Assumed(Generic[T]):
    """Objects in the state that was reserved, until the API shows a newer version."""

    def __init__(self) -> None:
        self._objects: dict[str, T] = {}

    def put(self, key: str, obj: T) -> None:
        self._objects[key] = obj

    def drop(self, key: str) -> None:
        self._objects.pop(key, None)

    def latest(self, key: str, current: T | None) -> T | None:
        assumed = self._objects.get(key)
        if assumed is None:
            return current
        if current is None or current["metadata"]["resourceVersion"] != assumed["metadata"]["resourceVersion"]:
            del self._objects[key]
            return current
        return assumed


class VolumeReservation:
    """The volumes and claims reserved for one Pod on its node."""

    __slots__ = ("binder", "claims", "node", "volumes")

    def __init__(self, binder: VolumeBinder) -> None:
        self.binder = binder
        self.volumes: list[tuple[PersistentVolume, PersistentVolumeClaim]] = []
        """Volumes to write, each with its claim."""
        self.claims: list[PersistentVolumeClaim] = []
        """Claims to annotate with the selected node, for which a volume will be provisioned."""
        self.node: Node | None = None
        """The selected node as it was at that time; None before the selection."""

    def __bool__(self) -> bool:
        return bool(self.volumes or self.claims)


class Plan:
    """The state of a Pod's claims and what each node offers for the unbound ones."""

    __slots__ = ("chosen", "claims", "refusals", "volumes")

    def __init__(self) -> None:
        self.claims: list[PersistentVolumeClaim] = []
        """Claims that wait for a node."""
        self.refusals: list[Refusal] = []
        self.volumes: list[PersistentVolume] = []
        self.chosen: list[Any] = []
        """The index of the volume for each claim, as an array over slots; -1 means that one must be provisioned."""


class VolumeBinder:
    def __init__(self, listers: Listers, bind_timeout: float = BIND_TIMEOUT) -> None:
        """Create a binder. A Pod waits at most `bind_timeout` seconds for its reserved volumes."""
        self.bind_timeout = bind_timeout
        self._listers = listers
        self._claims: Assumed[PersistentVolumeClaim] = Assumed()
        self._volumes: Assumed[PersistentVolume] = Assumed()

    def claim(self, key: str) -> PersistentVolumeClaim | None:
        return self._claims.latest(key, self._listers.claims.get(key))

    def volume(self, name: str) -> PersistentVolume | None:
        return self._volumes.latest(name, self._listers.volumes.get(name))

    # -- prefilter --------------------------------------------------------------------------------------------------

    def claims_of(self, pod: Pod) -> tuple[list[PersistentVolumeClaim], list[PersistentVolumeClaim]]:
        """Return the bound claims and those that wait for a node. Raise Rejected."""
        bound: list[PersistentVolumeClaim] = []
        waiting: list[PersistentVolumeClaim] = []
        immediate = False
        namespace = pod["metadata"]["namespace"]
        for name, is_ephemeral in pod_claims(pod):
            claim = self.claim(f"{namespace}/{name}")
            if claim is None:
                if is_ephemeral:
                    what = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
                    raise Rejected(what)
                raise Rejected(f'persistentvolumeclaim "{name}" not found')
            volume_name = (claim.get("spec") or {}).get("volumeName") or ""
            if (claim.get("status") or {}).get("phase") == "Lost":
                missing = f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume_name}"'
                raise Rejected(missing)
            if "deletionTimestamp" in claim["metadata"]:
                raise Rejected(f'persistentvolumeclaim "{name}" is being deleted')
            if is_ephemeral and not _is_for_pod(claim, pod):
                raise Rejected(
                    f"PVC {namespace}/{name} was not created for pod {namespace}/{pod['metadata']['name']} "
                    "(pod is not owner)"
                )
            if _is_fully_bound(claim):
                bound.append(claim)
            elif not volume_name and waits_for_consumer(self._listers.storage_classes.get(claim_class(claim))):
                waiting.append(claim)
            else:
                immediate = True
        if immediate:
            raise Rejected(UNBOUND_IMMEDIATE)
        return bound, waiting

    # -- filter -----------------------------------------------------------------------------------------------------

    def plan(
        self, table: NodeTable, bound: Sequence[PersistentVolumeClaim], waiting: Sequence[PersistentVolumeClaim]
    ) -> Plan:
        plan = Plan()
        wrong_node, missing = self._where_bound(table, bound)
        no_volume, no_space = self._where_waiting(table, waiting, plan)
        for reason, where in (
            (WRONG_NODE, wrong_node),
            (NO_VOLUME, no_volume),
            (NO_SPACE, no_space),
            (VOLUME_MISSING, missing),
        ):
            if where is not None and where.any():
                plan.refusals.append(Refusal(reason, where, unresolvable=True))
        return plan

    def _where_bound(self, table: NodeTable, bound: Sequence[PersistentVolumeClaim]) -> tuple[Mask | None, Mask | None]:
        wrong: Mask | None = None
        for claim in bound:
            volume = self.volume(claim["spec"]["volumeName"])
            if volume is None:
                undecided = np.ones(table.capacity, dtype=np.bool_) if wrong is None else ~wrong
                return wrong, undecided
            reachable = node_affinity(volume, table)
            if reachable is not None:
                wrong = ~reachable if wrong is None else wrong | ~reachable
        return wrong, None

    def _where_waiting(
        self, table: NodeTable, waiting: Sequence[PersistentVolumeClaim], plan: Plan
    ) -> tuple[Mask | None, Mask | None]:
        if not waiting:
            return None, None
        no_volume = np.zeros(table.capacity, dtype=np.bool_)
        no_space = np.zeros(table.capacity, dtype=np.bool_)
        selected = [claim for claim in waiting if SELECTED_NODE in annotations_of(claim)]
        for claim in selected:
            slot = table.slots.get(annotations_of(claim)[SELECTED_NODE])
            elsewhere = np.ones(table.capacity, dtype=np.bool_)
            if slot is not None:
                elsewhere[slot] = False
            no_volume |= elsewhere
        open_claims = [claim for claim in waiting if SELECTED_NODE not in annotations_of(claim)]
        # The smallest first, so that they get the smallest volumes.
        open_claims.sort(key=lambda claim: value(requested(claim)))
        plan.claims = [*open_claims, *selected]
        plan.volumes = sorted(
            (volume for name in self._listers.volumes.items if (volume := self.volume(name)) is not None),
            key=lambda volume: value(capacity(volume)),
        )
        for claim in open_claims:
            plan.chosen.append(self._choices(table, claim, plan))
        plan.chosen += [np.full(table.capacity, -1) for _ in selected]
        for claim, choices in zip(plan.claims, plan.chosen):
            to_be_made = choices < 0
            if to_be_made.any():
                possible, enough = self._where_provisionable(table, claim)
                no_volume |= to_be_made & ~possible
                no_space |= to_be_made & possible & ~enough
        return no_volume, no_space & ~no_volume

    def _choices(self, table: NodeTable, claim: PersistentVolumeClaim, plan: Plan) -> Any:
        """Return by slot the index of the smallest matching volume that no earlier claim uses."""
        choices = np.full(table.capacity, -1)
        fitting = [(i, volume) for i, volume in enumerate(plan.volumes) if _could_serve(volume, claim)]
        mine = [pair for pair in fitting if is_reserved_for(pair[1], claim)]
        for i, volume in mine or fitting:
            candidates = choices < 0
            reachable = node_affinity(volume, table)
            if reachable is not None:
                candidates &= reachable
            for earlier in plan.chosen:
                candidates &= earlier != i
            choices[candidates] = i
            if not (choices < 0).any():
                break
        return choices

    def _where_provisionable(self, table: NodeTable, claim: PersistentVolumeClaim) -> tuple[Mask, Mask]:
        """Return the slots where a volume could be provisioned, and those with enough capacity."""
        everywhere = np.ones(table.capacity, dtype=np.bool_)
        found = self._listers.storage_classes.get(claim_class(claim))
        if found is None or not found.get("provisioner") or found["provisioner"] == _NO_PROVISIONER:
            return ~everywhere, everywhere
        possible = everywhere
        topologies = found.get("allowedTopologies")
        if topologies:
            possible = ~everywhere
            for term in topologies:
                expressions = term.get("matchLabelExpressions") or ()
                part = everywhere.copy() if expressions else ~everywhere
                for expression in expressions:
                    part &= LabelRequirement(expression["key"], "In", expression.get("values") or ()).mask(table)
                possible = possible | part
        driver = self._listers.csi_drivers.get(found["provisioner"])
        if driver is None or not (driver.get("spec") or {}).get("storageCapacity"):
            return possible, everywhere
        enough = ~everywhere
        wanted = requested(claim)
        for stored in self._listers.csi_capacities.items.values():
            limit = volume_limit(stored)
            if stored.get("storageClassName") == claim_class(claim) and limit is not None:
                if compare(wanted, str(limit)) <= 0 and stored.get("nodeTopology") is not None:
                    enough |= _labelled(table, stored["nodeTopology"])
        return possible, enough

    # -- reservations -----------------------------------------------------------------------------------------------

    def reserve(self, plan: Plan, table: NodeTable, node: str) -> VolumeReservation:
        """Reserve the planned volumes for the Pod."""
        made = VolumeReservation(self)
        slot = table.slots[node]
        made.node = table.nodes[slot]
        for claim, choices in zip(plan.claims, plan.chosen):
            number = int(choices[slot])
            if number >= 0:
                volume = plan.volumes[number]
                written = _bound_for(volume, claim) or volume
                self._volumes.put(volume["metadata"]["name"], written)
                made.volumes.append((written, claim))
            else:
                chosen = _with_selected_node(claim, node)
                self._claims.put(_key(claim), chosen)
                made.claims.append(chosen)
        return made

    def unreserve(self, reservation: VolumeReservation) -> None:
        for volume, _ in reservation.volumes:
            self._volumes.drop(volume["metadata"]["name"])
        for claim in reservation.claims:
            self._claims.drop(_key(claim))

    def is_bound(self, reservation: VolumeReservation, node: str) -> bool:
        """Return whether everything is bound as reserved. Raise ValueError if it never will be."""
        for _, claim in reservation.volumes:
            current = self._listers.claims.get(_key(claim))
            if current is None or not _is_fully_bound(current):
                return False
        for claim in reservation.claims:
            current = self._listers.claims.get(_key(claim))
            name = claim["metadata"]["name"]
            if current is None:
                raise ValueError(f'failed to check pvc bindings: persistentvolumeclaim "{name}" not found')
            if annotations_of(current).get(SELECTED_NODE) not in (node, None):
                raise ValueError(f'provisioning failed for PVC "{name}"')
            if SELECTED_NODE not in annotations_of(current) and not self._is_unseen(claim, current):
                raise ValueError(f'selectedNode annotation reset for PVC "{name}"')
            made = current["spec"].get("volumeName")
            if made:
                volume = self._listers.volumes.get(made)
                if volume is None:
                    return False  # the cache is stale
                _check_affinity(volume, reservation.node)
            if not _is_fully_bound(current):
                return False
        return True

    def _is_unseen(self, claim: PersistentVolumeClaim, current: PersistentVolumeClaim) -> bool:
        """Return whether the cache does not show the write yet."""
        return bool(claim["metadata"]["resourceVersion"] == current["metadata"]["resourceVersion"])


def node_affinity(volume: PersistentVolume, table: NodeTable) -> Mask | None:
    """Return the slots from which the volume is accessible, or None for all."""
    required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required")
    return None if required is None else NodeSelector(required).mask(table)


def _check_affinity(volume: PersistentVolume, node: Node | None) -> None:
    """Raise ValueError if the volume cannot be reached from the node: a provisioner may make it elsewhere."""
    required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required")
    if required is None or node is None or node_selector(required)(node):
        return
    names = f"pv {quote(volume['metadata']['name'])} node affinity doesn't match node {quote(node['metadata']['name'])}"
    raise ValueError(f"{names}: no matching NodeSelectorTerms")


def _labelled(table: NodeTable, selector: ObjView) -> Mask:
    found = np.zeros(table.capacity, dtype=np.bool_)
    matches = from_label_selector(selector).matches
    for slot in table.slots.values():
        node = table.nodes[slot]
        found[slot] = node is not None and matches(node["metadata"].get("labels") or {})
    return found


def _key(claim: PersistentVolumeClaim) -> str:
    return f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
