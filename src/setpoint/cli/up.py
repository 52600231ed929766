"""`setpoint up`: a whole cluster, in this process until Ctrl-C, or in a background process."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from setpoint.cli.command import Command
from setpoint.cli.component_options import LOAD_BALANCER_POOL
from setpoint.cli.failures import Failed
from setpoint.cli.flags import about, duration, number, switch, text
from setpoint.cli.fleet_file import FLEET, IMAGES, PACE, pace_of, simulation_of
from setpoint.cli.invocation import Invocation
from setpoint.cli.node_options import NODE_FLAGS_OF_UP
from setpoint.cli.real_node import Account, acting_as, read_real_node
from setpoint.cli.running import (
    DATA_DIR,
    Running,
    directory_of,
    find_running,
    has_joined,
    has_member,
    none_runs,
    process_recorded,
    running_now,
    written_down,
)
from setpoint.cli.server_options import NAME, SERVER_FLAGS, server_config
from setpoint.cli.serving import STARTED, print_line, ready, serve, server
from setpoint.cli.up_page import PAGE_FLAGS, about_the_page, page_of_up, served_page, written_link
from setpoint.client.cluster_choice import data_directory

if TYPE_CHECKING:
    from setpoint.node.options import FleetOptions

PROGRAM_NAME = "setpoint"
SIMULATED = "simulate.setpoint.dev/node"
"""The label and the taint of simulated nodes beside real ones."""


def program_name(environment: Mapping[str, str], argv: Sequence[str], interpreter: str = sys.executable) -> str:
    """Return `setpoint` if the shell finds this very program under that name, else a path to it: relative if it is
    below the current directory, as `.venv/bin/setpoint`."""
    started = argv[0] if argv else ""
    if os.path.basename(started) != PROGRAM_NAME:  # as a module: python -m setpoint
        return f"{_path(interpreter)} -m {PROGRAM_NAME}"
    found = shutil.which(PROGRAM_NAME, path=environment.get("PATH", os.defpath))
    if found is not None and os.path.realpath(found) == os.path.realpath(started):
        return PROGRAM_NAME
    return _path(started)


def _path(program: str) -> str:
    path, here = Path(os.path.abspath(program)), Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))


_POLL_INTERVAL, _LONGEST = 0.01, 300.0
_LAST_WORDS = 2000
_SLOW_STEP = 5.0
"""Seconds after which a step of the start is reported where there is no terminal."""
_HISTORY_RETENTION = 24 * 3600.0
_CLUSTER, _MACHINE = "A cluster with", "This machine of the control plane"
"""The beginnings of the summary: of a cluster, and of a further machine, which does not run the nodes."""


def start_detached(invocation: Invocation) -> int:
    directory, account = directory_of(invocation), None
    if invocation.flags.real:
        from setpoint.cli.up_real import prepare

        account = prepare(invocation)[1]
    log = directory / "up.log"
    with _log_file(log, account) as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "setpoint", "up", *_flags(invocation)],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        running = _wait_until_ready(invocation, process, directory, log)
    except KeyboardInterrupt:
        process.terminate()
        raise
    took = time.monotonic() - STARTED
    real = f"This machine is the node {_real_name(directory)}: it runs containers." if account is not None else ""
    link = written_link(invocation, directory)
    invocation.print(welcome(invocation, running.url, Path(running.kubeconfig), running.nodes, took, link, real))
    return 0


def _log_file(log: Path, account: Account | None) -> BinaryIO:
    """Return the log file of a background process, in the data directory of its user."""
    with acting_as(account) if account is not None else nullcontext():
        log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")


def _real_name(directory: Path) -> str:
    node = read_real_node(directory)
    return node.name if node is not None else ""


def _wait_until_ready(invocation: Invocation, process: subprocess.Popen[bytes], directory: Path, log: Path) -> Running:
    """Return the record of the background process when it is ready; print its warnings meanwhile. Raise Failed."""
    relayed = 0
    while True:
        running = find_running(directory)
        ended = process.poll() is not None
        relayed = _relay(invocation, log, relayed)
        if running is not None and _is_of(process, running, directory):
            return running
        if ended:
            raise Failed(_last_words(log) or f"the cluster ended with {process.returncode}; see {log}")
        if time.monotonic() - STARTED > _LONGEST:
            raise Failed(
                f"the cluster is not ready after {_LONGEST:.0f} s; process {process.pid} continues, see {log}. "
                "`setpoint down` ends it"
            )
        time.sleep(_POLL_INTERVAL)


def _is_of(process: subprocess.Popen[bytes], running: Running, directory: Path) -> bool:
    """Return whether a background process runs the cluster: itself, or beside a real node."""
    node = read_real_node(directory)
    return running.pid == process.pid or (node is not None and node.pid == process.pid)


def _flags(invocation: Invocation) -> list[str]:
    """Return the flags for the background process, with the pace, which it cannot derive from a terminal."""
    typed = [
        f"--{flag.name}={value}" for flag, value in invocation.flags.occurrences if flag.name not in ("detach", "pace")
    ]
    return [*typed, f"--pace={pace_of(invocation)}"]


def _relay(invocation: Invocation, log: Path, start: int) -> int:
    """Print the warnings and progress lines in the log after the position `start`; return the position of the next
    line. The summary, an error and a traceback are not among them."""
    with open(log, "rb") as file:
        file.seek(start)
        lines = file.read(_LAST_WORDS).splitlines(keepends=True)
    for line in lines:
        text = line.decode("utf-8", "replace")
        if not text.endswith("\n") or text.startswith((_CLUSTER, _MACHINE, "error: ", "Traceback ")):
            break
        invocation.print_err(text.rstrip())
        start += len(line)
    return start


def _last_words(log: Path) -> str:
    text = log.read_bytes()[-_LAST_WORDS:].decode("utf-8", "replace").strip()
    return text.rpartition("error: ")[2]


@server
def run(invocation: Invocation) -> int | None:
    invocation.no_arguments()
    directory = directory_of(invocation)
    flags = invocation.flags
    if flags.join or has_joined(directory) or flags.real:
        flags.set_default("nodes", 0)
    if flags.taint_simulated and not (flags.real or flags.beside_node):
        raise Failed("--taint-simulated needs --real")
    # Nodes join with such tokens. Without a token, that is, a Secret, no one gets in by it.
    flags.set_default("enable-bootstrap-token-auth", True)
    flags.set_default("history-retention", _HISTORY_RETENTION)
    wanted = simulation_of(invocation)
    none_runs(directory)
    if flags.detach:
        return start_detached(invocation)
    if flags.real:
        from setpoint.cli.up_real import run_real

        return run_real(invocation, directory, pace_of(invocation))
    if flags.beside_node:
        wanted = _marked(wanted, taint=flags.taint_simulated)
    from setpoint.cluster.allinone import cluster
    from setpoint.cluster.apiserver import serve_until
    from setpoint.cluster.signals import stop_on_signals

    nodes = wanted.nodes
    config = server_config(invocation.flags, directory)
    page = page_of_up(flags, directory)
    progress = _Progress(invocation)
    # Real nodes renew their Leases every ten seconds, whatever the pace of simulated nodes is.
    grace = flags.node_monitor_grace_period if flags.beside_node or flags.given(_GRACE.name) else None

    async def main() -> None:
        stop = stop_on_signals()
        async with (
            cluster(
                config,
                nodes=wanted,
                step=progress.step,
                node_monitor_grace_period=grace,
                load_balancer_pool=flags.load_balancer_pool,
            ) as running,
            served_page(invocation, page, running, directory) as link,
        ):
            progress.clear()
            api = running.apiserver
            _copy_kubeconfig(invocation, api.kubeconfig)
            with written_down(invocation, directory, running_now(invocation, running.apiserver, nodes, config.store)):
                took = time.monotonic() - STARTED
                text = welcome(invocation, api.url, api.kubeconfig, nodes, took, link) if not flags.beside_node else ""
                ready(invocation, text, api.api.resources.count)
                if invocation.io.out_is_terminal and not invocation.flags.quiet:
                    from setpoint.cli.up_log import print_events

                    async with print_events(invocation, running):
                        await serve_until(stop, api.api)
                else:
                    await serve_until(stop, api.api)
            print_line(invocation, "Stopping.")

    try:
        with process_recorded(directory, config.store):
            serve(main)
    finally:
        progress.clear()
    return None


def _marked(fleet: FleetOptions, *, taint: bool) -> FleetOptions:
    """Return a fleet whose nodes have a label that real nodes do not have, and with `taint` a taint too."""
    template = fleet.template
    taints = (
        (*template.taints, {"key": SIMULATED, "value": "true", "effect": "NoSchedule"}) if taint else template.taints
    )
    return replace(fleet, template=replace(template, labels={SIMULATED: "true", **template.labels}, taints=taints))


class _Progress:
    """Shows what `up` waits for: on a terminal as a line that changes, else as a line for each step that takes long."""

    def __init__(self, invocation: Invocation, now: Callable[[], float] = time.monotonic) -> None:
        self._invocation = invocation
        self._now = now
        self._dirty = False
        self._current, self._since, self._printed = "", 0.0, False
        """The current step, when it began, and whether its line was printed."""

    def step(self, what: str) -> None:
        """Note that this step begins, or continues: a step that waits repeats the invocation."""
        if self._invocation.flags.quiet:
            return
        if self._invocation.io.out_is_terminal:
            self._invocation.print(f"\r\x1b[KStarting: {what}", end="")
            self._invocation.flush()
            self._dirty = True
        elif what != self._current:
            self._current, self._since, self._printed = what, self._now(), False
        elif not self._printed and self._now() - self._since > _SLOW_STEP:
            self._printed = True
            print_line(self._invocation, f"Starting: {what}")

    def clear(self) -> None:
        if self._dirty:
            self._invocation.print("\r\x1b[K", end="")
            self._invocation.flush()
            self._dirty = False


def _copy_kubeconfig(invocation: Invocation, kubeconfig: Path) -> None:
    """Write a copy of the kubeconfig if one was requested."""
    if invocation.flags.kubeconfig:
        from setpoint.cli.private_file import write_privately

        write_privately(Path(invocation.flags.kubeconfig), kubeconfig.read_bytes())


def welcome(
    invocation: Invocation, url: str, kubeconfig: Path, nodes: int, took: float, link: str, real_node: str = ""
) -> str:
    """Return the text that shows the cluster and the next commands to try. `link` is the link to the page; empty if it
    is not to be shown. `real_node` is a sentence about the node that this machine is; empty if it is none."""
    default_paths = directory_of(invocation).absolute() == data_directory(Path.cwd(), invocation.io.home)
    where = "" if default_paths else f" --data-dir {shlex.quote(invocation.flags.data_dir)}"
    chosen = invocation.io.environment.get("KUBECONFIG")
    shown = invocation.flags.kubeconfig or str(kubeconfig)
    export = f"export KUBECONFIG={shlex.quote(str(Path(shown).absolute()))}"
    setpoint = program_name(invocation.io.environment, sys.argv)
    detached = invocation.flags.detach
    has_other_machines = has_joined(directory_of(invocation)) and not nodes and not real_node
    what = _MACHINE if has_other_machines else f"{_CLUSTER} {_count(nodes, is_real=bool(real_node))}"
    lines = [
        f"{what} is ready at {url} after {took:.2f} s.",
        *([real_node] if real_node else []),
        *about_the_page(invocation, setpoint, where, link),
        f"The kubeconfig is {shown}. Try{'' if detached else ', in another terminal'}:",
        "",
        *([] if default_paths and not chosen else [f"  {export}"]),
        f"  {setpoint} get nodes",
        f"  {setpoint} create deployment hello --image=nginx --replicas=3",
        f"  {setpoint} get pods --watch",
        "",
        f"kubectl and other Kubernetes clients use it with `{export}`.",
        _how_to_stop(invocation, setpoint, where),
    ]
    if has_member(directory_of(invocation)):
        lines.append(f"`{setpoint} token create{where}` prints the command with which further machines join.")
    return "\n".join(lines)


def _count(nodes: int, *, is_real: bool) -> str:
    simulated = f"{nodes} {'simulated ' if is_real else ''}{'node' if nodes == 1 else 'nodes'}"
    return simulated if not is_real else "one real node" + (f" and {simulated}" if nodes else "")


def _how_to_stop(invocation: Invocation, setpoint: str, where: str) -> str:
    forgets = invocation.flags.store == "memory"
    if not invocation.flags.detach:
        return "Ctrl-C stops it" + (
            "; its objects are in memory only." if forgets else "; the same command goes on where it left off."
        )
    same = "the same command" if invocation.flags.etcd_servers else f"`{setpoint} up{where}`"
    again = "; its objects are in memory only." if forgets else f"; {same} goes on where it left off."
    return f"`{setpoint} down{where}` stops it{again}"


_GRACE = duration(
    "node-monitor-grace-period", default=50.0, help="How long a node may be silent until it is not ready."
)
COMMAND = Command(
    "Run a whole cluster: API server, controllers, scheduler and simulated nodes",
    run,
    (
        number("nodes", default=3, least=0, most=50_000, help="Simulated nodes; with --join and --real 0 by default."),
        switch("real", help="Make this machine a real node, which runs containers; needs root (see `setpoint node`)."),
        text("user", help="With --real: user as whom the server runs; by default the one who called sudo."),
        switch("taint-simulated", help="With --real: keep Pods that do not tolerate it off simulated nodes."),
        text("beside-node", help="Name of the real node that another process runs beside this server.", hidden=True),
        DATA_DIR._replace(help="Data directory of the cluster; a later `setpoint up` continues with it."),
        NAME,
        text("kubeconfig", help="Also write the administrator's kubeconfig to this file."),
        switch(
            "detach", "d", help="Return when the cluster is ready; it runs in the background until `setpoint down`."
        ),
        switch("quiet", "q", help="Print the summary only, and no events of the control loops."),
        PACE,
        IMAGES,
        FLEET,
        *PAGE_FLAGS,
        *SERVER_FLAGS,
        *about("Controllers", _GRACE, LOAD_BALANCER_POOL),
        *NODE_FLAGS_OF_UP,
    ),
    connects=False,
    examples="""
    # A cluster with three nodes, which lives in .setpoint
    setpoint up

    # In the background, and away again
    setpoint up --detach
    setpoint down

    # Another one beside it, with a thousand nodes
    setpoint up --nodes 1000 --data-dir /tmp/big --port 7443

    # A cluster whose node is this machine, and five simulated nodes beside it
    sudo setpoint up --real --nodes 5

    # A control plane of several machines: the first, and the command for the others
    setpoint up --etcd embedded --detach
    setpoint token create
    """,
)
