"""`setpoint status`: health, components, objects and the load of the control loops."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from setpoint.cli.command import Command
from setpoint.cli.failures import Exit
from setpoint.cli.flags import duration
from setpoint.cli.invocation import Invocation
from setpoint.cli.running import DATA_DIR, directory_of, find_running
from setpoint.cli.tabwriter import align
from setpoint.client.resources import builtin
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.times import human_duration, parse_time

_SAMPLE = re.compile(r'^(workqueue_depth|workqueue_adds_total)\{[^}]*name="([^"]+)"[^}]*\} ([0-9.e+-]+)$', re.MULTILINE)
_FAILED_CHECK = re.compile(r"^\[-\](\S+) failed", re.MULTILINE)
_REASON = re.compile(r"internal server error: (.*?)\)?$", re.MULTILINE)
_ELECTED = ("kube-controller-manager", "kube-scheduler")
_NODES = "nodes"
_OWN_CHECKS = (*_ELECTED, _NODES)


class _Queue(NamedTuple):
    waiting: float = 0.0
    taken: float = 0.0


async def run(call: Invocation) -> None:
    call.no_arguments()
    directory = directory_of(call)
    named = call.flags.given("data-dir")
    elsewhere = not named and call.choice.explicit and call.choice.directory is None
    running = None if elsewhere else find_running(directory)
    if running is None and not elsewhere:
        call.print(f"No cluster is running in {directory}.")
        raise Exit(1)
    now = call.io.clock.now()
    if running is not None:
        if named:
            call.point_to(directory)
        since = human_duration((now - parse_time(running.started)).total_seconds())
        call.print(f"The cluster in {directory} has been up for {since}, at {running.url} (process {running.pid}).\n")
    else:
        call.print(f"The cluster at {call.access.server}:\n")
    rows = [["COMPONENT", "STATE", "HOLDER", "RENEWED"], *await _components(call, now)]
    call.print(align("\n".join("\t".join(row) for row in rows), least=6, padding=3) + "\n")
    for line in (*await _counts(call), *_store(directory if running is not None else None)):
        call.print(line)
    await _loops(call)


async def _components(call: Invocation, now: datetime) -> list[list[str]]:
    state, troubles = "ready", {}
    try:
        await call.client.sender.request("GET", "/readyz")
    except ApiError as error:
        # The server lists failed checks by name; its components are checks too.
        failed = _FAILED_CHECK.findall(error.message)
        troubles = {name: await _trouble(call, name) for name in failed if name in _OWN_CHECKS}
        own = [name for name in failed if name not in troubles]
        if own or not troubles:
            state = f"not ready: {', '.join(own) or error.message}"
    rows = [["kube-apiserver", state, "", ""]]
    if _NODES in troubles:
        rows.append([_NODES, troubles[_NODES], "", ""])
    for name in _ELECTED:
        try:
            spec = (await call.client.get(builtin("leases", "coordination.k8s.io"), name, "kube-system"))["spec"]
        except NotFound:
            rows.append([name, "not there", "", ""])
            continue
        age = (now - parse_time(spec["renewTime"])).total_seconds() if spec.get("renewTime") else float("inf")
        holder = spec.get("holderIdentity") or ""
        leads = bool(holder) and age < spec.get("leaseDurationSeconds", 15)
        renewed = f"{human_duration(age)} ago" if age != float("inf") else "never"
        rows.append([name, troubles.get(name) or ("leads" if leads else "nobody leads"), holder, renewed])
    return rows


async def _trouble(call: Invocation, name: str) -> str:
    """Return the failure of a component in the words of its own health check."""
    try:
        await call.client.sender.request("GET", f"/readyz/{name}")
    except ApiError as error:
        found = _REASON.search(error.message)
        return found[1] if found else error.message
    return ""  # it has recovered


async def _counts(call: Invocation) -> list[str]:
    nodes = (await call.client.list(builtin("nodes"))).items
    ready = sum(_is_ready(node) for node in nodes)
    phases: dict[str, int] = {}
    for pod in (await call.client.list(builtin("pods"))).items:
        phase = "Terminating" if pod["metadata"].get("deletionTimestamp") else pod["status"].get("phase", "Unknown")
        phases[phase] = phases.get(phase, 0) + 1
    pods = ", ".join(f"{count} {phase.lower()}" for phase, count in sorted(phases.items())) or "none"
    return [f"Nodes:  {ready} of {len(nodes)} ready", f"Pods:   {pods}"]


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _store(directory: Path | None) -> list[str]:
    if directory is None:
        return []
    size = sum(path.stat().st_size for path in directory.glob("state.db*") if path.is_file())
    return [f"Store:  {size / 2**20:.1f} MiB in {directory / 'state.db'}" if size else "Store:  in memory"]


async def _loops(call: Invocation) -> None:
    """Show the control loops that have been active; rates are measured with two samples."""
    before = await _queues(call)
    if not before:
        return
    await call.io.clock.sleep(call.flags.interval)
    after = await _queues(call)
    rows = [["LOOP", "WAITING", "RECONCILES", "PER SECOND"]]
    for name, queue in sorted(after.items()):
        if queue.taken or queue.waiting:
            rate = (queue.taken - before.get(name, _Queue()).taken) / call.flags.interval
            rows.append([name, f"{queue.waiting:.0f}", f"{queue.taken:.0f}", f"{rate:.1f}"])
    call.print("\n" + align("\n".join("\t".join(row) for row in rows), least=6, padding=3))


async def _queues(call: Invocation) -> dict[str, _Queue]:
    try:
        reply = await call.client.sender.request("GET", "/metrics", accept="text/plain")
    except ApiError:
        return {}  # the user may not read the metrics
    found: dict[str, _Queue] = {}
    for metric, name, value in _SAMPLE.findall(reply.body.decode("utf-8", "replace")):
        queue = found.get(name, _Queue())
        changed = {"waiting": float(value)} if metric == "workqueue_depth" else {"taken": float(value)}
        found[name] = queue._replace(**changed)
    return found


COMMAND = Command(
    "Tell how a cluster is: components, nodes, Pods, store, loops",
    run,
    (DATA_DIR, duration("interval", default=1.0, help="How long to sample the rates of the control loops.")),
)
