"""Runs the agent of this machine: its container runtime, the loops of the node, and the kubelet API."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from setpoint.apiserver.version import VERSION
from setpoint.cluster.config import ConfigError
from setpoint.cluster.dns_service import dns_addresses
from setpoint.cluster.kubelet_server import NodeServing, serving_node
from setpoint.cluster.node_agent import Agent, NodeServices
from setpoint.meta.clock import Clock
from setpoint.meta.quantity import parse
from setpoint.node.cri.client import CriClient, CriError
from setpoint.node.cri.features import cgroup_driver_problem, detect_features
from setpoint.node.host.agent import HostAgent, HostServices
from setpoint.node.host.cgroups import DEFAULT_CGROUP_ROOT, CgroupManager
from setpoint.node.host.containerd_config import (
    DEFAULT_CNI_DIRECTORIES,
    ContainerdConfigError,
    ContainerdSettings,
    containerd_socket,
    parse_mirrors,
)
from setpoint.node.host.containerd_process import ContainerdError, ContainerdProcess
from setpoint.node.host.host_node import HostNode
from setpoint.node.host.image_import import ImageImporter, ImageImportError
from setpoint.node.host.machine import MachineFacts, read_machine
from setpoint.node.host.machine_settings import can_lower_oom_scores
from setpoint.node.host.pause_image import PAUSE_IMAGE, UnsupportedArchitecture
from setpoint.tasks import child_tasks

_PING_TIMEOUT = 5.0


class _Running:
    """The agent while it runs. It never ends by itself: what fails is restarted."""

    async def wait(self) -> None:
        await asyncio.Event().wait()


@asynccontextmanager
async def host_agent(services: NodeServices) -> AsyncIterator[Agent]:
    """Run the agent while the block runs. Containers continue afterwards. Raises ConfigError."""
    config, pool, clock, supervisor = services.config, services.pool, services.clock, services.supervisor
    if not config.cluster_dns:
        file = config.directories.root / "cluster-dns.json"
        config = replace(config, cluster_dns=await dns_addresses(services.client, file, pool, clock))
    facts = await pool.run(read_machine)
    limit = config.pod_pids_limit
    cgroups = CgroupManager(
        pool,
        clock,
        config.cgroup_root or DEFAULT_CGROUP_ROOT,
        pod_pids_limit=limit if limit >= 0 else None,
        huge_page_sizes=facts.huge_pages,
    )
    async with AsyncExitStack() as stack:
        endpoint, containerd = config.container_runtime_endpoint, None
        if not endpoint:
            containerd = await _start_containerd(services, facts)
            endpoint = containerd.endpoint
            await stack.enter_async_context(child_tasks(supervisor.run("containerd", containerd.run)))
        else:
            await _check_runtime(endpoint, clock)
        agent = HostAgent(
            HostServices(
                config,
                services.addresses,
                facts,
                services.client,
                endpoint,
                config.directories.containerd if containerd is not None else config.directories.root,
                cgroups,
                pool,
                clock,
                services.ids,
                os.urandom,
                VERSION["gitVersion"],
            )
        )
        host = HostNode(agent, agent.cri, agent.stats, agent.disks, config.directories, pool, clock)
        stack.callback(host.close)
        serving = NodeServing(config.address, config.port, health_port=config.healthz_port)
        served = await stack.enter_async_context(
            serving_node(host, services.serving.context, services.access, clock, serving, agent.health)
        )
        agent.endpoint = (services.addresses[0], served.api[1])
        rotation = host.log_rotation(parse(config.container_log_max_size).value(), config.container_log_max_files)
        await stack.enter_async_context(
            child_tasks(
                supervisor.run("node", agent.run),
                supervisor.run("log rotation", rotation.run),
            )
        )
        yield _Running()


async def _check_runtime(endpoint: str, clock: Clock) -> None:
    """Raise ConfigError if an existing container runtime cannot be used. One that does not answer is awaited later."""
    client = CriClient(endpoint, clock)
    try:
        problem = cgroup_driver_problem(await detect_features(client, _PING_TIMEOUT))
    except CriError:
        return
    finally:
        client.close()
    if problem:
        raise ConfigError(f"--container-runtime-endpoint {endpoint}: {problem}")


async def _start_containerd(services: NodeServices, facts: MachineFacts) -> ContainerdProcess:
    """Start the agent's own containerd, with the image of sandboxes in it. Raises ConfigError."""
    config, pool, clock = services.config, services.pool, services.clock
    settings = ContainerdSettings(
        config.pod_infra_container_image or PAUSE_IMAGE,
        (config.cni_bin_dir,) if config.cni_bin_dir else DEFAULT_CNI_DIRECTORIES,
        parse_mirrors(config.registry_mirrors),
        await pool.run(can_lower_oom_scores),
        cni_conf_dir=config.cni_conf_dir or str(config.directories.cni),
    )

    async def ping() -> None:
        """Raise CriError until containerd's CRI is ready, which is later than its socket."""
        client = CriClient(f"unix://{containerd_socket(config.directories)}", clock)
        try:
            await client.call("Status", timeout=_PING_TIMEOUT)
        finally:
            client.close()

    containerd = ContainerdProcess(config.directories, pool, clock, settings, program=config.containerd, ping=ping)
    try:
        await containerd.start()
        if not config.pod_infra_container_image:
            await ImageImporter(containerd.socket, clock).ensure_pause_image(facts.architecture)
    except (ContainerdError, ContainerdConfigError, ImageImportError, UnsupportedArchitecture) as error:
        raise ConfigError(str(error)) from None
    return containerd
