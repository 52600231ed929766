"""The command lines of real nodes: what they check before anything starts, and what they print."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from command_line import Result, typed_offline

from setpoint.cli import node
from setpoint.cli.flags import Flags
from setpoint.cli.node_options import NODE_FLAGS, NODE_FLAGS_OF_UP, NODE_NAME, node_config
from setpoint.cluster import node_agent
from setpoint.cluster.node_agent import AgentRecord, load_config, locked, save_config
from setpoint.node.host.directories import NodeDirectories
from setpoint.node.host.node_config import NodeConfig, NodeConfigError

JOIN = "node join https://10.0.0.1:6443 --token abcdef.0123456789abcdef --ca sha256:" + "0" * 64


@pytest.fixture
def as_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(node, "require_machine", lambda _: None)


def places(directory: Path) -> str:
    return f"--root-dir {directory}/root --logs-dir {directory}/logs --run-dir {directory}/run"


def parsed(line: str, stored: NodeConfig | None = None) -> NodeConfig:
    return node_config(Flags((NODE_NAME, *NODE_FLAGS)).parse(line.split()).values, "n1", stored)


@pytest.mark.parametrize("command", [JOIN, "node run", "node", "node leave --yes", "up --real --data-dir DIR"])
def test_without_root_a_command_says_so(as_user: None, tmp_path: Path, command: str) -> None:
    result = typed_offline(command.replace("DIR", str(tmp_path / "none")), tmp_path)
    assert result.code == 1
    assert "needs root: run it with sudo" in result.err


def test_without_the_extra_a_command_says_how_to_install_it(
    as_root: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_agent, "_PACKAGES", ("no_such_package",))
    for command in (f"{JOIN} {places(tmp_path)}", f"up --real --data-dir {tmp_path}/none {places(tmp_path)}"):
        result = typed_offline(command, tmp_path)
        assert "real nodes need no_such_package: pip install 'setpoint[node]'" in result.err


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("node join", "which cluster? Give the URL of its API server"),
        ("node join https://10.0.0.1:6443", "--token and --ca are needed; `setpoint token create`"),
        (f"{JOIN} --max-pods 0", 'invalid argument "0" for "--max-pods" flag: must be at least 1'),
        (f"{JOIN} --node-ip 127.0.0.1", "must be an address at which the API server reaches this machine"),
        (f"{JOIN} --node-name Not_Valid", "a lowercase RFC 1123 subdomain must consist of"),
        (f"{JOIN} --kube-reserved cpu", "--kube-reserved cpu: expected key=value"),
        (f"{JOIN} --kube-reserved cpu=lots", "--kube-reserved cpu=lots: is not a quantity"),
        (f"{JOIN} --registry-mirror docker.io", "must be HOST=URL"),
        (f"{JOIN} --register-with-taints a=b", "--register-with-taints a=b: expected key=value:Effect"),
        (f"{JOIN} --register-with-taints a=b:Never", "the effect must be one of NoSchedule"),
        (f"{JOIN} --root-dir /", "must be an absolute path, and not /"),
        (f"{JOIN} --image-gc-low-threshold 90", "must be less than --image-gc-high-threshold"),
        (f"{JOIN} --kubelet-port 10248", "must be two different ports"),
        ("node run --root-dir DIR/none", "this machine has not joined a cluster"),
        ("node install", "set --print"),
        ("up --taint-simulated --data-dir DIR/none", "--taint-simulated needs --real"),
        ("up --real --insecure-http --data-dir DIR/none", "--real cannot be combined with --insecure-http"),
        ("up --real --user no-such-user --data-dir DIR/none --node-ip 10.0.0.1", "there is no such user"),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(
    as_root: None, tmp_path: Path, command: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("setpoint.cli.up_real.require_machine", lambda _: None)
    result = typed_offline(command.replace("DIR", str(tmp_path)), tmp_path)
    assert result.code == 1
    assert why in result.err
    assert not (tmp_path / "none").exists()


def test_options_of_a_node_are_stored_and_overridden(tmp_path: Path) -> None:
    line = f"{places(tmp_path)} --node-labels a=b,c=d --register-with-taints k=v:NoSchedule --kube-reserved cpu=100m"
    line += " --registry-mirror docker.io=http://10.0.0.1:5000 --eviction-hard memory.available<200Mi --max-pods 20"
    config = parsed(line)
    config.check()
    assert config.node_labels == {"a": "b", "c": "d"} and config.kube_reserved == {"cpu": "100m"}
    assert config.register_with_taints == ({"key": "k", "value": "v", "effect": "NoSchedule"},)
    assert config.eviction_hard == {"memory.available": "200Mi"}
    save_config(config)
    stored = load_config(NodeDirectories(tmp_path / "root"))
    assert stored == config
    again = parsed(f"--root-dir {tmp_path}/root --max-pods 30", stored)
    assert again.directories == config.directories and again.max_pods == 30 and again.node_labels == config.node_labels
    assert "max_pods" not in NodeConfig("n1").as_json() and NodeConfig.from_json({"name": "n1"}) == NodeConfig("n1")


def test_stored_options_that_are_damaged_are_named(as_root: None, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    for text in ("{", "[]", '{"max_pods": 3}', '{"name": "n1", "directories": 3}'):
        (tmp_path / "root" / "node.json").write_text(text)
        assert f"cannot use {tmp_path}/root/node.json: " in typed_offline(f"node run {places(tmp_path)}", tmp_path).err
    future = NodeConfig.from_json({"name": "n1", "of_a_later_version": 1})
    assert future == NodeConfig("n1")
    with pytest.raises(NodeConfigError):
        NodeConfig("n1", pod_cidr="nonsense").check()


def test_the_unit_for_systemd(tmp_path: Path) -> None:
    result = typed_offline(f"node install --print --root-dir {tmp_path}", tmp_path)
    assert result.code == 0
    lines = result.out.splitlines()
    after = "After=network-online.target systemd-logind.service"
    for line in (after, "Delegate=yes", "KillMode=process", "Restart=always", "WantedBy=multi-user.target"):
        assert line in lines
    (start,) = (line for line in lines if line.startswith("ExecStart="))
    assert start.endswith(f" node run --root-dir={tmp_path}")
    assert start.removeprefix("ExecStart=").startswith("/")


def test_two_agents_do_not_share_a_directory(tmp_path: Path) -> None:
    config = NodeConfig("n1", NodeDirectories(tmp_path / "root", tmp_path / "logs", tmp_path / "run"))
    with locked(config):
        record = AgentRecord.read(config.directories)
        assert record is not None and record == AgentRecord(os.getpid(), "n1", 10250)
        with pytest.raises(Exception, match=rf"an agent already runs .*\(process {os.getpid()}\)"), locked(config):
            pass
    assert AgentRecord.read(config.directories) is None
    (tmp_path / "run" / "agent.json").write_text(json.dumps({"pid": 1, "name": "n1", "port": 1}))
    assert AgentRecord.read(config.directories) is None  # left behind by a process that was killed


def test_up_and_node_flags_do_not_collide() -> None:
    from setpoint.cli.up import COMMAND

    names = [name for flag in COMMAND.flags for name in (flag.name, *flag.alias)]
    assert len(names) == len(set(names))
    assert {flag.name for flag in NODE_FLAGS_OF_UP} == {flag.name for flag in (NODE_NAME, *NODE_FLAGS)}


def test_the_check_prints_a_table_and_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from setpoint.node.host import preflight
    from setpoint.node.host.preflight import Check, Outcome

    found = [Check("kernel", Outcome.OK, "fine"), Check("runc", Outcome.FAILED, "runc is not installed.", ("runc",))]
    monkeypatch.setattr(preflight, "checks", lambda options: found)
    monkeypatch.setattr(preflight, "install_command", lambda checks: "apt-get install -y runc")

    def run(command: str) -> Result:
        return typed_offline(f"{command} {places(tmp_path)}", tmp_path)

    result = run("node check")
    assert result.code == 1
    assert result.out.splitlines()[0].split() == ["CHECK", "RESULT", "DETAILS"]
    assert "runc     failed   runc is not installed." in result.out
    assert result.out.endswith("Install what is missing: sudo apt-get install -y runc\n")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    save_config(NodeConfig("n1", NodeDirectories(tmp_path / "root", tmp_path / "logs", tmp_path / "run")))
    refused = run("node run")
    assert "cannot run containers: runc is not installed. Install what is missing: sudo apt-get" in refused.err
