"""`setpoint node`: this machine as a real node, which runs containers."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from setpoint.cli.command import Command
from setpoint.cli.failures import Exit, Failed
from setpoint.cli.flags import duration, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.node_options import DIRECTORY_FLAGS, NODE_FLAGS, NODE_NAME, directories_of, node_config
from setpoint.cli.serving import print_line, ready, serve, server

if TYPE_CHECKING:
    from setpoint.node.host.node_config import NodeConfig
    from setpoint.node.host.preflight import Check

UNIT_NAME = "setpoint-node.service"
_QUIET = switch("quiet", "q", help="Print nothing when the agent runs.")
_UNIT = """\
[Unit]
Description=Setpoint node agent
Wants=network-online.target
After=network-online.target systemd-logind.service

[Service]
ExecStart={command}
Restart=always
RestartSec=2
# Containers are not stopped with the agent, and it manages their cgroups.
KillMode=process
Delegate=yes
LimitNOFILE=1048576
TasksMax=infinity
OOMScoreAdjust=-999

[Install]
WantedBy=multi-user.target
"""


def require_root(what: str) -> None:
    """Raise Failed unless this process may run containers."""
    if os.geteuid() != 0:
        raise Failed(f"{what} needs root: run it with sudo")


def _stored(invocation: Invocation) -> NodeConfig | None:
    """Return the options with which this machine joined; None if it has not. Raise Failed."""
    from setpoint.cluster.config import ConfigError
    from setpoint.cluster.node_agent import load_config

    try:
        return load_config(directories_of(invocation.flags))
    except ConfigError as error:
        raise Failed(str(error)) from None


def _config(invocation: Invocation, stored: NodeConfig | None) -> NodeConfig:
    """Return the options of this start. Raise Failed."""
    from setpoint.cluster.config import ConfigError
    from setpoint.cluster.node_agent import check_config, check_packages
    from setpoint.system import hostname

    name = invocation.flags.node_name or (stored.name if stored is not None else hostname().lower())
    config = node_config(invocation.flags, name, stored)
    try:
        check_packages()
        check_config(config)
    except ConfigError as error:
        raise Failed(str(error)) from None
    return config


# -- join, run --------------------------------------------------------------------------------------------------------


@server
def join(invocation: Invocation) -> None:
    flags = invocation.flags
    if len(invocation.args) != 1:
        invocation.usage("which cluster? Give the URL of its API server, such as https://10.0.0.1:6443")
    if not flags.token or not flags.ca:
        raise Failed("--token and --ca are needed; `setpoint token create` on the control plane prints them")
    require_root("setpoint node join")
    config = _config(invocation, None)

    async def main() -> None:
        from setpoint.cluster.node_agent import save_config
        from setpoint.cluster.node_joining import JoinRequest, NodeFiles, join
        from setpoint.node.host.directories import NodeDirectories
        from setpoint.system import RandomIds, SystemClock

        wanted = JoinRequest(invocation.args[0], flags.token, flags.ca, config.name)
        is_new = await join(NodeFiles(config.directories), wanted, SystemClock(), RandomIds())
        save_config(config)
        joined = "has joined" if is_new else "had already joined"
        print_line(invocation, f"This machine {joined} the cluster at {invocation.args[0]} as the node {config.name}.")
        if flags.run:
            require_machine(config)
            await _run_agent(invocation, config)
        else:
            where = "" if config.directories == NodeDirectories() else f" --root-dir {config.directories.root}"
            print_line(invocation, f"`sudo setpoint node run{where}` starts it.")

    serve(main)


@server
def run(invocation: Invocation) -> None:
    invocation.no_arguments()
    require_root("setpoint node run")
    stored = _stored(invocation)
    if stored is None:
        raise Failed(
            f"this machine has not joined a cluster: there are no options in {invocation.flags.root_dir}. "
            "`setpoint token create` on the control plane prints the command that joins it"
        )
    config = _config(invocation, stored)
    require_machine(config)

    async def main() -> None:
        await _run_agent(invocation, config)

    serve(main)


async def _run_agent(invocation: Invocation, config: NodeConfig) -> None:
    from setpoint.cluster.node_agent import run_node
    from setpoint.cluster.signals import stop_on_signals

    def started() -> None:
        text = f"The node {config.name} is running. Ctrl-C stops the agent; its Pods continue."
        ready(invocation, "" if invocation.flags.quiet else text)

    await run_node(config, stop_on_signals(), started)


# -- check, install, leave --------------------------------------------------------------------------------------------


def _checks(config: NodeConfig) -> list[Check]:
    """Return the results of the checks that concern a node with these options."""
    from setpoint.node.host.preflight import Options, checks

    options = Options(config.port, not config.container_runtime_endpoint, config.containerd)
    return checks(options._replace(cni_directories=(config.cni_bin_dir,)) if config.cni_bin_dir else options)


def require_machine(config: NodeConfig) -> None:
    """Raise Failed, with the command that installs what is missing, unless this machine can run containers."""
    from setpoint.node.host.preflight import Outcome, install_command

    found = _checks(config)
    failed = [one for one in found if one.outcome is Outcome.FAILED]
    if failed:
        install = install_command(failed)
        hint = f" Install what is missing: sudo {install}" if install else " `setpoint node check` tells more."
        raise Failed(f"this machine cannot run containers: {' '.join(one.message for one in failed)}{hint}")


def check(invocation: Invocation) -> None:
    from setpoint.cli.tabwriter import align
    from setpoint.node.host.preflight import install_command, passed

    invocation.no_arguments()
    stored = _stored(invocation) if os.geteuid() == 0 else None
    found = _checks(node_config(invocation.flags, stored.name if stored is not None else "check", stored))
    rows = [["CHECK", "RESULT", "DETAILS"], *([one.name, one.outcome.value, one.message] for one in found)]
    invocation.print(align("\n".join("\t".join(row) for row in rows), least=6, padding=3))
    if install := install_command(found):
        invocation.print(f"\nInstall what is missing: sudo {install}")
    if not passed(found):
        raise Exit(1)


def install(invocation: Invocation) -> None:
    invocation.no_arguments()
    flags = invocation.flags
    if not flags.print:
        raise Failed(f"set --print: it prints a unit for systemd, to be stored as /etc/systemd/system/{UNIT_NAME}")
    started = sys.argv[0]
    program = [os.path.abspath(started)]
    if os.path.basename(started) != "setpoint":  # as a module: python -m setpoint
        program = [os.path.abspath(sys.executable), "-m", "setpoint"]
    given = [f"--{flag.name}={value}" for flag, value in flags.occurrences if flag in DIRECTORY_FLAGS]
    command = shlex.join([*program, "node", "run", *given]).replace("%", "%%")
    invocation.print(_UNIT.format(command=command), end="")
    invocation.print_err(
        f"Store it as /etc/systemd/system/{UNIT_NAME}, then run: systemctl enable --now {UNIT_NAME.partition('.')[0]}"
    )


async def leave(invocation: Invocation) -> None:
    invocation.no_arguments()
    require_root("setpoint node leave")
    from setpoint.cluster.config import ConfigError
    from setpoint.cluster.node_leaving import Leaving
    from setpoint.system import RandomIds, hostname

    directories, stored = directories_of(invocation.flags), _stored(invocation)
    if stored is None and not directories.root.exists() and not directories.run.exists():
        invocation.print(f"This machine is not a node: there is no {directories.root}.")
        return
    config = node_config(invocation.flags, stored.name if stored is not None else hostname().lower(), stored)
    if not invocation.flags.yes and not _agreed(invocation, config):
        raise Failed("nothing was removed; set --yes to leave without confirmation")
    leaving = Leaving(config, invocation.io.clock, RandomIds(), invocation.print, invocation.flags.timeout)
    try:
        await leaving.run()
    except ConfigError as error:
        raise Failed(str(error)) from None
    if leaving.problems:
        raise Failed(f"{'; '.join(leaving.problems)}. Repeat the command when this is resolved")
    unit = Path("/etc/systemd/system") / UNIT_NAME
    if unit.exists():
        invocation.print(f"The unit is still there: systemctl disable {unit.stem} && rm {unit}")
    invocation.print("This machine is no longer a node.")


def _agreed(invocation: Invocation, config: NodeConfig) -> bool:
    if not invocation.io.in_is_terminal:
        return False
    invocation.print(
        f"This ends all Pods of the node {config.name} and removes their data in {config.directories.root}. "
        "Type yes to continue: ",
        end="",
    )
    invocation.flush()
    return invocation.io.stdin.readline().strip().lower() in (b"yes", b"y")


_JOIN = Command(
    "Make this machine a node of a cluster",
    join,
    (
        text("token", help="Bootstrap token, from `setpoint token create`."),
        text("ca", help="Pin of the cluster's authority, sha256:..., from `setpoint token create`."),
        switch("run", help="Run the agent afterwards, until Ctrl-C."),
        _QUIET,
        NODE_NAME,
        *NODE_FLAGS,
    ),
    usage="URL --token TOKEN --ca PIN [flags]",
    connects=False,
    examples="""
    # With the line that `setpoint token create` prints
    sudo setpoint node join https://10.0.0.1:6443 --token abcdef.0123456789abcdef --ca sha256:...

    # Under another name, and run it until Ctrl-C
    sudo setpoint node join https://10.0.0.1:6443 --token ... --ca ... --node-name worker-1 --run
    """,
)
_RUN = Command(
    "Run the agent of this machine, with the options of `join`", run, (_QUIET, NODE_NAME, *NODE_FLAGS), connects=False
)
_CHECK = Command(
    "Check whether this machine can run containers, and print how to install what is missing",
    check,
    NODE_FLAGS,
    connects=False,
)
_LEAVE = Command(
    "End all Pods of this machine's node, and remove everything that it has made",
    leave,
    (
        *NODE_FLAGS,
        switch("yes", "y", help="Do not ask for confirmation."),
        duration("timeout", default=60.0, help="How long to wait for Pods to end; 0 ends them at once."),
    ),
    connects=False,
)
_INSTALL = Command(
    "Print a systemd unit that runs the agent",
    install,
    (switch("print", help="Print the unit."), *DIRECTORY_FLAGS),
    connects=False,
    examples="""
    setpoint node install --print | sudo tee /etc/systemd/system/setpoint-node.service
    """,
)

COMMAND = Command(
    "Run this machine as a real node, which runs containers; join, check, leave",
    run,
    (_QUIET, NODE_NAME, *NODE_FLAGS),
    children={"join": _JOIN, "run": _RUN, "check": _CHECK, "leave": _LEAVE, "install": _INSTALL},
    connects=False,
)
