"""Plans which slices to create, update and delete with as few changes as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from setpoint.controllers.endpointslice.endpoints import (
    EndpointKey,
    PortsKey,
    endpoint_key,
    endpoint_of,
    is_equivalent,
    is_owned_by,
    labels_of,
    new_slice,
    own_labels,
    ports_key,
    ports_of,
)
from setpoint.controllers.service_pods import can_serve
from setpoint.meta.objects import Obj, ObjView

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node, Pod, Service


@dataclass(slots=True)
class Plan:
    """The changes that turn the slices of a Service into those it should have."""

    create: list[Obj] = field(default_factory=list)
    update: list[Obj] = field(default_factory=list)
    """Modified copies of existing slices."""
    delete: list[Obj] = field(default_factory=list)
    unchanged: list[Obj] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Reasons why expected endpoints are missing."""

    def extend(self, other: Plan) -> None:
        self.create += other.create
        self.update += other.update
        self.delete += other.delete


@dataclass(slots=True)
class Wanted:
    """The endpoints that offer one set of ports."""

    ports: list[Obj]
    endpoints: dict[EndpointKey, Obj] = field(default_factory=dict)


def plan(
    service: Service,
    pods: Iterable[Pod],
    node_of: Callable[[str], Node | None],
    slices: Sequence[Obj],
    family: str,
    most: int,
    manager: str,
) -> Plan:
    """Plan the slices of one address family, without hints. `slices` are the existing ones."""
    wanted, problems = _wanted(service, pods, node_of, family)

    def fresh(ports: list[Obj]) -> Obj:
        return new_slice(service, family, ports, [], manager)

    return _arrange(service, wanted, slices, most, labels_of(service, manager), fresh, problems)


def _wanted(
    service: Service, pods: Iterable[Pod], node_of: Callable[[str], Node | None], family: str
) -> tuple[dict[PortsKey, Wanted], list[str]]:
    wanted: dict[PortsKey, Wanted] = {}
    problems: list[str] = []
    for pod in pods:
        if not can_serve(pod, terminating=True):
            continue
        ports = ports_of(service, pod)
        group = wanted.setdefault(ports_key(ports), Wanted(ports))
        node_name = pod["spec"].get("nodeName") or ""
        node = node_of(node_name)
        if node is None and not service["spec"].get("publishNotReadyAddresses"):
            # The cache may not have the node yet; skip the Pod without affecting the others.
            namespace, name = service["metadata"]["namespace"], service["metadata"]["name"]
            problems.append(
                f"skipping Pod {pod['metadata']['name']} for Service {namespace}/{name}: Node {node_name} Not Found"
            )
            continue
        endpoint = endpoint_of(pod, node, service, family)
        if endpoint["addresses"]:
            group.endpoints[endpoint_key(endpoint)] = endpoint
    return wanted, problems


def _arrange(
    owner: ObjView,
    wanted: dict[PortsKey, Wanted],
    slices: Sequence[Obj],
    most: int,
    labels: dict[str, str],
    fresh: Callable[[list[Obj]], Obj],
    problems: list[str],
    *,
    placeholder: bool = True,
) -> Plan:
    """Plan the slices for the wanted endpoints.

    `fresh(ports)` returns a new slice without endpoints. With `placeholder`, an empty slice is created when there would
    be none, which distinguishes a Service without endpoints from one that was not reconciled yet.
    """
    result = Plan(problems=problems)
    by_ports: dict[PortsKey, list[Obj]] = {}
    for found in slices:
        if is_owned_by(found, owner):
            by_ports.setdefault(ports_key(found.get("ports")), []).append(found)
        else:
            result.delete.append(found)
    for key, group in wanted.items():
        result.extend(_arrange_group(group, by_ports.pop(key, []), most, labels, fresh))
    for left in by_ports.values():
        result.delete += left
    if placeholder and len(slices) == len(result.delete) and not result.create:
        empty = fresh([])
        if len(result.delete) == 1 and _is_placeholder(result.delete[0], empty):
            result.delete = []
        else:
            result.create.append(empty)
    touched = {found["metadata"]["name"] for found in (*result.update, *result.delete)}
    result.unchanged = [found for found in slices if found["metadata"]["name"] not in touched]
    return result


def _is_placeholder(found: Obj, empty: Obj) -> bool:
    return (
        not found.get("endpoints")
        and not found.get("ports")
        and found["addressType"] == empty["addressType"]
        and (found["metadata"].get("labels") or {}) == empty["metadata"]["labels"]
    )


def _arrange_group(
    group: Wanted, slices: list[Obj], most: int, labels: dict[str, str], fresh: Callable[[list[Obj]], Obj]
) -> Plan:
    result = Plan()
    missing = dict(group.endpoints)
    same_labels = own_labels({"metadata": {"labels": labels}})
    untouched: list[Obj] = []
    for found in slices:
        retained, changed = _retained(found, missing)
        if changed and not retained:
            result.delete.append(found)
        elif changed or own_labels(found) != same_labels:
            result.update.append(_changed(found, retained, labels))
        else:
            untouched.append(found)
    rest = [missing[key] for key in missing]
    # The fullest first: adding to slices that are written anyway costs least.
    for found in sorted(result.update, key=lambda each: -len(each["endpoints"])):
        _fill(found, rest, most)
    while rest:
        fitting = _closest_fit(untouched, len(rest), most)
        if fitting is not None:
            untouched.remove(fitting)
            target = _changed(fitting, list(fitting.get("endpoints") or ()), labels)
            result.update.append(target)
        else:
            target = fresh(group.ports)
            result.create.append(target)
        _fill(target, rest, most)
    return result


def _retained(found: Obj, missing: dict[EndpointKey, Obj]) -> tuple[list[Obj], bool]:
    """Return the endpoints that stay in a slice, updated, and whether that is a change. Found endpoints are removed
    from `missing`."""
    retained, changed = [], False
    for endpoint in found.get("endpoints") or ():
        wanted = missing.pop(endpoint_key(endpoint), None)
        if wanted is None:
            changed = True
            continue
        same = is_equivalent(wanted, endpoint)
        changed = changed or not same
        retained.append(wanted)
    return retained, changed


def _changed(found: Obj, endpoints: list[Obj], labels: dict[str, str]) -> Obj:
    return {**found, "metadata": {**found["metadata"], "labels": labels}, "endpoints": endpoints}


def _fill(target: Obj, rest: list[Obj], most: int) -> None:
    free = max(0, most - len(target["endpoints"]))
    target["endpoints"] = [*target["endpoints"], *rest[:free]]
    del rest[:free]


def _closest_fit(slices: list[Obj], count: int, most: int) -> Obj | None:
    """Return the slice that would be fullest after adding the endpoints, or None if they fit into none."""
    if count >= most:
        return None
    fitting = [found for found in slices if count + len(found.get("endpoints") or ()) <= most]
    return max(fitting, key=lambda found: len(found.get("endpoints") or ()), default=None)


def reuse(result: Plan, owner: ObjView) -> None:
    """Convert a slice that would be deleted into one that would be created."""
    for surplus in tuple(result.delete):
        if not result.create:
            return
        made = result.create[-1]
        if surplus["addressType"] != made["addressType"] or not is_owned_by(surplus, owner):
            continue
        result.create.pop()
        result.delete.remove(surplus)
        old = surplus["metadata"]
        meta = {**made["metadata"], "name": old["name"], "uid": old["uid"], "resourceVersion": old["resourceVersion"]}
        result.update.append({**made, "metadata": meta})
