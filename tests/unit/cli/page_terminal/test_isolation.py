"""Nothing of the machine can be reached from the terminal of the page: no file, no program, no connection."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from page_terminal import page_terminal

import setpoint
from setpoint.cli.catalog import HOST_ONLY, ROOT
from setpoint.cli.command import Command, loaded
from setpoint.testing import VirtualCluster, virtual

_WATCHED = ("open", "os.", "subprocess.", "socket.", "shutil.", "tempfile.", "glob.", "pty.", "fcntl.", "mmap.")
_HARMLESS = ("socket.__new__", "os.putenv", "os.unsetenv")
_CODE = (sys.prefix, sys.base_prefix, str(Path(setpoint.__file__).parent))
_state: dict[str, Any] = {"on": False, "seen": []}


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if not _state["on"] or not event.startswith(_WATCHED) or event in _HARMLESS:
        return
    # Python code of this program, which commands import when they are first used, and its bytecode.
    if event in ("open", "os.listdir", "os.scandir") and args and str(args[0]).startswith(_CODE):
        return
    if event in ("os.mkdir", "os.rename") and args and str(args[0]).startswith(_CODE) and "__pycache__" in str(args[0]):
        return
    _state["seen"].append((event, args))


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    sys.addaudithook(_hook)


@contextmanager
def watched() -> Iterator[list[Any]]:
    """Collect the uses of files, processes and the network while the block runs."""
    _state["seen"] = []
    _state["on"] = True
    try:
        yield _state["seen"]
    finally:
        _state["on"] = False


def all_commands(command: Command = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if path:
        yield path
    for name, child in command.children.items():
        yield from all_commands(loaded(child), (*path, name))


ARGUMENTS = (
    "{place}",
    "-f {place}",
    "-k {place}",
    "-o jsonpath-file={place} pods",
    "x --from-file={place}",
    "x --from-env-file={place}",
    "x --patch-file {place}",
    "--kubeconfig {place}",
    "--client-certificate {place} --client-key {place} x",
    "--server https://127.0.0.1:1 x",
    "-f https://127.0.0.1:1/x.yaml",
    "{place} pod:/tmp",
    "pod:/tmp {place}",
    "x --data-dir {place}",
    "--output-directory {place}",
    "x --at -5m",
)


def test_the_watch_sees_what_it_must_see(tmp_path: Path) -> None:
    import subprocess

    with watched() as seen:
        (tmp_path / "x").write_text("x")
        subprocess.run(["true"], check=True)
    assert {event for event, _ in seen} >= {"open", "subprocess.Popen"}


@virtual(nodes=1)
async def test_no_command_uses_the_machine(cluster: VirtualCluster, tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: leaked}\n")
    (tmp_path / "kustomization.yaml").write_text("resources: [secret.yaml]\n")
    assert len([*all_commands()]) > 100  # this imports them all
    async with page_terminal(cluster.client, cluster.clock) as terminal:
        await terminal(
            "kubectl run pod --image=busybox --command -- sleep 1d; kubectl wait --for=condition=Ready pod/pod"
        )
        with watched() as seen:
            for path in all_commands():
                line = f"setpoint {' '.join(path)}"
                for arguments in ("", "--help") if path[0] not in ("create", "apply", "cp") else ("", *ARGUMENTS):
                    at = terminal.start(f"{line} {arguments.format(place=tmp_path)}".strip())
                    await cluster.sleep(2)
                    if not any("prompt" in each for each in terminal.sent[at:]):
                        terminal.conversation.say({"input": "\x03"})
                        await terminal.until(at, "prompt")
                    assert seen == [], (path, arguments)
                    assert "leaked" not in terminal.shown_since(at), (path, arguments)
                    assert "failed unexpectedly" not in terminal.shown_since(at), (path, arguments)
            for command in (
                "get",
                "describe",
                "diff",
                "edit",
                "replace",
                "patch",
                "kustomize",
                "debug",
                "cluster-info dump",
            ):
                for arguments in ARGUMENTS:
                    at = terminal.start(f"setpoint {command} {arguments.format(place=tmp_path)}")
                    await cluster.sleep(2)
                    if not any("prompt" in each for each in terminal.sent[at:]):
                        terminal.conversation.say({"input": "\x03"})
                        await terminal.until(at, "prompt")
                    assert seen == [], (command, arguments)
        assert not await cluster.find(("v1", "ConfigMap"), "leaked")


@virtual(nodes=0, controllers=[])
async def test_no_program_of_the_shell_uses_the_machine(cluster: VirtualCluster, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content of the machine")
    async with page_terminal(cluster.client, cluster.clock) as terminal:
        names = await terminal.completions("")
        assert "kubectl" in names and "cat" in names
        for missing in ("curl", "wget", "nc", "ping", "ssh", "python3", "mount", "ps"):
            assert missing not in names
        with watched() as seen:
            for name in names:
                if name in ("exit", "return"):
                    continue
                for arguments in ("", f"{tmp_path}/file", f"{tmp_path}/file {tmp_path}/copy", f"-f {tmp_path}/file"):
                    at = terminal.start(f"{name} {arguments} < /dev/null")
                    await cluster.sleep(1)
                    if not any("prompt" in each for each in terminal.sent[at:]):
                        terminal.conversation.say({"input": "\x03"})
                        await terminal.until(at, "prompt")
                    assert "content of the machine" not in terminal.shown_since(at)
            await terminal(f"echo overwritten > {tmp_path}/file; rm -rf {tmp_path} /; /bin/ls; sh -c 'cat /etc/passwd'")
            assert seen == []
        assert (tmp_path / "file").read_text() == "content of the machine"
        assert os.listdir(tmp_path) == ["file"]


@virtual(nodes=0, controllers=[])
async def test_commands_for_the_machine_are_refused_in_words(cluster: VirtualCluster) -> None:
    async with page_terminal(cluster.client, cluster.clock) as terminal:
        for path in all_commands():
            if path[0] not in HOST_ONLY:
                continue
            shown = await terminal(f"setpoint {' '.join(path)}")
            if terminal.status and "Commands:" not in shown and "required" not in shown:
                assert "cannot be used in this terminal" in shown, path
        for line in (
            "up",
            "nodes",
            "restore x.backup",
            "proxy",
            "port-forward x 1",
            "config view",
            "status --data-dir x",
        ):
            assert "cannot be used in this terminal: it uses files, programs or the network" in (
                await terminal(f"setpoint {line}")
            )
        assert 'unknown command "foo"' in await terminal("kubectl foo")
        assert "--kubeconfig cannot be used here" in await terminal("kubectl get pods --kubeconfig x")
        assert await terminal("setpoint up --help") != "" and terminal.status == 0
