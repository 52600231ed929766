"""`setpoint status`: health, components, objects and the load of the control loops, or the loop of one object."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from setpoint.cli.command import Command
from setpoint.cli.failures import Exit
from setpoint.cli.flags import duration
from setpoint.cli.invocation import Invocation
from setpoint.cli.loops import PATH as LOOPS
from setpoint.cli.output import AT
from setpoint.cli.real_node import read_real_node
from setpoint.cli.running import DATA_DIR, Running, directory_of, find_process, unready
from setpoint.cli.tabwriter import align
from setpoint.client.resources import builtin
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.times import human_duration, parse_time
from setpoint.view.loops import gate_sentence
from setpoint.view.states import counts_text, is_ready, pod_counts

_SAMPLE = re.compile(r'^(workqueue_depth|workqueue_adds_total)\{[^}]*name="([^"]+)"[^}]*\} ([0-9.e+-]+)$', re.MULTILINE)
_FAILED_CHECK = re.compile(r"^\[-\](\S+) failed", re.MULTILINE)
_REASON = re.compile(r"internal server error: (.*?)\)?$", re.MULTILINE)
_ELECTED = ("kube-controller-manager", "kube-scheduler")
_NODES = "nodes"
_OWN_CHECKS = (*_ELECTED, _NODES)


class _Queue(NamedTuple):
    waiting: float = 0.0
    adds: float = 0.0


async def run(invocation: Invocation) -> None:
    if invocation.args:
        # Imported here because the status of the cluster does not need it.
        from setpoint.cli.object_loop import show

        await show(invocation)
        return
    if invocation.flags.at:
        invocation.usage("--at needs an object: setpoint status deployment/web --at -5m")
    named = invocation.flags.given("data-dir")
    if named:
        invocation.require_host()
    fixed = invocation.io.access is not None
    directory = Path() if fixed else directory_of(invocation)
    elsewhere = fixed or (not named and invocation.choice.explicit and invocation.choice.directory is None)
    running = None if elsewhere else find_process(directory)
    if running is None and not elsewhere:
        invocation.print(f"No cluster is running in {directory}.")
        raise Exit(1)
    if running is not None and not running.url:
        invocation.print(f"The {unready(directory, running)}. `setpoint down` ends it.")
        raise Exit(1)
    now = invocation.io.clock.now()
    if running is not None:
        if named:
            invocation.point_to(directory)
        since = human_duration((now - parse_time(running.started)).total_seconds())
        invocation.print(
            f"The cluster in {directory} has been up for {since}, at {running.url} (process {running.pid})."
            f"{_real(directory)}\n"
        )
    else:
        invocation.print(f"The cluster at {invocation.access.server}:\n")
    rows = [["COMPONENT", "STATE", "HOLDER", "RENEWED"], *await _components(invocation, now)]
    invocation.print(align("\n".join("\t".join(row) for row in rows), least=6, padding=3) + "\n")
    for line in (*await _counts(invocation), *_store(directory, running)):
        invocation.print(line)
    await _loops(invocation)


def _real(directory: Path) -> str:
    """Return the line about the real node beside the cluster; empty if there is none."""
    node = read_real_node(directory)
    if node is None or not node.has_files:
        return ""
    state = f"its agent runs (process {node.pid})" if node.runs else "its agent does not run"
    return f"\nThis machine is the node {node.name}; {state}."


async def _components(invocation: Invocation, now: datetime) -> list[list[str]]:
    state, troubles = "ready", {}
    try:
        await invocation.client.sender.request("GET", "/readyz")
    except ApiError as error:
        # The server lists failed checks by name; its components are checks too.
        failed = _FAILED_CHECK.findall(error.message)
        troubles = {name: await _trouble(invocation, name) for name in failed if name in _OWN_CHECKS}
        own = [name for name in failed if name not in troubles]
        if own or not troubles:
            state = f"not ready: {', '.join(own) or error.message}"
    rows = [["kube-apiserver", state, "", ""]]
    if _NODES in troubles:
        rows.append([_NODES, troubles[_NODES], "", ""])
    for name in _ELECTED:
        try:
            spec = (await invocation.client.get(builtin("leases", "coordination.k8s.io"), name, "kube-system"))["spec"]
        except NotFound:
            rows.append([name, "not there", "", ""])
            continue
        age = (now - parse_time(spec["renewTime"])).total_seconds() if spec.get("renewTime") else float("inf")
        holder = spec.get("holderIdentity") or ""
        leads = bool(holder) and age < spec.get("leaseDurationSeconds", 15)
        renewed = f"{human_duration(age)} ago" if age != float("inf") else "never"
        rows.append([name, troubles.get(name) or ("leads" if leads else "nobody leads"), holder, renewed])
    return rows


async def _trouble(invocation: Invocation, name: str) -> str:
    """Return the failure of a component in the words of its own health check."""
    try:
        await invocation.client.sender.request("GET", f"/readyz/{name}")
    except ApiError as error:
        found = _REASON.search(error.message)
        return found[1] if found else error.message
    return ""  # it has recovered


async def _counts(invocation: Invocation) -> list[str]:
    nodes = (await invocation.client.list(builtin("nodes"))).items
    ready = sum(is_ready(node) for node in nodes)
    pods = counts_text(pod_counts((await invocation.client.list(builtin("pods"))).items)) or "none"
    return [f"Nodes:  {ready} of {len(nodes)} ready", f"Pods:   {pods}"]


def _store(directory: Path, running: Running | None) -> list[str]:
    if running is None:
        return []
    if running.store == "etcd":
        own = directory / "etcd" / "member" / "snap" / "db"
        return [f"Store:  etcd, {own.stat().st_size / 2**20:.1f} MiB in {own}" if own.exists() else "Store:  etcd"]
    size = sum(path.stat().st_size for path in directory.glob("state.db*") if path.is_file())
    return [f"Store:  {size / 2**20:.1f} MiB in {directory / 'state.db'}" if size else "Store:  in memory"]


async def _loops(invocation: Invocation) -> None:
    """Show the control loops that have been active; of another server, rates are measured with two samples."""
    rows = await _own_loops(invocation) or await _sampled_loops(invocation)
    if rows:
        rows = [["LOOP", "WAITING", "RECONCILES", "PER SECOND"], *rows]
        invocation.print("\n" + align("\n".join("\t".join(row) for row in rows), least=6, padding=3))


async def _own_loops(invocation: Invocation) -> list[list[str]]:
    """Return the loops that run beside the server; empty if it knows none or the user may not read them."""
    try:
        found = await invocation.client.sender.json("GET", LOOPS)
    except ApiError:
        return []
    if sentence := gate_sentence(found["gate"], found["now"]):
        invocation.print(f"Loops:  {sentence}")
    return [
        [each["name"], str(each["depth"]), str(each["done"]), f"{each['rate']:.1f}"]
        for each in found["loops"]
        if each["done"] or each["depth"]
    ]


async def _sampled_loops(invocation: Invocation) -> list[list[str]]:
    before = await _queues(invocation)
    if not before:
        return []
    await invocation.io.clock.sleep(invocation.flags.interval)
    rows = []
    for name, queue in sorted((await _queues(invocation)).items()):
        if queue.adds or queue.waiting:
            rate = (queue.adds - before.get(name, _Queue()).adds) / invocation.flags.interval
            rows.append([name, f"{queue.waiting:.0f}", f"{queue.adds:.0f}", f"{rate:.1f}"])
    return rows


async def _queues(invocation: Invocation) -> dict[str, _Queue]:
    try:
        reply = await invocation.client.sender.request("GET", "/metrics", accept="text/plain")
    except ApiError:
        return {}  # the user may not read the metrics
    found: dict[str, _Queue] = {}
    for metric, name, value in _SAMPLE.findall(reply.body.decode("utf-8", "replace")):
        queue = found.get(name, _Queue())
        changed = {"waiting": float(value)} if metric == "workqueue_depth" else {"adds": float(value)}
        found[name] = queue._replace(**changed)
    return found


COMMAND = Command(
    "Show the state of a cluster: components, nodes, Pods, store, loops",
    run,
    (DATA_DIR, duration("interval", default=1.0, help="How long to sample the rates of loops of another server."), AT),
    usage="[TYPE/NAME | TYPE NAME] [flags]",
    about="""
    With an object, show its loop: the desired state, the observed state, the difference, and what happens next.
    """,
    examples="""
    # The components, nodes and Pods of the cluster, and the load of its control loops
    setpoint status

    # Does this Deployment have what it demands, and what is done about it?
    setpoint status deployment/web

    # And five minutes ago?
    setpoint status deployment/web --at -5m
    """,
)
