"""Binds volumes of claims with WaitForFirstConsumer: what each node offers, reservations, and their binding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from setpoint.kinds.storage.binding import (
    SELECTED_NODE,
    annotations_of,
    capacity,
    claim_class,
    is_reserved_for,
    requested,
    waits_for_consumer,
)  # fmt: skip
from setpoint.meta.goformat import quote
from setpoint.meta.node_selectors import node_selector
from setpoint.meta.quantity import compare, value
from setpoint.meta.selectors import from_label_selector
from setpoint.scheduler.arrays import Mask
from setpoint.scheduler.framework import Refusal, Rejected
from setpoint.scheduler.listers import Listers
from setpoint.scheduler.node_selection import LabelRequirement, NodeSelector
from setpoint.scheduler.node_table import NodeTable
from setpoint.scheduler.volumes import (
    NO_PROVISIONER,
    bound_for,
    could_serve,
    is_for_pod,
    is_fully_bound,
    pod_claims,
    volume_limit,
    with_selected_node,
)  # fmt: skip

Obj = dict[str, Any]

WRONG_NODE = "node(s) didn't match PersistentVolume's node affinity"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
VOLUME_MISSING = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
BIND_TIMEOUT = 600.0
UNBOUND_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"


class Assumed:
    """Objects in the state that was reserved, until the API shows a newer version."""

    def __init__(self) -> None:
        self._objects: dict[str, Obj] = {}

    def put(self, key: str, obj: Obj) -> None:
        self._objects[key] = obj

    def drop(self, key: str) -> None:
        self._objects.pop(key, None)

    def latest(self, key: str, current: Obj | None) -> Obj | None:
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
        self.volumes: list[tuple[Obj, Obj]] = []
        """Volumes to write, each with its claim."""
        self.claims: list[Obj] = []
        """Claims to annotate with the selected node, for which a volume will be provisioned."""
        self.node: Obj | None = None
        """The selected node as it was at that time; None before the selection."""

    def __bool__(self) -> bool:
        return bool(self.volumes or self.claims)


class Plan:
    """The state of a Pod's claims and what each node offers for the unbound ones."""

    __slots__ = ("chosen", "claims", "refusals", "volumes")

    def __init__(self) -> None:
        self.claims: list[Obj] = []
        """Claims that wait for a node."""
        self.refusals: list[Refusal] = []
        self.volumes: list[Obj] = []
        self.chosen: list[Any] = []
        """The index of the volume for each claim, as an array over slots; -1 means that one must be provisioned."""


class VolumeBinder:
    def __init__(self, listers: Listers, bind_timeout: float = BIND_TIMEOUT) -> None:
        """Create a binder. A Pod waits at most `bind_timeout` seconds for its reserved volumes."""
        self.bind_timeout = bind_timeout
        self._listers = listers
        self._claims = Assumed()
        self._volumes = Assumed()

    def claim(self, key: str) -> Obj | None:
        return self._claims.latest(key, self._listers.claims.get(key))

    def volume(self, name: str) -> Obj | None:
        return self._volumes.latest(name, self._listers.volumes.get(name))

    # -- prefilter --------------------------------------------------------------------------------------------------

    def claims_of(self, pod: Obj) -> tuple[list[Obj], list[Obj]]:
        """Return the bound claims and those that wait for a node. Raise Rejected."""
        bound: list[Obj] = []
        waiting: list[Obj] = []
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
            if is_ephemeral and not is_for_pod(claim, pod):
                raise Rejected(
                    f"PVC {namespace}/{name} was not created for pod {namespace}/{pod['metadata']['name']} "
                    "(pod is not owner)"
                )
            if is_fully_bound(claim):
                bound.append(claim)
            elif not volume_name and waits_for_consumer(self._listers.storage_classes.get(claim_class(claim))):
                waiting.append(claim)
            else:
                immediate = True
        if immediate:
            raise Rejected(UNBOUND_IMMEDIATE)
        return bound, waiting

    # -- filter -----------------------------------------------------------------------------------------------------

    def plan(self, table: NodeTable, bound: Sequence[Obj], waiting: Sequence[Obj]) -> Plan:
        plan = Plan()
        wrong_node, missing = self._where_bound(table, bound)
        no_volume, no_space = self._where_waiting(table, waiting, plan)
        for reason, where in (
            (WRONG_NODE, wrong_node), (NO_VOLUME, no_volume), (NO_SPACE, no_space), (VOLUME_MISSING, missing),
        ):  # fmt: skip
            if where is not None and where.any():
                plan.refusals.append(Refusal(reason, where, unresolvable=True))
        return plan

    def _where_bound(self, table: NodeTable, bound: Sequence[Obj]) -> tuple[Mask | None, Mask | None]:
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

    def _where_waiting(self, table: NodeTable, waiting: Sequence[Obj], plan: Plan) -> tuple[Mask | None, Mask | None]:
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

    def _choices(self, table: NodeTable, claim: Obj, plan: Plan) -> Any:
        """Return by slot the index of the smallest matching volume that no earlier claim uses."""
        choices = np.full(table.capacity, -1)
        fitting = [(i, volume) for i, volume in enumerate(plan.volumes) if could_serve(volume, claim)]
        mine = [pair for pair in fitting if is_reserved_for(pair[1], claim)]
        for i, volume in mine or fitting:
            here = choices < 0
            reachable = node_affinity(volume, table)
            if reachable is not None:
                here &= reachable
            for earlier in plan.chosen:
                here &= earlier != i
            choices[here] = i
            if not (choices < 0).any():
                break
        return choices

    def _where_provisionable(self, table: NodeTable, claim: Obj) -> tuple[Mask, Mask]:
        """Return the slots where a volume could be provisioned, and those with enough capacity."""
        everywhere = np.ones(table.capacity, dtype=np.bool_)
        found = self._listers.storage_classes.get(claim_class(claim))
        if found is None or not found.get("provisioner") or found["provisioner"] == NO_PROVISIONER:
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
                written = bound_for(volume, claim) or volume
                self._volumes.put(volume["metadata"]["name"], written)
                made.volumes.append((written, claim))
            else:
                chosen = with_selected_node(claim, node)
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
            if current is None or not is_fully_bound(current):
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
            if not is_fully_bound(current):
                return False
        return True

    def _is_unseen(self, claim: Obj, current: Obj) -> bool:
        """Return whether the cache does not show the write yet."""
        return bool(claim["metadata"]["resourceVersion"] == current["metadata"]["resourceVersion"])


def node_affinity(volume: Obj, table: NodeTable) -> Mask | None:
    """Return the slots from which the volume is accessible, or None for all."""
    required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required")
    return None if required is None else NodeSelector(required).mask(table)


def _check_affinity(volume: Obj, node: Obj | None) -> None:
    """Raise ValueError if the volume cannot be reached from the node: a provisioner may make it elsewhere."""
    required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required")
    if required is None or node is None or node_selector(required)(node):
        return
    names = f"pv {quote(volume['metadata']['name'])} node affinity doesn't match node {quote(node['metadata']['name'])}"
    raise ValueError(f"{names}: no matching NodeSelectorTerms")


def _labelled(table: NodeTable, selector: Obj) -> Mask:
    found = np.zeros(table.capacity, dtype=np.bool_)
    matches = from_label_selector(selector).matches
    for slot in table.slots.values():
        node = table.nodes[slot]
        found[slot] = node is not None and matches(node["metadata"].get("labels") or {})
    return found


def _key(claim: Obj) -> str:
    return f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
