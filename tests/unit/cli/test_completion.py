from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Typed, typed_offline
from local_server import LocalServer


@pytest.fixture
async def shop(local_server: LocalServer) -> None:
    client = local_server.client
    for name in ("web", "worker"):
        containers = [{"name": "main", "image": "i", "ports": [{"containerPort": 80}]}, {"name": "side", "image": "i"}]
        meta = {"name": name, "namespace": "default"}
        await client.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": containers}})
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    for name in ("node-1", "node-2"):
        await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("des", "describe :4"),
        ("get deploy", "deployments.apps :4"),
        ("get pods w", "web worker :4"),
        ("get pods web w", "worker :4"),
        ("get pod/we", "pod/web :4"),
        ("get pods,deploy", "pods,deployments.apps :4"),
        ("get -n sho", "shop :4"),
        ("get --namespace=sho", "shop :4"),
        ("-n shop get pods ''", ":4"),
        ("logs we", "web :4"),
        ("logs web ''", "main side :4"),
        ("exec web -c m", "main :4"),
        ("attach worker --container s", "side :4"),
        ("port-forward web ''", "80 :4"),
        ("cp we", "web: :2"),
        ("get -o custom", "custom-columns custom-columns-file :4"),
        ("get --output=jsonpath-f", "jsonpath-file :4"),
        ("get --field-sel", "--field-selector= :6"),
        ("apply -f ''", ":0"),
        ("completion z", "zsh :4"),
        ("rollout un", "undo :4"),
        ("get nothing ''", ":4"),
        ("exec web -- l", ":4"),
        ("nonsense --x ''", ":4"),
        # Our own commands: what makes sense there, and no names of files where none is meant.
        ("nodes ''", "add stop start partition remove :4"),
        ("nodes stop ''", "node-1 node-2 :4"),
        ("nodes stop node-1 ''", "node-2 :4"),
        ("nodes remove node-2 n", "node-1 :4"),
        ("nodes add ''", ":4"),
        ("lesson ma", "manifest :4"),
        ("lesson manifest ''", ":4"),
        ("demo ''", "1 2 3 4 5 6 :4"),
        ("up ''", ":4"),
        ("up --store ''", "sqlite memory etcd :4"),
        ("up --na", "--name= :6"),
        ("up --data-dir ''", ":0"),
        ("up --tls-cert-file ''", ":0"),
        ("up --nodes ''", ":4"),
        ("down ''", ":4"),
        ("status ''", ":4"),
        ("watch ''", ":4"),
        ("list -o ''", "json name :4"),
        ("help nod", "node nodes :4"),
        ("node ''", "join run check leave install :4"),
        ("help nodes st", "stop start :4"),
        ("backup ''", ":0"),
        ("create deployment ''", ":4"),
        ("top pod we", "web :4"),
        ("run ''", ":4"),
    ],
)
async def test_completions_of_arguments_and_flags(typed: Typed, shop: None, line: str, words: str) -> None:
    out = await typed(f"__complete {line}")
    assert [one.split("\t")[0] for one in out.splitlines()] == words.split()


def test_contexts_are_completed_without_a_server(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "contexts: [{name: here, context: {cluster: c}}, {name: there, context: {cluster: c}}]\n"
        "current-context: here\n"
    )
    typed = [
        typed_offline(line, tmp_path, KUBECONFIG=str(config))
        for line in (
            "__complete config use-context t",
            "__complete get --context h",
            "__complete get pods ''",
        )
    ]
    assert [one.out for one in typed] == ["there\n:4\n", "here\n:4\n", ":4\n"]
    config.write_text("{broken")
    assert typed_offline("__complete config use-context ''", tmp_path, KUBECONFIG=str(config)).out == ":4\n"


def test_supported_shells(tmp_path: Path) -> None:
    for shell in ("bash", "zsh", "fish"):
        done = typed_offline(f"completion {shell}", tmp_path)
        assert done.code == 0 and "__complete" in done.out
        if shutil.which(shell):
            subprocess.run([shell, "-n"], input=done.out, text=True, check=True, timeout=300)
    for line, told in (
        ("completion", "Shell not specified."),
        ("completion tcsh", 'Unsupported shell type "tcsh".'),
        ("completion bash zsh", "Too many arguments. Expected only the shell type."),
    ):
        done = typed_offline(line, tmp_path)
        assert done.code == 1 and told in done.err


def test_completion_in_a_real_bash(tmp_path: Path) -> None:
    program = tmp_path / "setpoint"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m setpoint "$@"\n')
    program.chmod(0o755)
    script = """
        source <(setpoint completion bash)
        shopt -s expand_aliases
        alias k=setpoint
        for line in 'setpoint desc' 'setpoint rollout h' 'setpoint get --output=kya' 'k desc' '$(>$HOME/harm) x'; do
            COMP_LINE="$line"; COMP_POINT=${#line}; __setpoint_complete; echo "${COMPREPLY[*]}"
        done
    """
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=300, env=environment)
    assert done.stdout.startswith("describe\nhistory\nkyaml\ndescribe\n"), done.stderr
    assert not (tmp_path / "harm").exists()


def test_a_plugin_provides_its_completions(tmp_path: Path) -> None:
    for name, text in (("kubectl-foo", ""), ("kubectl_complete-foo", 'echo "asked $*"\necho :4')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    command = [sys.executable, "-m", "setpoint", "__complete", "foo", "bar", ""]
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.stdout == "asked bar \n:4\n"
