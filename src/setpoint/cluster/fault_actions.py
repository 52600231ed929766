"""Executes faults (`view/faults.py`): by ordinary requests of the user who injects them, or commands to components."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from setpoint.apiserver.api_resources import CacheReader
from setpoint.apiserver.disturbance import Disturbance
from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.cluster.virtual.change import eviction, requests_of
from setpoint.meta import quantity
from setpoint.meta.errors import ApiError, BadRequest, Conflict, NotFound
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.times import format_micro
from setpoint.node.runtime.images import parse_reference
from setpoint.node.simulation_annotations import PARTITIONED, PREFIX, STATE, STOPPED
from setpoint.view.faults import COMPONENTS, LEASE_SECONDS, RESTART_SECONDS

if TYPE_CHECKING:
    from setpoint.apiserver.server import ApiServer
    from setpoint.cluster.component import Component, ElectedComponent
    from setpoint.cluster.components import Components
    from setpoint.meta.clock import Clock, Ids

Args = Mapping[str, Any]
NODES, PODS = builtin("nodes"), builtin("pods")
LEASES = builtin("leases", "coordination.k8s.io")
_QUOTAS = builtin("resourcequotas")
_QUOTA_NAME = "injected-fault"
_HOLDER = "fault-injection"
_SIMULATED = "simulated:"
_MAX_EVICTIONS = 500


@dataclass(slots=True)
class Effect:
    """The consequences of a fault that was injected."""

    undo: Callable[[Client], Awaitable[None]] | None = None
    """Ends it, with the rights of a user; None if it has ended already, or ends by itself."""
    seconds: float = 0.0
    """The time after which it ends by itself; 0 means that it does not."""
    expire: Callable[[], Awaitable[None]] | None = None
    """Ends it after that time; None if nothing has to be done."""
    holds: Callable[[], bool] = lambda: True
    """Returns whether it is still in effect: objects may have been changed otherwise."""
    note: str = ""
    """Further consequences, as the end of the sentence about the fault; usually empty."""
    about: ObjView | None = None
    """The object that it is about; None if it is about a component or the server."""


class FaultActions:
    """Executes faults in one cluster."""

    def __init__(self, api: ApiServer, components: Components, clock: Clock, ids: Ids) -> None:
        self._api = api
        self._components = components
        self._clock = clock
        self._reader = CacheReader(api.resources)
        self._disturbance = Disturbance(clock, ids)
        self._by_id: dict[str, Callable[[Client, Args], Awaitable[Effect]]] = {
            "node-stop": lambda client, args: self._node_state(client, args["node"], STOPPED),
            "node-partition": lambda client, args: self._node_state(client, args["node"], PARTITIONED),
            "node-cordon": self._cordon,
            "node-drain": self._drain,
            "pod-delete": self._delete_pod,
            "pod-evict": self._evict_pod,
            "container-crash": self._crash,
            "container-hang": self._hang,
            "container-unready": self._unready,
            "container-oom": self._out_of_memory,
            "image-broken": self._break_image,
            "registry-away": self._registry_away,
            "component-stop": self._stop_component,
            "component-kill": self._kill_component,
            "lease-lost": self._take_lease,
            "api-slow": self._slow_api,
            "api-refuses": self._refuse,
            "quota-full": self._fill_quota,
        }

    async def inject(self, fault: str, client: Client, args: Args) -> Effect:
        """Execute a fault as the user of the client. Raises ApiError."""
        return await self._by_id[fault](client, args)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    async def _node_state(self, client: Client, name: str, state: str) -> Effect:
        node = await client.get(NODES, name)
        if not is_simulated(node):
            raise Conflict(f"node {name} is real: only simulated nodes can be stopped or cut off here")
        changed = await client.patch(NODES, name, {"metadata": {"annotations": {STATE: state}}})
        undo = self.node_started(name)
        return Effect(undo, holds=lambda: _annotations(self._node(name)).get(STATE) == state, about=changed)

    def node_started(self, name: str) -> Callable[[Client], Awaitable[None]]:
        """Return the function that starts a node which is stopped or cut off."""

        async def undo(by: Client) -> None:
            with suppress(NotFound):
                await by.patch(NODES, name, {"metadata": {"annotations": {STATE: None}}})

        return undo

    async def _cordon(self, client: Client, args: Args) -> Effect:
        name = args["node"]
        changed = await client.patch(NODES, name, {"spec": {"unschedulable": True}})

        async def undo(by: Client) -> None:
            with suppress(NotFound):
                await by.patch(NODES, name, {"spec": {"unschedulable": None}})

        def holds() -> bool:
            return bool((self._node(name).get("spec") or {}).get("unschedulable"))

        return Effect(undo, holds=holds, about=changed)

    async def _drain(self, client: Client, args: Args) -> Effect:
        _, *evictions = await requests_of(client, {"type": "drain", "node": args["node"]})
        effect = await self._cordon(client, args)
        evicted, refused = 0, ""
        for each in evictions[:_MAX_EVICTIONS]:
            try:
                await client.sender.json(each.method, each.path, body=each.body)
                evicted += 1
            except NotFound:
                continue
            except ApiError as error:
                refused = f"; not possible: {each.text}: {error.message}"
        effect.note = f", {evicted} {'Pod is' if evicted == 1 else 'Pods are'} evicted{refused}"
        return effect

    def _node(self, name: str) -> ObjView:
        return self._reader.get("", "nodes", "", name) or {}

    # -- Pods ----------------------------------------------------------------------------------------------------------

    async def _delete_pod(self, client: Client, args: Args) -> Effect:
        pod = await client.get(PODS, args["pod"], args["namespace"])
        await client.delete(PODS, args["pod"], args["namespace"])
        return Effect(about=pod)

    async def _evict_pod(self, client: Client, args: Args) -> Effect:
        pod = await client.get(PODS, args["pod"], args["namespace"])
        each = eviction(args["namespace"], args["pod"])
        await client.sender.json(each.method, each.path, body=each.body)
        return Effect(about=pod)

    async def _simulated_pod(self, client: Client, args: Args) -> Obj:
        """Return a Pod on a simulated node. Raises ApiError."""
        pod = await client.get(PODS, args["pod"], args["namespace"])
        node = pod["spec"].get("nodeName", "")
        if not node:
            raise Conflict(f"pod {args['pod']} runs nowhere yet")
        if not is_simulated(self._node(node)):
            raise Conflict(f"pod {args['pod']} runs on the real node {node}: its containers cannot be disturbed here")
        if args.get("container") and not _containers(pod, args["container"]):
            raise NotFound(f"pod {args['pod']} has no container {args['container'][:63]}")
        return pod

    async def _annotate(self, client: Client, args: Args, values: Mapping[str, str]) -> Effect:
        """Set annotations for one container, or for all of the Pod. Undoing removes them."""
        name, namespace = args["pod"], args["namespace"]
        suffix = f".{args['container']}" if args.get("container") else ""
        wanted = {f"{PREFIX}{key}{suffix}": value for key, value in values.items()}
        changed = await client.patch(PODS, name, {"metadata": {"annotations": wanted}}, namespace)

        async def undo(by: Client) -> None:
            with suppress(NotFound):
                await by.patch(PODS, name, {"metadata": {"annotations": dict.fromkeys(wanted)}}, namespace)

        def holds() -> bool:
            found = _annotations(self._reader.get("", "pods", namespace, name) or {})
            return all(found.get(key) == value for key, value in wanted.items())

        return Effect(undo, holds=holds, about=changed)

    async def _crash(self, client: Client, args: Args) -> Effect:
        pod, code = await self._simulated_pod(client, args), int(args.get("code", 1))
        suffix = f".{args['container']}" if args.get("container") else ""
        before = _annotations(pod).get(f"{PREFIX}exit-code{suffix}", "")
        # A container exits once for every new value, of which the last eight bits are the code.
        value = code if not before.isdigit() else (int(before) // 256 + 1) * 256 + code
        effect = await self._annotate(client, args, {"exit-code": str(value)})
        effect.undo = None
        return effect

    async def _hang(self, client: Client, args: Args) -> Effect:
        pod = await self._simulated_pod(client, args)
        if not _has_probe(pod, args, "livenessProbe", "readinessProbe"):
            raise Conflict(f"pod {args['pod']} has no liveness or readiness probe, so nothing notices that it hangs")
        return await self._annotate(client, args, {"liveness": "false", "readiness": "false"})

    async def _unready(self, client: Client, args: Args) -> Effect:
        pod = await self._simulated_pod(client, args)
        if not _has_probe(pod, args, "readinessProbe"):
            raise Conflict(f"pod {args['pod']} has no readiness probe that could fail")
        return await self._annotate(client, args, {"readiness": "false"})

    async def _out_of_memory(self, client: Client, args: Args) -> Effect:
        pod = await self._simulated_pod(client, args)
        limits = [
            limit
            for each in _containers(pod, args.get("container", ""))
            if (limit := ((each.get("resources") or {}).get("limits") or {}).get("memory"))
        ]
        if not limits:
            raise Conflict(f"pod {args['pod']} has no memory limit that could be exceeded")
        most = max(quantity.value(limit) for limit in limits)
        return await self._annotate(client, args, {"memory": str(2 * most)})

    # -- images --------------------------------------------------------------------------------------------------------

    def _require_fleet(self) -> None:
        if self._components.fleet.current is None:
            raise Conflict("images can be broken only where the nodes are simulated in the server's process")

    async def _break_image(self, client: Client, args: Args) -> Effect:
        self._require_fleet()
        reference = parse_reference(args["image"])
        if reference is None:
            raise BadRequest(f"{args['image'][:200]} is not the name of an image")
        broken, name = self._components.image_faults.broken, reference.name
        broken.add(name)

        async def undo(by: Client) -> None:
            broken.discard(name)

        return Effect(undo, holds=lambda: name in broken)

    async def _registry_away(self, client: Client, args: Args) -> Effect:
        self._require_fleet()
        faults = self._components.image_faults
        faults.registry_away = True

        async def undo(by: Client) -> None:
            faults.registry_away = False

        return Effect(undo, holds=lambda: faults.registry_away)

    # -- components ----------------------------------------------------------------------------------------------------

    def _component(self, args: Args) -> Component[ElectedComponent]:
        if args["component"] not in COMPONENTS:
            raise BadRequest(f"component must be one of {', '.join(COMPONENTS)}")
        components = self._components
        return components.controllers if args["component"] == "controllers" else components.scheduler

    def _running(self, args: Args) -> Component[ElectedComponent]:
        component = self._component(args)
        if not component.is_started:
            raise Conflict(f"the {args['component']} are stopped already")
        return component

    async def _stop_component(self, client: Client, args: Args) -> Effect:
        component = self._running(args)
        await component.stop()

        async def undo(by: Client) -> None:
            if not component.is_started:
                await self._components.start(component)

        return Effect(undo, holds=lambda: not component.is_started)

    async def _kill_component(self, client: Client, args: Args) -> Effect:
        component = self._running(args)
        await component.kill()

        async def restart() -> None:
            if not component.is_started:
                await self._components.start(component)

        async def undo(by: Client) -> None:
            await restart()

        return Effect(undo, RESTART_SECONDS, restart, lambda: not component.is_started)

    async def _take_lease(self, client: Client, args: Args) -> Effect:
        self._component(args)
        name, namespace = COMPONENTS[args["component"]], "kube-system"
        try:
            lease = await client.get(LEASES, name, namespace)
        except NotFound:
            raise Conflict(f"there is no Lease {name}: the {args['component']} run without leader election") from None
        spec, now = lease.get("spec") or {}, format_micro(self._clock.now())
        taken = {
            **spec,
            "holderIdentity": _HOLDER,
            "leaseDurationSeconds": int(LEASE_SECONDS),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": (spec.get("leaseTransitions") or 0) + 1,
        }
        changed = await client.update({**lease, "spec": taken})

        def holds() -> bool:
            current = self._reader.get("coordination.k8s.io", "leases", namespace, name) or {}
            return (current.get("spec") or {}).get("holderIdentity") == _HOLDER

        async def undo(by: Client) -> None:
            if holds():
                released = {"holderIdentity": "", "leaseDurationSeconds": 1}
                await by.patch(LEASES, name, {"spec": released}, namespace)

        return Effect(undo, LEASE_SECONDS, None, holds, about=changed)

    # -- the API server ------------------------------------------------------------------------------------------------

    async def _slow_api(self, client: Client, args: Args) -> Effect:
        self._disturbance.delay = float(args["milliseconds"]) / 1000
        return self._disturbed(args, "delay")

    async def _refuse(self, client: Client, args: Args) -> Effect:
        self._disturbance.refused_percent = int(args["percent"])
        return self._disturbed(args, "refused_percent")

    def _disturbed(self, args: Args, field: str) -> Effect:
        disturbance, value = self._disturbance, getattr(self._disturbance, field)
        self._api.disturbance = disturbance

        async def end() -> None:
            setattr(disturbance, field, 0)
            self._api.disturbance = disturbance if disturbance.is_active else None

        async def undo(by: Client) -> None:
            await end()

        return Effect(undo, float(args["seconds"]), end, lambda: getattr(disturbance, field) == value)

    async def _fill_quota(self, client: Client, args: Args) -> Effect:
        namespace = args["namespace"]
        pods = (await client.list(PODS, namespace, field_selector="status.phase!=Succeeded,status.phase!=Failed")).items
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": _QUOTA_NAME, "namespace": namespace},
            "spec": {"hard": {"pods": str(len(pods))}},
        }
        created = await client.create(quota)

        async def undo(by: Client) -> None:
            with suppress(NotFound):
                await by.delete(_QUOTAS, _QUOTA_NAME, namespace)

        def holds() -> bool:
            return self._reader.get("", "resourcequotas", namespace, _QUOTA_NAME) is not None

        return Effect(undo, holds=holds, about=created)


def is_simulated(node: ObjView) -> bool:
    info = (node.get("status") or {}).get("nodeInfo") or {}
    return str(info.get("containerRuntimeVersion", "")).startswith(_SIMULATED)


def _annotations(obj: ObjView) -> Mapping[str, str]:
    return (obj.get("metadata") or {}).get("annotations") or {}


def _containers(pod: ObjView, name: str) -> list[ObjView]:
    return [each for each in pod["spec"].get("containers") or () if name in ("", each["name"])]


def _has_probe(pod: ObjView, args: Args, *probes: str) -> bool:
    return any(each.get(probe) for each in _containers(pod, args.get("container", "")) for probe in probes)
