"""`setpoint up --real` runs a server and an agent as two processes, which start and end together."""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from command_line import surroundings, typed_offline

from setpoint.cli.flags import Flags
from setpoint.cli.invocation import Invocation
from setpoint.cli.node_options import node_config
from setpoint.cli.real_node import Account, RealNode, account_of, acting_as, read_real_node, write_real_node
from setpoint.cli.running import find_running
from setpoint.cli.up import COMMAND
from setpoint.cli.up_real import RealUp, server_flags
from setpoint.client.client import Client
from setpoint.client.https import connect
from setpoint.client.kubeconfig import Kubeconfig
from setpoint.client.resources import builtin
from setpoint.cluster.config import ConfigError
from setpoint.cluster.node_certificates import StoredCertificate
from setpoint.cluster.node_joining import NodeFiles, node_access
from setpoint.meta.objects import Obj
from setpoint.system import RandomIds, SystemClock

NODES = builtin("nodes")
CLOCK, IDS = SystemClock(), RandomIds()
WORDS = "--real --nodes 2 --taint-simulated --store memory --bind-address 127.0.0.1 --port 0 --node-name real"
WORDS += " --node-ip 10.99.99.99 --quiet"


def invoked(directory: Path, words: str) -> tuple[Invocation, list[str]]:
    """Return the invocation of `up`, and a list that gets what it prints."""
    places = f"--root-dir {directory}/root --logs-dir {directory}/logs --run-dir {directory}/run"
    io, _ = surroundings(directory, CLOCK, "", {"PATH": os.environ.get("PATH", "")}, None)
    line = Flags(COMMAND.flags).parse(f"{words} --data-dir {directory}/data {places}".split())
    invocation, printed = Invocation(io, line, "setpoint up"), []

    def keep(text: str, end: str = "\n") -> None:
        printed.append(text)

    invocation.print = invocation.print_err = keep  # type: ignore[method-assign]
    return invocation, printed


class Up(RealUp):
    """With an agent that only reports that it is ready, with the identity that it was given."""

    agents: list[int]

    async def _start_agent(self) -> asyncio.subprocess.Process:
        files = NodeFiles(self.config.directories)
        access = node_access(files, StoredCertificate(files.client, CLOCK, IDS), CLOCK)
        client = connect(access, CLOCK)
        condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "real"}}
        with suppress(Exception):
            await client.create({**node, "status": {"conditions": [condition]}})
        await client.close()
        process = await asyncio.create_subprocess_exec("sleep", "1000")
        self.agents.append(process.pid)
        return process


def myself() -> Account:
    found = pwd.getpwuid(os.getuid())
    return Account(found.pw_name, found.pw_uid, found.pw_gid, found.pw_dir)


def up_in(directory: Path) -> tuple[Up, list[str]]:
    invocation, printed = invoked(directory, WORDS)
    config = node_config(invocation.flags, invocation.flags.node_name)
    (directory / "data").mkdir(mode=0o700)
    flags = server_flags(invocation, config, directory / "data", "instant")
    up = Up(invocation, config, myself(), directory / "data", flags)
    Up.agents = []
    return up, printed


