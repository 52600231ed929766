"""Which cluster is used: the whole rule as a table, and restrictions on a kubeconfig that was found by search."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from setpoint.client.cluster_choice import ClusterFlags, access, choose, find_access
from setpoint.client.kubeconfig import KubeconfigError


def kubeconfig(path: Path, name: str, **user: object) -> None:
    """A file with one context of this name, whose server has the name too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}:1"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "admin"}}],
        "users": [{"name": "admin", "user": {"token": name, **user}}],
        "current-context": name,
    }
    path.write_text(json.dumps(content))


NOTHING = ClusterFlags()


class Machine(NamedTuple):
    home: Path
    project: Path

    def reached(self, wanted: ClusterFlags = NOTHING, start: Path | None = None, **environment: str) -> str:
        """The server and the token that it is shown, or the beginning of the error."""
        try:
            choice = choose(wanted, environment, self.home, start or self.project)
            found = access(choice, wanted, environment)
        except KubeconfigError as error:
            return f"error: {error}"
        return f"{found.server.removeprefix('https://').removesuffix(':1')} as {found.token or 'nobody'}"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A home with a production cluster in `~/.kube/config`, and a project in it with a cluster of its own."""
    made = Machine(tmp_path / "home", tmp_path / "home" / "project")
    kubeconfig(made.home / ".kube" / "config", "production")
    kubeconfig(made.project / ".setpoint" / "admin.kubeconfig", "project")
    kubeconfig(tmp_path / "third", "third")
    (made.project / "src" / "deep").mkdir(parents=True)
    (made.home / "elsewhere").mkdir()
    return made


@pytest.mark.parametrize(
    ("start", "wanted", "variable", "reached"),
    [
        # Nothing is said: the cluster of this directory, in its subdirectories too; elsewhere the usual file.
        ("project", ClusterFlags(), "", "project as project"),
        ("project/src/deep", ClusterFlags(), "", "project as project"),
        ("elsewhere", ClusterFlags(), "", "production as production"),
        # An explicit choice wins.
        ("project", ClusterFlags(kubeconfig="third"), "", "third as third"),
        ("project", ClusterFlags(), "third", "third as third"),
        ("project", ClusterFlags(kubeconfig="home/.kube/config"), "third", "production as production"),
        ("project", ClusterFlags(context="production"), "", "production as production"),
        ("project", ClusterFlags(cluster="production"), "", "production as production"),
        ("elsewhere", ClusterFlags(context="production"), "", "production as production"),
        # Contexts of the directory have names as well, and a name in a file that was chosen is looked for there only.
        ("project", ClusterFlags(context="project"), "", "project as project"),
        ("project", ClusterFlags(context="project"), "third", "error: the kubeconfig has no context 'project'"),
        ("project", ClusterFlags(context="nobody"), "", "error: the kubeconfig has no context 'nobody'"),
        ("elsewhere", ClusterFlags(context="project"), "", "error: the kubeconfig has no context 'project'"),
        # A server by its address: credentials of this directory's cluster are shown to it alone.
        ("project", ClusterFlags(server="https://project:1/some/path"), "", "project as project"),
        ("project", ClusterFlags(server="https://other:1"), "", "production as production"),
        ("project", ClusterFlags(server="https://other:1"), "third", "third as third"),
    ],
)
def test_every_combination_of_sources(
    machine: Machine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    start: str,
    wanted: ClusterFlags,
    variable: str,
    reached: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    environment = {"KUBECONFIG": variable} if variable else {}
    assert machine.reached(wanted, machine.home / start, **environment) == reached


def test_a_cluster_in_the_home_directory_is_not_used_in_subdirectories(machine: Machine) -> None:
    kubeconfig(machine.home / ".setpoint" / "admin.kubeconfig", "at-home")
    assert machine.reached(start=machine.home) == "at-home as at-home"
    assert machine.reached(start=machine.home / "elsewhere") == "production as production"


def test_a_cluster_that_was_never_started_is_not_skipped(machine: Machine) -> None:
    """Its first start may have failed. The command was meant for it, and must not reach production."""
    (machine.project / ".setpoint" / "admin.kubeconfig").unlink()
    assert "was never started: `setpoint up` starts it" in machine.reached()
    (machine.project / ".setpoint" / "admin.kubeconfig").write_text("{}")
    assert "has no current context" in machine.reached()


def test_credentials_are_not_mixed_up_with_those_of_the_same_name(machine: Machine) -> None:
    """Both files have a user called admin."""
    assert machine.reached(ClusterFlags(user="admin")) == "project as project"
    assert machine.reached(ClusterFlags(context="project")) == "project as project"
    assert machine.reached(ClusterFlags(context="production")) == "production as production"


def test_a_file_that_was_found_does_not_run_programs(machine: Machine) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "rm", "interactiveMode": "Never"}
    path = machine.project / ".setpoint" / "admin.kubeconfig"
    kubeconfig(path, "project", exec=plugin)
    by_server = ClusterFlags(server="https://project:1")
    for wanted in (ClusterFlags(), ClusterFlags(context="project"), by_server, ClusterFlags(user="admin")):
        assert f"{path} runs a program to get credentials" in machine.reached(wanted)
    assert machine.reached(ClusterFlags(kubeconfig=str(path))) == "project as project"


def test_a_file_that_was_found_belongs_to_its_user(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert "belongs to another user" in machine.reached()
    assert machine.reached(ClusterFlags(context="production"), machine.home / "elsewhere") == "production as production"


def test_a_pod_without_service_account_files(tmp_path: Path) -> None:
    pod: dict[str, Any] = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    nothing = Machine(tmp_path, tmp_path)
    assert "cannot read the service account token" in nothing.reached(**pod)
    assert "no cluster to connect to was found" in nothing.reached()
    assert nothing.reached(ClusterFlags(server="https://some:1")) == "some as nobody"


def test_components_do_not_use_the_default_kubeconfig(machine: Machine) -> None:
    """Controllers for the cluster that kubectl happens to point to are never meant."""

    def found(start: Path, part: str = "scheduler", **environment: str) -> str:
        return find_access(environment=environment, home=machine.home, start=start, part=part).token

    with pytest.raises(KubeconfigError, match="no cluster to connect to was found"):
        found(machine.home / "elsewhere")
    assert found(machine.home / "elsewhere", part="") == "production"  # an operator
    assert found(machine.project) == "project"
    kubeconfig(machine.project / ".setpoint" / "scheduler.kubeconfig", "own")
    assert found(machine.project) == "own"
    assert found(machine.project, KUBECONFIG=str(machine.home / ".kube" / "config")) == "production"
