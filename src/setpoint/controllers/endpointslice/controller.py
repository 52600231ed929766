"""Reconciles the EndpointSlices of Services."""

from __future__ import annotations

from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.conditions import is_true
from setpoint.controllers.endpointslice.endpoints import families_of
from setpoint.controllers.endpointslice.hints import hint_close, remove_hints, traffic_distribution
from setpoint.controllers.endpointslice.own_slices import SLICES, OwnSlices
from setpoint.controllers.endpointslice.planning import Plan, plan, reuse
from setpoint.controllers.endpointslice.topology import Topology, topology_mode
from setpoint.controllers.endpointslice.writing import stamp, write
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.pod_control import PODS
from setpoint.controllers.service_pods import SERVICES, ServicePods, has_endpoints
from setpoint.controllers.trigger_times import TriggerTimes
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, RateLimitingQueue, Result, key_of
from setpoint.reconcile.rate_limiting import Bucket, ExponentialBackoff

Obj = dict[str, Any]

NODES = builtin("nodes")
MANAGER = "endpointslice-controller.k8s.io"
_ZONE = "topology.kubernetes.io/zone"
_AFTER_FOREIGN_CHANGE = 1.0
_FIRST_RETRY, _LONGEST_RETRY = 1.0, 1000.0


class Incomplete(Exception):
    """Some endpoints could not be added to the slices yet."""


def endpointslice_controller(manager: Manager, options: ControllerOptions) -> Controller:
    name = "endpointslice-controller"
    slices = EndpointSlices(
        manager.client_for(name), manager.clock, manager.informer(SERVICES), manager.informer(PODS),
        manager.informer(NODES), manager.informer(SLICES), manager.recorder("endpoint-slice-controller", name),
        options.max_endpoints_per_slice,
    )  # fmt: skip
    clock = manager.clock
    queue = RateLimitingQueue(clock, (ExponentialBackoff(_FIRST_RETRY, _LONGEST_RETRY), Bucket(clock)))
    workers = options.concurrent_service_endpoint_syncs
    controller = Controller(name, slices.reconcile, clock, workers=workers, queue=queue)
    slices.watch(controller, options.endpointslice_updates_batch_period)
    return controller


class EndpointSlices:
    def __init__(
        self, client: Client, clock: Clock, services: Informer, pods: Informer, nodes: Informer, slices: Informer,
        recorder: EventRecorder, most: int,
    ) -> None:  # fmt: skip
        self._client = client
        self._services = services
        self._pods = pods
        self._nodes = nodes
        self._slices = OwnSlices(slices, MANAGER, clock)
        self._recorder = recorder
        self._most = most
        self._service_pods = ServicePods(services, pods)
        self._times = TriggerTimes()
        self._topology = Topology()

    # -- event handlers ---------------------------------------------------------------------------------------------

    def watch(self, controller: Controller, batch_period: float) -> None:
        def service_changed(old: Obj | None, new: Obj | None) -> None:
            controller.enqueue(key_of(new or old or {}))

        def pod_changed(old: Obj | None, new: Obj | None) -> None:
            for key in self._service_pods.affected_services(old, new):
                controller.queue.add_after(key, batch_period)

        def node_changed(old: Obj | None, new: Obj | None) -> None:
            if old is None or new is None or _as_topology(old) != _as_topology(new):
                for key in self._topology.update_nodes(self._nodes.items.values()):
                    controller.enqueue(key)

        self._services.add_handler(service_changed)
        self._pods.add_handler(pod_changed)
        self._slices.watch(controller, max(_AFTER_FOREIGN_CHANGE, batch_period))
        self._nodes.add_handler(node_changed)

    # -- reconcile --------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> Result | None:
        service = self._services.get(key)
        if service is None:
            self._times.forget(key)
            self._slices.forget(key)
            self._topology.forget(key)
            return None
        if not has_endpoints(service):
            return None
        slices = self._slices.of(key)
        wait = self._slices.wait(key, slices)
        if wait is not None:
            return wait
        pods = self._service_pods.pods_of(service)
        since = self._times.since(key, service, pods)
        problems: list[str] = []
        families = families_of(service)
        for family in families:
            of_family = [found for found in slices if found["addressType"] == family]
            result = plan(service, pods, self._nodes.get, of_family, family, self._most, MANAGER)
            problems += result.problems
            notes = self._hint(result, service, key, family)
            reuse(result, service)
            problems += await self._write(result, service, key, since)
            for note in notes:
                record = self._recorder.warning if note.warning else self._recorder.normal
                record(service, note.reason, note.message)
        stray = Plan(delete=[found for found in slices if found["addressType"] not in families])
        for found in stray.delete:
            self._topology.forget(key, found["addressType"])
        problems += await self._write(stray, service, key, since)
        if problems:
            problem = problems[0] if len(problems) == 1 else f"[{', '.join(dict.fromkeys(problems))}]"
            message = f"Error updating Endpoint Slices for Service {key}: {problem}"
            self._recorder.warning(service, "FailedToUpdateEndpointSlices", message)
            raise Incomplete(problem)
        return None

    def _hint(self, result: Plan, service: Obj, key: str, family: str) -> list[Any]:
        if topology_mode(service):
            return self._topology.hint(result, key, family)
        notes = self._topology.removed(key, family)
        distribution = traffic_distribution(service)
        if distribution:
            hint_close(result, distribution)
        else:
            remove_hints(result)
        return notes

    async def _write(self, result: Plan, service: Obj, key: str, since: str) -> list[str]:
        stamp(result, since)
        try:
            await write(self._client, SLICES, result, service, key, self._slices.tracker)
        except ApiError as error:
            return [str(error)]
        return []


def _as_topology(node: Obj) -> tuple[bool, str]:
    return is_true(node, "Ready"), (node["metadata"].get("labels") or {}).get(_ZONE) or ""
