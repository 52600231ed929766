"""The faults that users can inject into a cluster, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

DEFAULT_SECONDS, MAX_SECONDS = 60.0, 600.0
LEASE_SECONDS = 20.0
RESTART_SECONDS = 5.0


class FaultKind(NamedTuple):
    """A fault that can be injected."""

    id: str
    title: str
    """The text of its button."""
    about: str
    """A description of the consequences."""
    group: str
    """The section of the menu: `node`, `pod`, `image`, `loops` or `api`."""
    fields: tuple[str, ...] = ()
    """The fields that a request must have."""
    options: Mapping[str, float | str] = {}
    """The fields that a request may have, with their defaults."""
    simulated: bool = False
    """Whether it is possible on simulated nodes only."""
    ends: str = "undo"
    """How it ends: `undo` by request, `time` after its `seconds`, `itself` because the cluster repairs it."""

    def to_json(self) -> dict[str, Any]:
        found = self._asdict()
        return {**found, "fields": [*self.fields], "options": dict(self.options)}


_FOR_A_TIME: Final[Mapping[str, float | str]] = {"seconds": DEFAULT_SECONDS}
_POD = ("namespace", "pod")
_CONTAINER: Final[Mapping[str, float | str]] = {"container": ""}

FAULTS: Final[dict[str, FaultKind]] = {
    each.id: each
    for each in (
        FaultKind(
            "node-stop",
            "Power a node off",
            "Its containers die. After about 50 s the node counts as lost, and after five more minutes its Pods are "
            "replaced elsewhere.",
            "node",
            ("node",),
            simulated=True,
        ),
        FaultKind(
            "node-partition",
            "Cut a node off",
            "Its containers run on, but it does not reach the control plane any more.",
            "node",
            ("node",),
            simulated=True,
        ),
        FaultKind("node-cordon", "Cordon a node", "New Pods are not scheduled to it.", "node", ("node",)),
        FaultKind(
            "node-drain",
            "Drain a node",
            "It is cordoned, and its Pods are evicted as far as disruption budgets allow. Undoing makes it schedulable "
            "again; the Pods do not move back.",
            "node",
            ("node",),
        ),
        FaultKind(
            "pod-delete", "Delete a Pod", "Its controller replaces it, if it has one.", "pod", _POD, ends="itself"
        ),
        FaultKind(
            "pod-evict",
            "Evict a Pod",
            "It is deleted unless that would violate a disruption budget.",
            "pod",
            _POD,
            ends="itself",
        ),
        FaultKind(
            "container-crash",
            "Crash a container",
            "It exits with code 1. The node restarts it as its restart policy says, after a back-off that grows.",
            "pod",
            _POD,
            {**_CONTAINER, "code": 1},
            simulated=True,
            ends="itself",
        ),
        FaultKind(
            "container-hang",
            "Let a container hang",
            "Its probes fail: the node restarts it because of the liveness probe, and the Pod gets no traffic because "
            "of the readiness probe.",
            "pod",
            _POD,
            _CONTAINER,
            simulated=True,
        ),
        FaultKind(
            "container-unready",
            "Fail the readiness of a container",
            "It runs on, but its Pod is taken out of its Services.",
            "pod",
            _POD,
            _CONTAINER,
            simulated=True,
        ),
        FaultKind(
            "container-oom",
            "Let a container use too much memory",
            "It is OOMKilled whenever it starts, until this is undone. It needs a memory limit.",
            "pod",
            _POD,
            _CONTAINER,
            simulated=True,
        ),
        FaultKind(
            "image-broken",
            "Break an image",
            "New containers of it end in ErrImagePull; those that run are not affected.",
            "image",
            ("image",),
            simulated=True,
        ),
        FaultKind(
            "registry-away",
            "Take the registry away",
            "No image can be pulled. Nodes that have an image already can start it.",
            "image",
            simulated=True,
        ),
        FaultKind(
            "component-stop",
            "Stop the controllers or the scheduler",
            "Nothing is reconciled, or no Pod gets a node, until it is started again.",
            "loops",
            ("component",),
        ),
        FaultKind(
            "component-kill",
            "Kill the controllers or the scheduler",
            f"It ends without warning and starts again after {RESTART_SECONDS:g} s, with empty caches.",
            "loops",
            ("component",),
            ends="time",
        ),
        FaultKind(
            "lease-lost",
            "Take the Lease away",
            f"Another holder has the Lease for {LEASE_SECONDS:g} s. The loops stop, and start anew afterwards.",
            "loops",
            ("component",),
            ends="time",
        ),
        FaultKind(
            "api-slow",
            "Slow the API server down",
            "Every request takes longer.",
            "api",
            (),
            {**_FOR_A_TIME, "milliseconds": 200},
            ends="time",
        ),
        FaultKind(
            "api-refuses",
            "Let the API server refuse requests",
            "A part of all requests is answered with 429 Too Many Requests; clients try again.",
            "api",
            (),
            {**_FOR_A_TIME, "percent": 50},
            ends="time",
        ),
        FaultKind(
            "quota-full",
            "Fill the quota of a namespace",
            "A ResourceQuota allows as many Pods as there are, and no more.",
            "api",
            ("namespace",),
        ),
    )
}
"""All faults by id, in the order of the menu."""

COMPONENTS: Final = {"controllers": "kube-controller-manager", "scheduler": "kube-scheduler"}
"""The components that can be stopped, with the names of their Leases."""


def fault_sentence(fault: str, args: Mapping[str, Any]) -> str:
    """Return what a fault does, as the end of a sentence whose subject is its author: `powered node-2 off`."""
    pod = f"pod {args.get('namespace', '')}/{args.get('pod', '')}"
    container = f"container {args['container']} of {pod}" if args.get("container") else f"the containers of {pod}"
    seconds = f"for {float(args.get('seconds', DEFAULT_SECONDS)):g} s"
    match fault:
        case "node-stop":
            return f"powered {args['node']} off"
        case "node-partition":
            return f"cut {args['node']} off"
        case "node-cordon":
            return f"cordoned {args['node']}"
        case "node-drain":
            return f"drained {args['node']}"
        case "pod-delete":
            return f"deleted {pod}"
        case "pod-evict":
            return f"evicted {pod}"
        case "container-crash":
            return f"crashed {container} with code {args.get('code', 1)}"
        case "container-hang":
            return f"let {container} hang"
        case "container-unready":
            return f"failed the readiness of {container}"
        case "container-oom":
            return f"let {container} use too much memory"
        case "image-broken":
            return f"broke the image {args['image']}"
        case "registry-away":
            return "took the registry away"
        case "component-stop":
            return f"stopped the {args['component']}"
        case "component-kill":
            return f"killed the {args['component']}"
        case "lease-lost":
            return f"took the Lease of the {args['component']} for {LEASE_SECONDS:g} s"
        case "api-slow":
            return f"slowed the API server down by {args.get('milliseconds', 200)} ms {seconds}"
        case "api-refuses":
            return f"let the API server refuse {args.get('percent', 50)} % of all requests {seconds}"
        case "quota-full":
            return f"filled the quota of namespace {args['namespace']}"
        case _:
            return fault
