"""`config`: files, locks, permissions, and entries that must be retained."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from shutil import rmtree

import pytest
from command_line import Result, surroundings, typed_offline

from setpoint.cli.main import run
from setpoint.client import Client
from setpoint.client.kubeconfig import Access, KubeconfigError

FILE = """
apiVersion: v1
kind: Config
future: {kept: true}
clusters:
- name: home
  cluster: {server: "https://10.0.0.1:6443", certificate-authority: ca.crt, new-setting: kept}
contexts:
- name: home
  context: {cluster: home, user: me}
users:
- name: me
  user: {token: secret, password: hidden}
current-context: home
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(FILE)
    return tmp_path


def typed(home: Path, line: str, **environment: str) -> Result:
    return typed_offline(line, home, **environment)


def reached_by(home: Path, line: str) -> Access:
    """Whom the line would talk to, and as whom."""
    asked: list[Access] = []

    def connect(access: Access, _: float) -> Client:
        asked.append(access)
        raise KubeconfigError("nobody is there")

    io, _ = surroundings(home, None, "", {}, connect)
    assert run(shlex.split(line), io) == 1
    return asked[0]


def test_unrelated_settings_are_retained(home: Path) -> None:
    assert typed(home, "config set-context --current --namespace=shop").out == 'Context "home" modified.\n'
    text = (home / ".kube" / "config").read_text()
    assert "future:\n  kept: true\n" in text
    assert "new-setting: kept" in text and "token: secret" in text
    assert "namespace: shop" in text
    assert (home / ".kube" / "config").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (home / ".kube").iterdir()] == ["config"]


def test_secrets_are_redacted(home: Path) -> None:
    shown = typed(home, "config view").out
    assert "token: REDACTED" in shown and "password: REDACTED" in shown and "secret" not in shown
    assert "token: secret" in typed(home, "config view --raw").out


def test_certificates_can_be_embedded(home: Path) -> None:
    assert typed(home, "config view --flatten").code == 1
    (home / ".kube" / "ca.crt").write_text("ca")
    assert "certificate-authority-data: Y2E=" in typed(home, "config view --flatten").out


def test_paths_below_the_kubeconfig_are_written_as_relative(home: Path) -> None:
    typed(home, "config set-cluster home --certificate-authority=.kube/other.crt")
    assert "certificate-authority: other.crt" in typed(home, "config view").out
    typed(home, "config set-cluster home --certificate-authority=outside.crt")
    assert f"certificate-authority: {home}/outside.crt" in typed(home, "config view").out


def test_a_lock_file_prevents_concurrent_changes(home: Path) -> None:
    lock = home / ".kube" / "config.lock"
    lock.touch()
    done = typed(home, "config use-context home")
    assert done.code == 1
    assert f"open {lock}: file exists" in done.err
    assert lock.exists()
    lock.unlink()
    assert typed(home, "config use-context nobody").code == 1
    assert not lock.exists()


def test_a_symbolic_link_is_retained(home: Path) -> None:
    real = home / "elsewhere"
    (home / ".kube" / "config").rename(real)
    (home / ".kube" / "config").symlink_to(real)
    typed(home, "config unset current-context")
    assert (home / ".kube" / "config").is_symlink()
    assert 'current-context: ""' in real.read_text()


def test_an_unreadable_file_is_not_changed(home: Path) -> None:
    broken = "clusters: {not: a list}\n"
    (home / ".kube" / "config").write_text(broken)
    for line in ("config view", "config set-context x --user=y", "config get-clusters"):
        done = typed(home, line)
        assert (done.code, "clusters is not a list of named entries" in done.err) == (1, True), line
    assert (home / ".kube" / "config").read_text() == broken


LOCAL = json.dumps(
    {
        "clusters": [{"name": "setpoint", "cluster": {"server": "https://127.0.0.1:1"}}],
        "contexts": [{"name": "setpoint", "context": {"cluster": "setpoint", "user": "admin"}}],
        "users": [{"name": "admin", "user": {"token": "t"}}],
        "current-context": "setpoint",
    }
)


@pytest.fixture
def local(home: Path) -> Path:
    """The cluster of this directory, where there is no other."""
    (home / ".kube" / "config").unlink()
    (home / ".setpoint").mkdir()
    path = home / ".setpoint" / "admin.kubeconfig"
    path.write_text(LOCAL)
    return path


