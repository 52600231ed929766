"""`setpoint token create` prints the command that joins a machine, for what the cluster can be joined with."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from command_line import Result, surroundings

from setpoint.cli.main import run_within
from setpoint.cluster.apiserver import RunningApiServer, apiserver
from setpoint.cluster.config import MEMBER_RECORD, AccessConfig, ApiServerConfig
from setpoint.cluster.node_joining import discover
from setpoint.cluster.node_tokens import NodeToken
from setpoint.system import SystemClock


@asynccontextmanager
async def cluster(directory: Path, *, tokens: bool = True) -> AsyncIterator[RunningApiServer]:
    access = AccessConfig(enable_bootstrap_token_auth=tokens)
    async with apiserver(ApiServerConfig(directory, port=0, store="memory", access=access), alone=True) as running:
        record = {"pid": os.getpid(), "url": running.url, "kubeconfig": str(running.kubeconfig), "nodes": 0}
        record |= {"started": "2030-01-01T00:00:00Z", "store": "memory"}
        (directory / "running.json").write_text(json.dumps(record))
        yield running


async def typed(directory: Path, line: str) -> Result:
    io, result = surroundings(directory, SystemClock(), "", {}, None)
    return result(await run_within(shlex.split(f"{line} --data-dir {directory}"), io))


async def test_the_command_for_nodes_is_one_line(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        result = await typed(tmp_path, "token create")
        assert result.code == 0, result.err
        (line,) = result.out.splitlines()
        sudo, program, noun, verb, url, flag, token, ca, pin = line.split()
        assert [sudo, program, noun, verb, flag, ca] == ["sudo", "setpoint", "node", "join", "--token", "--ca"]
        assert url == running.url
        NodeToken.parse(token)
        await discover(url, pin, SystemClock())
        assert "Run this command on the new machine within 120m." in result.err
        assert "the API server listens on loopback, so other machines cannot join" in result.err
        elsewhere = await typed(tmp_path, "token create --url https://10.0.0.1:6443 --ttl 1h")
        assert elsewhere.out.startswith("sudo setpoint node join https://10.0.0.1:6443 ")
        assert elsewhere.err == (
            "Run this command on the new machine within 60m. Keep it secret: it permits to add nodes to the cluster.\n"
        )


async def test_what_cannot_be_joined_says_why(tmp_path: Path) -> None:
    async with cluster(tmp_path):
        why = (await typed(tmp_path, "token create --control-plane")).err
        assert "stored in memory, which only one machine can use" in why
        both = (await typed(tmp_path, "token create --control-plane --node")).err
        assert "set either --node or --control-plane" in both
        assert "--ttl must be greater than 0" in (await typed(tmp_path, "token create --ttl 0s")).err
    async with cluster(tmp_path / "other", tokens=False):
        why = (await typed(tmp_path / "other", "token create")).err
        assert "start it with --enable-bootstrap-token-auth" in why
    (tmp_path / "running.json").unlink()
    assert "no cluster is running in" in (await typed(tmp_path, "token create")).err


async def without_etcd_packages(directory: Path, line: str) -> tuple[int | None, str, str]:
    """Run a command where the extra [etcd] is not installed, as after `make up`."""
    script = (
        "import sys; sys.modules.update({'hpack': None, 'google': None, 'google.protobuf': None});"
        "from setpoint.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    words = [*shlex.split(line), "--data-dir", str(directory)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, *words, stdout=pipe, stderr=pipe)
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_a_token_for_nodes_needs_no_packages_of_etcd(tmp_path: Path) -> None:
    async with cluster(tmp_path):
        code, out, err = await without_etcd_packages(tmp_path, "token create")
        assert (code, out.startswith("sudo setpoint node join https://127.0.0.1:")) == (0, True), err
        code, out, err = await without_etcd_packages(tmp_path, "token create --control-plane")
        assert (code, out) == (1, "")
        assert err.startswith("error: this cluster is stored in memory, which only one machine can use.")


async def test_commands_name_the_packages_that_they_need(tmp_path: Path) -> None:
    found = await without_etcd_packages(tmp_path, "member list")
    none = f"error: {tmp_path} has no member of etcd; `setpoint up --etcd embedded` creates the first one\n"
    assert found == (1, "", none)
    (tmp_path / MEMBER_RECORD).write_text("{}")
    found = await without_etcd_packages(tmp_path, "member list")
    assert found == (1, "", "error: `setpoint member` needs hpack: pip install 'setpoint[etcd]'\n")
    code, _, err = await without_etcd_packages(tmp_path, "up --etcd embedded --port 0")
    assert (code, err) == (1, "error: --store etcd needs hpack: pip install 'setpoint[etcd]'\n")
