"""`setpoint reset`: delete all data of a cluster."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from setpoint.cli.command import Command
from setpoint.cli.down import end, wait_until_gone
from setpoint.cli.failures import Failed
from setpoint.cli.flags import switch
from setpoint.cli.invocation import Invocation
from setpoint.cli.kubeconfig_files import merged_into, remove
from setpoint.cli.real_node import RealNode, read_real_node
from setpoint.cli.running import DATA_DIR, directory_of, find_process, has_member
from setpoint.client.cluster_choice import ADMIN

_OURS = ("state.db", "identity", "pki", "admin.kubeconfig", "etcd-member.json")


async def run(invocation: Invocation) -> None:
    invocation.no_arguments()
    directory = directory_of(invocation)
    if not _is_there(directory):
        invocation.print(f"There is no cluster in {directory}.")
        return
    if not invocation.flags.yes and not _agreed(invocation, directory):
        raise Failed("nothing was removed; set --yes to remove it without confirmation")
    running, node = find_process(directory), read_real_node(directory)
    if node is not None and not node.has_files:
        node = None  # it has left the cluster
    _check_node(invocation, node)
    await _leave(invocation, directory, is_running=running is not None)
    if running is not None:
        await end(invocation, running, 30.0)
        if node is not None and node.runs:
            await wait_until_gone(invocation, node.pid, 60.0)
    if node is not None and os.geteuid() == 0:
        await _remove_node(invocation, node)
    for line in _forget(invocation, directory / ADMIN):
        invocation.print(line)
    shutil.rmtree(directory)
    invocation.print(f"The cluster in {directory} and all its data were removed.")


def _check_node(invocation: Invocation, node: RealNode | None) -> None:
    """Raise Failed if this machine is a node of the cluster, and the user may not remove it."""
    if node is not None and os.geteuid() != 0 and not invocation.flags.force:
        raise Failed(
            f"this machine is the node {node.name} of the cluster, and its Pods may run: run this command with sudo. "
            "--force removes the cluster all the same; then `sudo setpoint node leave` removes the node"
        )


async def _remove_node(invocation: Invocation, node: RealNode) -> None:
    """Remove the Pods of this machine and everything else that its node has made. Raise Failed."""
    from setpoint.cluster.config import ConfigError
    from setpoint.cluster.node_agent import load_config
    from setpoint.cluster.node_leaving import Leaving
    from setpoint.node.host.directories import NodeDirectories
    from setpoint.system import RandomIds

    try:
        config = load_config(NodeDirectories(root=Path(node.root)))
        if config is None:
            return
        leaving = Leaving(config, invocation.io.clock, RandomIds(), invocation.print, notifies_cluster=False)
        await leaving.run()
    except ConfigError as error:
        raise Failed(str(error)) from None
    if leaving.problems and not invocation.flags.force:
        raise Failed(f"{'; '.join(leaving.problems)}. The cluster is stopped; --force removes its data all the same")


async def _leave(invocation: Invocation, directory: Path, *, is_running: bool) -> None:
    """Remove the etcd member of this machine from those of the other machines. Raise Failed."""
    if not has_member(directory):
        return
    from setpoint.cluster.config import ConfigError
    from setpoint.cluster.etcd_packages import check_etcd_packages

    try:
        check_etcd_packages("`setpoint reset` of a machine with a member of etcd")
        # An optional dependency.
        from setpoint.cluster.etcd_member import MemberRecord
        from setpoint.cluster.etcd_members import EtcdMembers

        record = MemberRecord.read(directory)
        if record is None or not record.servers:
            return  # there is no other machine
        members = EtcdMembers(directory, record, invocation.io.clock)
        known = await members.known()
        own = next((one for one in known if one.is_own), None)
        if own is None or len(known) == 1:
            return  # it has been removed already, or all others have been
        if len(known) == 2 and not is_running:
            raise ConfigError("of two members, both must run for one to be removed: start it with `setpoint up` first")
        await members.remove(own, known)
        invocation.print(f"The member {own.member.name} was removed from etcd.")
    except ConfigError as error:
        if not invocation.flags.force:
            raise Failed(f"{error}. Nothing was removed; --force removes this machine's data all the same") from None
        invocation.print(f"The other machines still count this one as a member of etcd: {error}.")


def _forget(invocation: Invocation, kubeconfig: Path) -> Iterator[str]:
    """Remove the cluster from the kubeconfigs it was merged into: a current context must not point nowhere."""
    listed = [Path(path) for path in invocation.io.environment.get("KUBECONFIG", "").split(os.pathsep) if path]
    for target in dict.fromkeys([*merged_into(kubeconfig), invocation.io.home / ".kube" / "config", *listed]):
        if target.exists() and kubeconfig.exists() and target.samefile(kubeconfig):
            continue
        try:
            names = remove(kubeconfig, target)
        except (Failed, OSError, ValueError) as error:
            yield f"{target} was left as it is: {error}"
            continue
        for name in names:
            yield f"The context {name} was removed from {target}."


def _is_there(directory: Path) -> bool:
    """Return whether the data directory exists. Raise Failed for any other directory, so that no other files are
    deleted."""
    if directory.exists() and not any((directory / name).exists() for name in _OURS):
        raise Failed(f"{directory} does not look like the data directory of a cluster; nothing was removed")
    return directory.exists()


def _agreed(invocation: Invocation, directory: Path) -> bool:
    if not invocation.io.in_is_terminal:
        return False
    invocation.print(
        f"This removes the cluster in {directory} with all its objects and keys. Type yes to continue: ", end=""
    )
    invocation.flush()
    return invocation.io.stdin.readline().strip().lower() in (b"yes", b"y")


COMMAND = Command(
    "Stop the cluster of a data directory and remove everything that it holds",
    run,
    (
        DATA_DIR,
        switch("yes", "y", help="Do not ask for confirmation."),
        switch("force", help="Remove the data even if the other machines cannot be told that this one leaves."),
    ),
    connects=False,
)
