"""The agent of a real node: watches the Pods that are bound to the node, and runs their containers on this machine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.objects import Obj, ObjView
from setpoint.node.cri.client import CriClient, CriError
from setpoint.node.cri.events import RuntimeEvents
from setpoint.node.cri.features import cgroup_driver_problem, detect_features
from setpoint.node.dependencies import PodWorkerDependencies
from setpoint.node.heartbeat import Heartbeat
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.cgroups import CgroupManager
from setpoint.node.host.cni_config import CniConfigError, write_cni_config
from setpoint.node.host.cri_runtime import CriRuntime
from setpoint.node.host.disk_usage import DiskUsageCollector
from setpoint.node.host.eviction import EVICTED, rejection
from setpoint.node.host.eviction_signals import parse_thresholds
from setpoint.node.host.housekeeping import Housekeeping, NodeParts
from setpoint.node.host.logind import Logind
from setpoint.node.host.machine import MachineFacts
from setpoint.node.host.machine_settings import HostAdmission, read_pod_settings
from setpoint.node.host.network.manager import NetworkSettings, NodeNetwork
from setpoint.node.host.network.route_plan import RouteMode, RouteSettings
from setpoint.node.host.node_config import NodeConfig
from setpoint.node.host.node_report import HostNodeReporter, NodeReportSettings, enforced_limits
from setpoint.node.host.referenced_objects import ReferencedObjects
from setpoint.node.host.shutdown import NodeShutdown, shutdown_groups
from setpoint.node.host.static_pod_files import StaticPodFiles
from setpoint.node.host.static_pods import HostStaticPods
from setpoint.node.host.stats import StatsCollector
from setpoint.node.host.volumes.builder import NodeIdentity
from setpoint.node.host.volumes.container_mounts import VolumeFeatures
from setpoint.node.host.volumes.manager import VolumeManager
from setpoint.node.host.volumes.pod_certificates import PodCertificates
from setpoint.node.mirror_pods import is_mirror
from setpoint.node.node_state import NodeState
from setpoint.node.options import NodeTemplate
from setpoint.node.pod_sync import PodSync
from setpoint.node.pod_worker import PodWorker
from setpoint.reconcile import Informer, Manager

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node, Pod

log = logging.getLogger("setpoint.node")

_PODS, _NODES, _ACCOUNTS = builtin("pods"), builtin("nodes"), builtin("serviceaccounts")
_RUNTIME_RETRY: Final = 1.0
"""Seconds until a container runtime that does not answer is asked again."""


@dataclass(frozen=True, slots=True)
class HostServices:
    """The dependencies that the process provides to the agent."""

    config: NodeConfig
    addresses: tuple[str, ...]
    """The addresses of the node, the primary one first."""
    facts: MachineFacts
    client: Client
    """A client with the identity of the node."""
    runtime_endpoint: str
    """The socket of the container runtime as a URL."""
    image_fs: Path
    """A directory of the file system of the images."""
    cgroups: CgroupManager
    pool: BlockingPool
    clock: Clock
    ids: Ids
    random: Callable[[int], bytes]
    """Returns so many unpredictable octets."""
    version: str
    """The version that the node reports as that of its kubelet."""


class HostAgent:
    """Registers the node, and runs its Pods while `run` runs. Containers continue when it ends."""

    def __init__(self, services: HostServices) -> None:
        self._services = services
        self.node = NodeState(services.config.name, services.addresses[0])
        self.node.addresses = services.addresses
        self.cri = CriClient(services.runtime_endpoint, services.clock)
        self.endpoint: tuple[str, int] | None = None
        """Address and port of the kubelet API; None if it is not served."""
        self.sync: PodSync | None = None
        """The owner of the workers of the node's Pods; None until the container runtime has answered."""
        self.runtime: CriRuntime | None = None
        """The container runtime; None until it has answered."""
        self.network: NodeNetwork | None = None
        """The network of the node; None if the administrator provides it, and before the agent runs."""
        self.started = asyncio.Event()
        """Set when the agent has adopted the containers that run, and follows its Pods."""
        config = services.config
        self.stats = StatsCollector(
            config.name,
            self.cri,
            services.pool,
            services.clock,
            node_fs=config.directories.root,
            image_fs=services.image_fs,
            cgroups=services.cgroups,
        )
        self.disks = DiskUsageCollector(config.directories, services.pool, services.clock)

    # -- for the kubelet's API -----------------------------------------------------------------------------------------

    def worker(self, namespace: str, name: str) -> PodWorker | None:
        return self.sync.worker(namespace, name) if self.sync is not None else None

    def workers(self) -> Iterable[PodWorker]:
        return self.sync.workers.values() if self.sync is not None else ()

    def health(self) -> str:
        """Return why the agent does not do its work; empty if it does."""
        if not self.started.is_set():
            return "the agent has not received its Pods yet"
        return self.network.dns.health() if self.network is not None else ""

    # -- life cycle ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run the node until cancelled. A container runtime that is away makes the node not ready, and is awaited. May
        be called again after a failure."""
        run = _Run(self, self._services)
        try:
            await run.run()
        finally:
            self.sync = self.runtime = self.network = None
            await run.stop()


class _Run:
    """One run of the agent: from the registration of the node to the end of the process or a failure."""

    def __init__(self, agent: HostAgent, services: HostServices) -> None:
        config, clock = services.config, services.clock
        self._agent = agent
        self._services = services
        template = NodeTemplate(
            labels=dict(config.node_labels), taints=tuple(dict(each) for each in config.register_with_taints)
        )
        self._report_settings = NodeReportSettings(
            services.version,
            config.max_pods,
            kube_reserved=config.kube_reserved,
            system_reserved=config.system_reserved,
            eviction_hard=parse_thresholds(config.eviction_hard),
            addresses=services.addresses,
        )
        self._reporter = HostNodeReporter(
            agent.node,
            agent.cri,
            services.pool,
            clock,
            self._report_settings,
            template,
            node_fs=config.directories.root,
        )
        self._manager = Manager(services.client, clock, services.ids, host=config.name)
        self._events = self._manager.recorder("kubelet")
        self._heartbeat = Heartbeat(
            {config.name: agent.node},
            lambda _: services.client,
            clock,
            self._events,
            template=template,
            reporter=self._reporter,
        )
        self._heartbeat.endpoint = agent.endpoint
        self._reporter.on_urgent_change = lambda: self._heartbeat.report_soon(config.name)
        self._pods: Informer[Pod] = self._manager.informer(_PODS, field_selector=f"spec.nodeName={config.name}")
        self._nodes: Informer[Node] = self._manager.informer(_NODES, field_selector=f"metadata.name={config.name}")
        self._objects = ReferencedObjects(services.client, self._manager, clock, self._object_changed)
        self._certificates = PodCertificates(
            config.name,
            lambda: agent.node.object,
            services.client,
            self._events,
            services.pool,
            clock,
            services.ids,
            self._object_changed,
        )
        self._network: NodeNetwork | None = None
        """The network of the node; None if the administrator provides it."""
        if not config.cni_conf_dir:
            network = NetworkSettings(
                config.cluster_domain, config.cluster_dns, RouteSettings(RouteMode(config.route_mode))
            )
            self._network = NodeNetwork(
                self._manager, config.name, config.directories, network, services.pool, clock, services.random
            )
            self._network.routes.on_mtu.append(lambda mtu: self._write_cni_config())
            agent.network = self._network
        self._volumes: VolumeManager | None = None
        self._admission: HostAdmission | None = None
        self._shutdown: NodeShutdown | None = None
        self._cidrs: list[str] = []
        """The Pod CIDRs of the node; empty before it has any."""
        self._written: tuple[list[str], int] | None = None
        """The Pod CIDRs and the MTU in the network configuration; None before it is written."""

    async def run(self) -> None:
        await self._services.pool.run(self._services.config.directories.root.mkdir, 0o700, True, True)
        await self._reporter.observe()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._heartbeat.run())
            tasks.create_task(self._reporter.run())
            await self._prepare_node()
            tasks.create_task(self._manager.run())
            tasks.create_task(self._certificates.run())
            if self._network is not None:
                tasks.create_task(self._network.run())
            runtime = self._agent.runtime = await self._connect_runtime()
            tasks.create_task(runtime.run())
            await runtime.listed()
            # Before its first answer, the reporter's own check says more: a restart does not make the node not ready.
            self._reporter.health_checks.append(runtime.runtime_error)
            sync = self._create_sync(runtime)
            tasks.create_task(sync.controller.run())
            static = self._run_static_pods(runtime, sync, tasks)
            shutdown = self._shutdown = self._create_shutdown(sync, static)
            tasks.create_task(shutdown.run())
            await self._manager.ready.wait()
            self._pods.add_handler(self._pod_changed)
            if static is not None:
                await static.known.wait()
                tasks.create_task(static.run_mirrors())
            if self._network is not None:
                self._network.adopt([(worker.pod, worker.pod_state.pod_ips) for worker in self._agent.workers()])
            self._agent.started.set()
            tasks.create_task(self._housekeeping(runtime, sync).run())

    async def stop(self) -> None:
        await self._objects.stop()

    async def _prepare_node(self) -> None:
        limits = enforced_limits(self._reporter.capacity(), self._report_settings)
        await self._services.cgroups.start(*limits)
        self._nodes.add_handler(self._node_changed)

    async def _connect_runtime(self) -> CriRuntime:
        """Wait until the container runtime answers, and return it."""
        services, reported = self._services, False
        while True:
            try:
                features = await detect_features(self._agent.cri)
                problem = cgroup_driver_problem(features)
            except CriError as error:
                problem = str(error)
            if not problem:
                break
            if not reported:
                log.warning("waiting for the container runtime: %s", problem)
            reported = True
            await services.clock.sleep(_RUNTIME_RETRY)
        settings = await services.pool.run(
            read_pod_settings, services.config, services.facts, features, (await services.cgroups.tree()).version
        )
        self._admission = HostAdmission(settings, services.facts.kernel)
        volumes = self._volumes = VolumeManager(
            services.config.directories,
            services.pool,
            services.clock,
            self._objects,
            self._request_token,
            self._certificates.credentials,
            NodeIdentity(services.config.name, self._labels),
            lambda: VolumeFeatures(features.handler().recursive_read_only_mounts),
        )
        return CriRuntime(
            self._agent.cri,
            RuntimeEvents(services.runtime_endpoint, services.clock),
            volumes,
            services.cgroups,
            self._objects,
            settings,
            services.pool,
            services.clock,
            cores=services.facts.cpus,
            network=self._network,
            runtime_handler=self._objects.runtime_handler,
        )

    def _create_sync(self, runtime: CriRuntime) -> PodSync:
        """Create the owner of the Pods' workers; the runtime has been listed, so that workers adopt what runs."""
        services = self._services
        dependencies = PodWorkerDependencies(
            runtime, self._events, self._objects, {self._agent.node.name: self._agent.node}, self._rejection
        )
        sync = PodSync(
            dependencies,
            self._pods,
            lambda _: services.client,
            services.clock,
            self._prepare,
            continues_offline=True,
        )
        self._agent.sync = sync
        return sync

    def _run_static_pods(self, runtime: CriRuntime, sync: PodSync, tasks: asyncio.TaskGroup) -> HostStaticPods | None:
        """Start the static Pods, which do not need the API server."""
        services, path = self._services, self._services.config.pod_manifest_path
        if not path:
            return None
        static = HostStaticPods(
            self._agent.node, sync, self._pods, services.client, services.clock, runtime.is_removing
        )
        files = StaticPodFiles(Path(path), services.config.name, services.pool, services.clock, static.set)
        tasks.create_task(files.run())
        tasks.create_task(static.run())
        return static

    def _create_shutdown(self, sync: PodSync, static: HostStaticPods | None) -> NodeShutdown:
        services, node = self._services, self._agent.node
        config = services.config

        def record(reason: str, message: str) -> None:
            if node.object is not None:
                self._events.normal(node.object, reason, message, host=node.name)

        def changed(active: bool) -> None:
            self._reporter.shutting_down = active
            self._heartbeat.report_soon(node.name)
            if static is not None and not active:
                static.restart_failed()

        return NodeShutdown(
            shutdown_groups(config.shutdown_grace_period, config.shutdown_grace_period_critical_pods),
            Logind(services.pool, services.clock),
            services.clock,
            lambda: sync.workers.values(),
            sync.enqueue,
            record,
            changed,
        )

    def _housekeeping(self, runtime: CriRuntime, sync: PodSync) -> Housekeeping:
        services, agent = self._services, self._agent
        assert self._volumes is not None
        found = Housekeeping(
            NodeParts(
                services.config,
                agent.node,
                services.client,
                agent.cri,
                runtime,
                self._volumes,
                services.cgroups,
                sync,
                agent.stats,
                agent.disks,
                self._events,
                services.pool,
                services.clock,
                services.image_fs,
                self._reporter.images_changed,
            )
        )
        self._reporter.pressures = found.eviction.conditions
        return found

    def _rejection(self, pod: Pod) -> tuple[str, str] | None:
        """Return the reason and the message if the node cannot accept a Pod, or None."""
        shutdown = self._shutdown.rejection() if self._shutdown is not None else None
        if shutdown is not None:
            return shutdown
        pressure = rejection(pod, self._reporter.pressures())
        if pressure:
            return EVICTED, pressure
        assert self._admission is not None
        return self._admission.rejection(pod)

    # -- Pods ----------------------------------------------------------------------------------------------------------

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        sync, pod = self._agent.sync, new or old
        assert sync is not None and pod is not None
        if is_mirror(pod):
            return
        uid = pod["metadata"]["uid"]
        if new is None:
            sync.remove_worker(uid, self._agent.node)
            self._objects.forget(uid)
            self._certificates.forget(uid)
            return
        self._certificates.track(new)
        if uid not in sync.workers:
            sync.start_worker(new, self._agent.node)
        else:
            sync.update_worker(sync.workers[uid], new)

    async def _prepare(self, worker: PodWorker) -> None:
        static = self._agent.sync is not None and self._agent.sync.is_static(worker)
        if not worker.terminating and not worker.finished and not static:
            await self._objects.prepare(worker.pod)

    def _object_changed(self, uid: str) -> None:
        """Update the volumes of a Pod, and continue one that waits for the object."""
        if self._agent.runtime is not None and self._agent.sync is not None:
            self._agent.runtime.refresh_volumes(uid)
            self._agent.sync.enqueue(uid)

    async def _request_token(self, namespace: str, account: str, request: Obj) -> ObjView:
        return await self._services.client.create(
            request, resource=_ACCOUNTS, namespace=namespace, name=account, subresource="token"
        )

    # -- Node ----------------------------------------------------------------------------------------------------------

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            return
        node = self._agent.node
        # The heartbeat may have received a later version as the answer to its write.
        if node.object is None or _revision(node.object) < _revision(new):
            node.object = new
        self._cidrs = _pod_cidrs(new) or self._services.config.pod_cidrs
        if self._network is not None:
            self._network.node_changed(new, self._cidrs)
            self._write_cni_config()

    def _write_cni_config(self) -> None:
        """Write the network configuration of Pods, if the Pod CIDRs and the MTU are known and have changed."""
        mtu = self._network.routes.mtu if self._network is not None else None
        if not self._cidrs or mtu is None or (self._cidrs, mtu) == self._written:
            return
        try:
            write_cni_config(self._services.config.directories, self._cidrs, mtu)
            self._written = (self._cidrs, mtu)
        except (OSError, CniConfigError) as error:
            log.error("cannot write the network configuration: %s", error)

    def _labels(self) -> Mapping[str, str]:
        found: Mapping[str, str] = ((self._agent.node.object or {}).get("metadata") or {}).get("labels") or {}
        return found


def _revision(node: ObjView) -> int:
    return int(node["metadata"]["resourceVersion"])


def _pod_cidrs(node: ObjView) -> list[str]:
    spec = node.get("spec") or {}
    return list(spec.get("podCIDRs") or ([spec["podCIDR"]] if spec.get("podCIDR") else []))