def test_the_kubeconfig_of_a_data_directory_is_read_but_not_written(home: Path, local: Path) -> None:
    assert typed(home, "config current-context").out == "setpoint\n"
    assert "https://127.0.0.1:1" in typed(home, "config view").out
    assert typed(home, "config get-clusters").out == "NAME\nsetpoint\n"
    told = typed(home, "config set-context --current --namespace=x")
    assert told.code == 1 and "setpoint kubeconfig --merge" in told.err
    typed(home, "config set-context mine --cluster=c")
    assert local.read_text() == LOCAL
    assert "name: mine" in (home / ".kube" / "config").read_text()


def test_other_credentials_for_the_cluster_of_this_directory(home: Path, local: Path) -> None:
    typed(home, "config set-credentials jane --token=janes")
    assert [name for name in ("admin", "jane") if name in typed(home, "config get-users").out] == ["admin", "jane"]
    for line, token in (
        ("get pods", "t"),
        ("--user jane get pods", "janes"),
        ("--cluster setpoint --user jane get pods", "janes"),
        ("--context setpoint --user jane get pods", "janes"),
    ):
        reached = reached_by(home, line)
        assert (reached.server, reached.token) == ("https://127.0.0.1:1", token), line
    typed(home, "config set-context hers --cluster=setpoint --user=jane")
    assert typed(home, "config get-contexts -o name").out == "hers\nsetpoint\n"
    assert reached_by(home, "--context hers get pods").token == "janes"
    assert reached_by(home, "get pods").token == "t"
    switched = typed(home, "config use-context hers")
    assert "In this directory, commands still use its own cluster (.setpoint): set --context hers" in switched.err
    assert reached_by(home, "get pods").token == "t"
    assert typed(home, "config current-context").out == "setpoint\n"
    rmtree(local.parent)
    assert "no cluster 'setpoint', which the context 'hers' names" in typed(home, "get pods").err
    typed(home, "config unset contexts")
    typed(home, "config unset current-context")
    reached = reached_by(home, "--server https://10.0.0.9 --user jane get pods")
    assert (reached.server, reached.token) == ("https://10.0.0.9", "janes")


def test_a_token_takes_precedence_over_a_certificate(home: Path) -> None:
    for name in ("a.crt", "a.key"):
        (home / name).write_text("pem")
    (home / ".kube" / "ca.crt").write_text("ca")
    typed(home, "config set-credentials me --client-certificate=a.crt --client-key=a.key")
    assert reached_by(home, "get pods").certificate == b"pem"
    asked = reached_by(home, "--token other get pods")
    assert (asked.token, asked.certificate, asked.key) == ("other", None, None)
    both = reached_by(home, "--token other --client-certificate a.crt --client-key a.key get pods")
    assert (both.token, both.certificate) == ("other", b"pem")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--user nobody", "error: the kubeconfig has no user 'nobody'\n"),
        ("--cluster none", "error: the kubeconfig has no cluster 'none'\n"),
        ("--context none", "error: the kubeconfig has no context 'none'\n"),
    ],
)
def test_missing_entries_are_reported(home: Path, local: Path, flags: str, says: str) -> None:
    assert typed(home, f"{flags} get pods").err == says
    rmtree(local.parent)
    assert typed(home, f"{flags} get pods").err.startswith("error: no cluster to connect to was found: no kubeconfig")


def test_several_kubeconfig_files(home: Path) -> None:
    (home / "b").write_text(FILE.replace("home", "b"))
    both = f"{home}/missing:{home}/.kube/config:{home}/b"
    typed(home, "config set-context b --namespace=two", KUBECONFIG=both)
    typed(home, "config set-context new --namespace=three", KUBECONFIG=both)
    assert "namespace: two" in (home / "b").read_text()
    assert "namespace: three" in (home / ".kube" / "config").read_text()
    assert not (home / "missing").exists()


def test_a_new_file_is_created(home: Path) -> None:
    typed(home, "config set-cluster a --server=https://x", KUBECONFIG=f"{home}/new/deep/config")
    assert "server: https://x" in (home / "new" / "deep" / "config").read_text()
