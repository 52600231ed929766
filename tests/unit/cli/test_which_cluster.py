"""With a kubeconfig of another cluster in place, every command uses the cluster of this directory and says so."""

from __future__ import annotations

import json
import shlex
from io import BytesIO
from pathlib import Path

import pytest

from setpoint.cli.invocation import CommandIO
from setpoint.cli.main import run
from setpoint.client import Client
from setpoint.client.kubeconfig import Access
from setpoint.client.transport import Unreachable


class Terminal(BytesIO):
    def isatty(self) -> bool:
        return True


def kubeconfig(path: Path, name: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}:1"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": f"{name}-space"}}],
        "users": [{"name": name, "user": {"token": name}}],
        "current-context": name,
    }
    path.write_text(json.dumps(content))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    kubeconfig(tmp_path / ".kube" / "config", "production")
    kubeconfig(tmp_path / "project" / ".setpoint" / "admin.kubeconfig", "project")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


class Typed:
    """Where a line would have gone, and what it said on stderr."""

    def __init__(self, home: Path, line: str, stderr: BytesIO | None = None, **environment: str) -> None:
        self.servers: list[str] = []
        stderr = stderr if stderr is not None else BytesIO()

        def connect(access: Access, _: float) -> Client:
            self.servers.append(access.server)
            raise Unreachable("nobody answers")

        io = CommandIO(
            stdin=BytesIO(), stdout=BytesIO(), stderr=stderr, environment=environment, home=home, connect=connect
        )
        self.code = run(shlex.split(line), io)
        self.err = stderr.getvalue().decode()


LINES = [
    "get pods",
    "delete pod x",
    "create namespace x",
    "apply -f -",
    "scale deployment/x --replicas=0",
    "version",
    "exec x -- true",
    "logs x",
    "drain node-1",
    "cluster-info",
    "watch --once",
    "api-resources",
    "auth whoami",
    "port-forward pod/x 80",
    "proxy --port 0",
    "lesson 1 --check",
    "nodes add",
    "nodes stop --all",
    "nodes remove x",
    "debug x --image=y",
    "edit pod x",
    "rollout undo deployment/x",
    "wait --for=delete pod/x",
    "top pod",
    "cp a x:b",
]


@pytest.mark.parametrize("line", LINES)
def test_every_command_uses_the_cluster_of_this_directory(home: Path, line: str) -> None:
    (home / "project" / "a").write_text("")
    typed = Typed(home, line)
    assert set(typed.servers) <= {"https://project:1"}
    assert typed.code != 0
    if "apply" not in line and "proxy" not in line:
        assert typed.servers, typed.err
        assert "the cluster of this directory (.setpoint) is not running: `setpoint up` starts it" in typed.err


@pytest.mark.parametrize(
    "line",
    ["lesson 1 --check", "nodes add", "nodes stop x", "nodes start x", "nodes partition x", "nodes remove x", "status"],
)
def test_commands_for_setpoint_clusters_never_use_the_default_kubeconfig(
    home: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    (home / "elsewhere").mkdir()
    monkeypatch.chdir(home / "elsewhere")
    typed = Typed(home, line)
    assert (typed.servers, typed.code) == ([], 1)
    if line != "status":
        assert "there is no cluster in this directory: `setpoint up` starts one" in typed.err
    assert Typed(home, f"{line} --context production").servers == ["https://production:1"]
    assert Typed(home, line, KUBECONFIG=str(home / ".kube" / "config")).servers == ["https://production:1"]


def test_the_used_cluster_is_shown_on_a_terminal(home: Path) -> None:
    def said(line: str, **environment: str) -> str:
        return Typed(home, line, Terminal(), **environment).err.splitlines()[0]

    assert said("get pods") == (
        "setpoint: using the cluster of this directory (.setpoint), not context production of ~/.kube/config"
    )
    not_here = ", not the cluster of this directory (.setpoint)"
    assert said("--context production get pods") == f"setpoint: using the cluster that --context names{not_here}"
    assert said("-s https://other:1 get pods") == f"setpoint: using the cluster that --server names{not_here}"
    theirs = str(home / ".kube" / "config")
    assert said("get pods", KUBECONFIG=theirs) == f"setpoint: using the cluster of $KUBECONFIG{not_here}"


def test_nothing_is_shown_without_a_terminal(home: Path) -> None:
    assert "setpoint: using" not in Typed(home, "get pods").err


def test_nothing_is_shown_with_only_one_cluster(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".kube" / "config").write_text("current-context: ''\n")
    assert "setpoint: using" not in Typed(home, "get pods", Terminal()).err
    (home / ".kube" / "config").unlink()
    assert "setpoint: using" not in Typed(home, "get pods", Terminal()).err
    kubeconfig(home / ".kube" / "config", "production")
    (home / "elsewhere").mkdir()
    monkeypatch.chdir(home / "elsewhere")
    assert "setpoint: using" not in Typed(home, "get pods", Terminal()).err


def test_control_characters_in_names_are_escaped(home: Path) -> None:
    (home / ".kube" / "config").write_bytes(b"current-context: a\x1b[2Jb\n")
    assert "\x1b" not in Typed(home, "get pods", Terminal()).err


def test_a_malformed_default_kubeconfig_is_no_error(home: Path) -> None:
    (home / ".kube" / "config").write_text("current-context: x\n{")
    assert Typed(home, "get pods").servers == ["https://project:1"]


def test_in_a_subdirectory_the_full_path_is_shown(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "project" / "src").mkdir()
    monkeypatch.chdir(home / "project" / "src")
    assert f"using the cluster of this directory ({home}/project/.setpoint)" in Typed(home, "get pods", Terminal()).err