async def until(check: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for what other processes do."""
    async with asyncio.timeout(seconds):
        while True:
            if check():
                return
            await asyncio.sleep(0.02)


def is_alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.slow
async def test_a_cluster_with_a_real_node_starts_and_ends(tmp_path: Path) -> None:
    up, printed = up_in(tmp_path)
    directory = tmp_path / "data"
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(up.run())
        await until(lambda: any("is ready at" in line for line in printed))
        banner = next(line for line in printed if "is ready at" in line)
        assert banner.startswith("A cluster with one real node and 2 simulated nodes is ready at https://127.0.0.1:")
        assert "This machine is the node real: it runs containers." in banner
        node = read_real_node(directory)
        assert node is not None and node.runs and node.pid == os.getpid() and node.name == "real"
        assert stat.S_IMODE((directory / "real-node.json").stat().st_mode) == 0o600
        client = connect(Kubeconfig.load([directory / "admin.kubeconfig"]).access(), CLOCK)
        await check_nodes(client)
        await client.close()
        os.kill(up.agents[0], signal.SIGKILL)
        await until(lambda: len(up.agents) == 2)
        assert any("it is started again in 1 s" in line for line in printed)
        record = find_running(directory)
        assert record is not None
        os.kill(record.pid, signal.SIGTERM)  # as `setpoint down` does
        assert await running == 0
    assert not any(map(is_alive, up.agents))
    node = read_real_node(directory)
    assert node is not None and not node.runs and node.has_files


async def check_nodes(client: Client) -> None:
    nodes: dict[str, Obj] = {one["metadata"]["name"]: one for one in (await client.list(NODES)).items}
    assert set(nodes) == {"real", "node-1", "node-2"}
    simulated = nodes["node-1"]
    assert simulated["metadata"]["labels"]["simulate.setpoint.dev/node"] == "true"
    taint = {"key": "simulate.setpoint.dev/node", "value": "true", "effect": "NoSchedule"}
    assert taint in simulated["spec"]["taints"]
    labels = nodes["real"]["metadata"]["labels"]
    assert "simulate.setpoint.dev/node" not in labels and labels["node-role.kubernetes.io/control-plane"] == ""


@pytest.mark.slow
async def test_a_server_that_does_not_start_ends_the_command(tmp_path: Path) -> None:
    up, printed = up_in(tmp_path)
    up.flags.append("--service-cluster-ip-range=nonsense")
    with pytest.raises(Exception) as found:
        await up.run()
    assert getattr(found.value, "code", None) == 1
    assert not up.agents and not printed and read_real_node(tmp_path / "data") is None


def test_the_server_listens_where_pods_reach_it(tmp_path: Path) -> None:
    def flags(words: str) -> list[str]:
        invocation, _ = invoked(tmp_path, words)
        config = node_config(invocation.flags, "real")
        return server_flags(invocation, config, tmp_path / "data", "instant")

    plain = flags("--real --node-ip 10.0.0.7 --max-pods 5 --user x --detach --name shop")
    assert {"--bind-address=0.0.0.0", "--advertise-address=10.0.0.7", "--name=shop", "--beside-node=real"} <= set(plain)
    assert not [flag for flag in plain if flag.startswith(("--real", "--node-ip", "--max-pods", "--user", "--detach"))]
    given = flags("--real --node-ip 10.0.0.7 --bind-address 10.0.0.8 --advertise-address 10.0.0.9")
    assert "--bind-address=10.0.0.8" in given and "--advertise-address=10.0.0.9" in given
    assert not any(flag.startswith("--bind-address") for flag in flags("--real --node-ip 10.0.0.7 --etcd embedded"))


def test_the_server_runs_as_the_user_who_called_sudo() -> None:
    own = pwd.getpwuid(os.getuid())
    assert account_of("", {"SUDO_UID": str(own.pw_uid)}).name == own.pw_name
    assert account_of("", {}).is_root
    assert account_of("root", {"SUDO_UID": "12345"}).is_root
    account = Account("ann", 1000, 1000, "/home/ann")
    passed = account.environment({"PATH": "/bin", "SUDO_UID": "1000", "HOME": "/root", "XDG_STATE_HOME": "/root/x"})
    assert passed == {"PATH": "/bin", "HOME": "/home/ann", "USER": "ann", "LOGNAME": "ann"}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to act as another user")
def test_files_in_the_data_directory_belong_to_the_user(tmp_path: Path) -> None:
    nobody = account_of("nobody", {})
    tmp_path.chmod(0o711)
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.mkdir(mode=0o700)
    theirs.mkdir(mode=0o700)
    os.chown(theirs, nobody.uid, nobody.gid)
    for parent in tmp_path.parents:
        if parent != Path("/") and not parent.stat().st_mode & 0o001:
            pytest.skip(f"others cannot enter {parent}")
    with acting_as(nobody):
        write_real_node(theirs, RealNode(1, "n", "/x"))
        with pytest.raises(PermissionError):
            write_real_node(mine, RealNode(1, "n", "/x"))
    assert (theirs / "real-node.json").stat().st_uid == nobody.uid
    assert os.geteuid() == 0 and os.getegid() == 0


def test_reset_leaves_a_real_node_to_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, root = tmp_path / "data", tmp_path / "root"
    directory.mkdir()
    root.mkdir()
    (directory / "identity").write_text("x")
    write_real_node(directory, RealNode(0, "real", str(root)))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    refused = typed_offline(f"reset --yes --data-dir {directory}", tmp_path)
    assert "this machine is the node real of the cluster" in refused.err and directory.exists()
    root.rmdir()  # it has left
    assert typed_offline(f"reset --yes --data-dir {directory}", tmp_path).code == 0
    assert not directory.exists()


@pytest.mark.parametrize(
    ("words", "grace"),
    [
        ("--pace fast", None),
        ("--pace fast --beside-node real", 50.0),
        ("--pace fast --node-monitor-grace-period 20s", 20.0),
    ],
)
def test_real_nodes_may_be_silent_longer_than_fast_simulated_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, grace: float | None
) -> None:
    """They renew their Leases every ten seconds, but the period of a fast cluster is five."""
    found = []

    def cluster(*_: object, node_monitor_grace_period: float | None, **__: object) -> None:
        found.append(node_monitor_grace_period)
        raise ConfigError("enough")

    monkeypatch.setattr("setpoint.cluster.allinone.cluster", cluster)
    result = typed_offline(f"up --store memory --port 0 --nodes 1 --data-dir {tmp_path}/data {words}", tmp_path)
    assert "enough" in result.err
    assert found == [grace]
