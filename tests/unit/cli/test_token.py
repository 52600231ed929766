"""`setpoint token create` prints the command that joins a machine, for what the cluster can be joined with."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from command_line import Result, surroundings

from setpoint.cli.main import run_within
from setpoint.cluster.apiserver import RunningApiServer, apiserver
from setpoint.cluster.config import AccessConfig, ApiServerConfig
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
