"""The scenes of `setpoint demo`, one for each task that a control plane does automatically, and their stage."""

from __future__ import annotations

import os
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from io import BytesIO
from textwrap import fill, indent
from typing import TYPE_CHECKING

from setpoint.cli.failures import Failed
from setpoint.cli.invocation import CommandIO, Invocation
from setpoint.client.resources import builtin
from setpoint.meta.conditions import condition_of
from setpoint.meta.objects import Obj

if TYPE_CHECKING:
    from setpoint.client import Client
    from setpoint.client.kubeconfig import Access
    from setpoint.cluster.embedded import EmbeddedCluster


_WIDTH = 88
_POLL_INTERVAL, _LONGEST = 0.05, 60.0
_BOLD, _DIM, _GREEN, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[0m"


class Stage:
    def __init__(self, invocation: Invocation, cluster: EmbeddedCluster, wait: bool) -> None:
        self.invocation = invocation
        self.cluster = cluster
        self.client = cluster.client
        self._wait = wait
        self._colour = invocation.io.colour

    def title(self, text: str) -> None:
        self.invocation.print(f"\n{self._painted(text, _BOLD)}\n{'=' * len(text)}\n")

    def explain(self, text: str) -> None:
        """Print a paragraph."""
        self.invocation.print(fill(" ".join(text.split()), _WIDTH) + "\n")
        self.invocation.flush()

    async def pause(self) -> None:
        """Wait for Enter if there is a terminal."""
        if not self._wait:
            return
        import asyncio

        self.invocation.print(self._painted("[Enter]", _DIM), end="")
        self.invocation.flush()
        line = await asyncio.to_thread(self.invocation.io.stdin.readline)
        if not line:
            self._wait = False
        self.invocation.print("")

    async def type(self, line: str, stdin: str = "") -> str:
        """Run a command line as a user would, and print its output, also if it fails."""
        from setpoint.cli.main import run_within

        shown = f"$ setpoint {line}"
        if stdin:
            shown += " <<EOF\n" + stdin.strip("\n") + "\nEOF"
        self.invocation.print(self._painted(shown, _GREEN))
        out = BytesIO()
        io = CommandIO(
            stdin=BytesIO(stdin.encode()),
            stdout=out,
            stderr=out,
            environment=self.invocation.io.environment,
            home=self.invocation.io.home,
            clock=self.invocation.io.clock,
            connect=self._connect,
        )
        # No file of the user is read: its current context may have its own namespace, or be broken.
        await run_within(["--kubeconfig", os.devnull, "--server", "https://stage", *shlex.split(line)], io)
        text = out.getvalue().decode("utf-8", "replace")
        self.invocation.print(indent(text, "  "))
        self.invocation.flush()
        return text

    async def until(self, check: Callable[[], Awaitable[bool]], within: float = _LONGEST) -> None:
        """Wait until `check` is true. Raise Failed after `within` seconds."""
        clock = self.invocation.io.clock
        end = clock.monotonic() + within
        while not await check():
            if clock.monotonic() > end:
                raise Failed("what was to happen next did not: please report this, with the lines above")
            await clock.sleep(_POLL_INTERVAL)

    def _connect(self, _: Access, __: float) -> Client:
        return self.client.named("setpoint-demo")

    def _painted(self, text: str, colour: str) -> str:
        return f"{colour}{text}{_PLAIN}" if self._colour else text


@asynccontextmanager
async def stage(invocation: Invocation, nodes: int = 3) -> AsyncIterator[Stage]:
    """Run a cluster in this process and in memory: no other cluster is touched, and nothing is left behind."""
    from dataclasses import replace

    from setpoint.cluster.allinone import controller_options
    from setpoint.cluster.component_logs import component_logs
    from setpoint.cluster.components import ComponentOptions
    from setpoint.cluster.embedded import EmbeddedOptions, embedded_cluster
    from setpoint.node.options import FleetOptions, NodeTemplate
    from setpoint.system import RandomIds

    # The default timeouts for lost nodes are too long for a demo.
    settings = replace(
        controller_options(None, nodes=nodes, services="10.96.0.0/12"),
        node_monitor_period=0.5,
        node_monitor_grace_period=4.0,
    )
    fleet = FleetOptions(nodes, NodeTemplate(lease_seconds=4))
    wait = invocation.io.in_is_terminal and not invocation.flags.no_wait
    with component_logs(invocation.io.clock) as logs:
        components = ComponentOptions(nodes=nodes, controller_options=settings, fleet=fleet, logs=logs)
        async with embedded_cluster(invocation.io.clock, RandomIds(), EmbeddedOptions(components)) as cluster:
            yield Stage(invocation, cluster, wait)


PODS, NODES, DEPLOYMENTS = builtin("pods"), builtin("nodes"), builtin("deployments", "apps")


async def _pods(stage: Stage, **labels: str) -> list[Obj]:
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    found = (await stage.client.list(PODS, "default", label_selector=selector)).items
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def _running(stage: Stage, count: int, **labels: str) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        found = await _pods(stage, **labels)
        return len(found) == count and all(_is(pod, "Ready") for pod in found)

    return check


def _is(obj: Obj, condition: str, status: str = "True") -> bool:
    found = condition_of(obj, condition)
    return found is not None and found["status"] == status


async def chain(stage: Stage) -> None:
    stage.title("1. Desired state, and the controllers that reach it")
    stage.explain("""You never start a container. You declare the desired state, and control loops reach it. Here
        it is three replicas of nginx.""")
    await stage.type("create deployment hello --image=nginx --replicas=3")
    await stage.until(_running(stage, 3, app="hello"))
    await stage.type("get deployment,replicaset,pods")
    stage.explain("""No component called another. The Deployment controller saw a Deployment and created a ReplicaSet.
        The ReplicaSet controller saw that it has no Pods and created three. The scheduler saw Pods without a node and
        chose one for each. The nodes saw Pods assigned to them, started them, and reported their status. Each of them
        uses the API server only.""")
    await stage.type("expose deployment hello --port=80")

    async def served() -> bool:
        found = (await stage.client.list(builtin("endpointslices", "discovery.k8s.io"), "default")).items
        mine = [one for one in found if one["metadata"]["name"].startswith("hello-")]
        return any(len(one.get("endpoints") or ()) == 3 for one in mine)

    await stage.until(served)
    await stage.type("get endpointslices")
    stage.explain("A Service is desired state too: another control loop maintains its list of addresses.")


async def repair(stage: Stage) -> None:
    stage.title("2. A Pod is deleted and replaced")
    name = (await _pods(stage, app="hello"))[0]["metadata"]["name"]
    stage.explain("We delete one of the three Pods.")
    await stage.type(f"delete pod {name} --wait=false")

    async def replaced() -> bool:
        found = await _pods(stage, app="hello")
        ready = [pod for pod in found if _is(pod, "Ready")]
        return len(ready) == 3 and name not in {pod["metadata"]["name"] for pod in found}

    await stage.until(replaced)
    await stage.type("get pods")
    stage.explain("""A new one exists already. The control loop does not ask why there are two: it compares the
        observed with the desired state, and acts on the difference.""")


async def level(stage: Stage) -> None:
    stage.title("3. The controllers are down, and recover")
    stage.explain("""Now the controllers are stopped, as if they had crashed, and all Pods are deleted.""")
    components = stage.cluster.components
    await components.controllers.stop()
    await stage.type("delete pods --all --now")
    await stage.type("get pods")
    stage.explain("""Nothing happens, because no controller runs. Now the controllers start again. They have missed
        all events, and do not need them.""")
    await components.start(components.controllers)
    await stage.until(_running(stage, 3, app="hello"))
    await stage.type("get pods")
    stage.explain("""This is what level-triggered means: the state counts, not the events that led to it. After a
        crash, a lost message or a manual change, the next reconcile corrects the difference.""")


async def leases(stage: Stage) -> None:
    stage.title("4. Leader election")
    stage.explain("""Several replicas of controllers and schedulers may run, so that one can fail; but only one may
        act. It holds a Lease, which it renews every two seconds.""")
    await stage.type("-n kube-system get leases")


_SHORT_TOLERATION = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: patient}
spec:
  replicas: 6
  selector: {matchLabels: {app: patient}}
  template:
    metadata: {labels: {app: patient}}
    spec:
      containers: [{name: main, image: nginx}]
      tolerations:
      - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 2}
"""


async def lost_node(stage: Stage) -> None:
    stage.title("5. A node is lost")
    stage.explain("""Six Pods on three nodes. They tolerate an unreachable node for two seconds, so that we need not
        wait for the default of five minutes.""")
    await stage.type("create -f -", _SHORT_TOLERATION)
    await stage.until(_running(stage, 6, app="patient"))
    await stage.type("get pods -l app=patient -o wide")
    stage.explain("Now node-2 loses its network connection.")
    await stage.type("nodes partition node-2")

    async def unknown() -> bool:
        return _is(await stage.client.get(NODES, "node-2"), "Ready", "Unknown")

    await stage.until(unknown)
    await stage.type("get nodes")
    stage.explain("""Its heartbeats have stopped, so the node controller sets its Ready condition to Unknown and
        taints it. After two seconds, its Pods are evicted.""")

    async def moved() -> bool:
        ready = [pod for pod in await _pods(stage, app="patient") if _is(pod, "Ready")]
        return len(ready) == 6 and all(pod["spec"].get("nodeName") != "node-2" for pod in ready)

    await stage.until(moved)
    await stage.type("get pods -l app=patient -o wide")
    await stage.type("nodes start node-2")
    stage.explain("Six are ready again, on the remaining nodes. The node can rejoin at any time.")


_HUGE = """
apiVersion: v1
kind: Pod
metadata: {name: huge}
spec:
  containers:
  - name: main
    image: nginx
    resources: {requests: {cpu: "500"}}
"""


async def impossible(stage: Stage) -> None:
    stage.title("6. A Pod that cannot be scheduled yet")
    stage.explain("This Pod requests five hundred CPUs, which no node has.")
    await stage.type("create -f -", _HUGE)

    async def refused() -> bool:
        return _is(await stage.client.get(PODS, "huge", "default"), "PodScheduled", "False")

    await stage.until(refused)
    await stage.type("get pod huge")
    await stage.type('get pod huge -o jsonpath=\'{.status.conditions[?(@.type=="PodScheduled")].message}{"\\n"}\'')
    stage.explain("""It is pending, and its condition gives the reason and the number of nodes. It is retried
        automatically as soon as it can be scheduled. So we add a large node.""")
    await stage.type("nodes add giant --cpu 1000 --memory 1Ti")

    async def runs() -> bool:
        return _is(await stage.client.get(PODS, "huge", "default"), "Ready")

    await stage.until(runs)
    await stage.type("get pod huge -o wide")
    stage.explain("These are the principles of a control plane: desired state, observed state, and control loops.")


SCENES = (chain, repair, level, leases, lost_node, impossible)
