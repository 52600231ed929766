"""Kubeconfig files: their meaning, and the errors for invalid ones."""

from __future__ import annotations

import json
import stat
import sys
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from setpoint.client.authentication import Authentication, RunProgram, run_exec_plugin, run_program
from setpoint.client.blocking import BlockingTransport
from setpoint.client.cluster_choice import find_access
from setpoint.client.kubeconfig import Access, ExecPlugin, Kubeconfig, KubeconfigError, in_cluster
from setpoint.meta.objects import Obj
from setpoint.wire.time_limits import TimeLimits


def write(path: Path, *, cluster: Obj | None = None, user: Obj | None = None, context: Obj | None = None) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://one:1", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", **(context or {})}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(config))
    return path


def load(path: Path) -> Access:
    return find_access(str(path))


def test_certificates_inline_and_in_files(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(b"CA")
    (tmp_path / "crt.pem").write_bytes(b"CRT")
    user = {"client-certificate": "crt.pem", "client-key-data": b64encode(b"KEY").decode()}
    access = load(write(tmp_path / "config", cluster={"certificate-authority": "ca.pem"}, user=user))
    assert (access.server, access.ca, access.certificate, access.key) == ("https://one:1", b"CA", b"CRT", b"KEY")


def test_inline_data_takes_precedence_over_files(tmp_path: Path) -> None:
    cluster = {"certificate-authority": "missing.pem", "certificate-authority-data": b64encode(b"CA").decode()}
    assert load(write(tmp_path / "config", cluster=cluster)).ca == b"CA"


def test_namespace_impersonation_and_server_name(tmp_path: Path) -> None:
    user = {"as": "jane", "as-uid": "7", "as-groups": ["dev"], "as-user-extra": {"scopes": ["a", "b"]}, "token": "t"}
    access = load(
        write(tmp_path / "config", cluster={"tls-server-name": "inner"}, user=user, context={"namespace": "shop"})
    )
    assert (access.namespace, access.tls_server_name, access.token) == ("shop", "inner", "t")
    assert access.impersonate is not None
    assert access.impersonate.headers() == [
        ("impersonate-user", "jane"),
        ("impersonate-uid", "7"),
        ("impersonate-group", "dev"),
        ("impersonate-extra-scopes", "a"),
        ("impersonate-extra-scopes", "b"),
    ]


def test_yaml_kubeconfigs_are_read(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(
        "clusters:\n- name: c\n  cluster: {server: 'https://one:1', insecure-skip-tls-verify: true}\n"
        "users: [{name: u, user: {token: abc}}]\n"
        "contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"
    )
    access = load(path)
    assert (access.insecure, access.token) == (True, "abc")


def test_json_kubeconfigs_do_not_import_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "setpoint.meta.yaml_read", None)
    assert load(write(tmp_path / "config")).server == "https://one:1"


def test_the_first_file_that_sets_a_value_wins(tmp_path: Path) -> None:
    first = write(tmp_path / "first")
    second = write(tmp_path / "second", cluster={"server": "https://two:2"})
    more = json.loads(second.read_text())
    more["contexts"].append({"name": "y", "context": {"cluster": "d", "user": "u"}})
    more["clusters"].append({"name": "d", "cluster": {"server": "https://three:3"}})
    more["current-context"] = "y"
    second.write_text(json.dumps(more))
    listed = {"KUBECONFIG": f"{tmp_path / 'missing'}:{first}:{second}"}
    assert find_access(environment=listed).server == "https://one:1"
    assert find_access(context="y", environment=listed).server == "https://three:3"


def test_the_file_in_the_home_directory_is_the_default(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube" / "config")
    assert find_access(environment={}, home=tmp_path, start=tmp_path).server == "https://one:1"


def test_the_in_cluster_configuration(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    (tmp_path / "ca.crt").write_text("CA")
    (tmp_path / "namespace").write_text("shop")
    access = in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}, tmp_path)
    assert (access.server, access.token, access.ca, access.namespace) == ("https://[fd00::1]:443", "abc", b"CA", "shop")
    assert (access.in_cluster, access.token_file) == (True, tmp_path / "token")


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(KubeconfigError, match="no cluster to connect to was found: no cluster of"):
        find_access(environment={}, start=Path("/"))
    with pytest.raises(KubeconfigError, match="cannot read the service account token"):
        find_access(environment=pod, start=Path("/"))


@pytest.mark.parametrize(
    ("cluster", "user", "says"),
    [
        ({"proxy-url": "http://p"}, {}, "proxy"),
        ({"server": ""}, {}, "the cluster 'c' has no server"),
        ({"certificate-authority-data": "!"}, {}, "certificate-authority-data of the cluster 'c' is not base64"),
        ({"certificate-authority": "/nowhere"}, {}, "cannot read certificate-authority /nowhere"),
        ({}, {"client-certificate-data": "YQ=="}, "only one of client-certificate and client-key"),
        ({}, {"username": "a", "password": "b", "token": "c"}, "both a token and a password"),
        ({}, {"auth-provider": {"name": "gcp"}}, "auth-provider"),
        ({}, {"as-groups": ["a"]}, "without impersonating a user"),
        ({}, {"exec": {"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "x"}}, "has the apiVersion"),
        ({}, {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "x"}}, "interactiveMode"),
    ],
)
def test_invalid_kubeconfigs_give_clear_errors(tmp_path: Path, cluster: Obj, user: Obj, says: str) -> None:
    with pytest.raises(KubeconfigError, match=says) as caught:
        load(write(tmp_path / "config", cluster=cluster, user=user))
    assert "\n" not in str(caught.value)


def test_missing_entries_are_named_in_the_error(tmp_path: Path) -> None:
    path = write(tmp_path / "config", context={"user": "nobody"})
    with pytest.raises(KubeconfigError, match="no user 'nobody'"):
        load(path)
    with pytest.raises(KubeconfigError, match="no context 'z'"):
        find_access(str(path), "z")
    with pytest.raises(KubeconfigError, match="does not exist"):
        find_access(str(tmp_path / "missing"))
    with pytest.raises(KubeconfigError, match="no cluster to connect to was found"):
        find_access(environment={}, home=tmp_path, start=tmp_path)
    path.write_text("a: [")
    with pytest.raises(KubeconfigError, match="is not YAML"):
        load(path)
    path.write_text("[]")
    with pytest.raises(KubeconfigError, match="not a mapping"):
        Kubeconfig.load([path])


class Clock:
    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=self.at)

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


async def test_a_token_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    clock = Clock()
    authentication = Authentication(Access("https://x", token="zero", token_file=path), clock)
    assert await authentication.headers() == [("authorization", "Bearer one")]
    path.write_text("two")
    assert await authentication.headers() == [("authorization", "Bearer one")]
    clock.at += 61
    assert await authentication.headers() == [("authorization", "Bearer two")]
    path.unlink()
    clock.at += 61
    assert await authentication.headers() == [("authorization", "Bearer two")]


async def test_a_password_is_basic_authentication() -> None:
    authentication = Authentication(Access("https://x", username="a", password="b"), Clock())
    assert await authentication.headers() == [("authorization", "Basic YTpi")]


def plugin(path: Path, answer: str, **more: object) -> ExecPlugin:
    path.write_text(f"#!/bin/sh\necho run >> {path}.runs\n{answer}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return ExecPlugin("client.authentication.k8s.io/v1", str(path), interactive_mode="Never", **more)  # type: ignore[arg-type]


def credential(**status: str) -> str:
    body = {"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": status}
    return f"echo '{json.dumps(body)}'"


async def run_blocking_program(
    command: Sequence[str], environment: Mapping[str, str], interactive: bool
) -> tuple[int, bytes]:
    """As the blocking transport runs programs."""
    limits = TimeLimits(Clock().monotonic)
    transport = BlockingTransport(Access("https://x"), Clock(), limits)
    return await transport._run_program(command, environment, interactive)


@pytest.fixture(params=[run_program, run_blocking_program], ids=["event loop", "blocking"])
def run(request: pytest.FixtureRequest) -> RunProgram:
    found: RunProgram = request.param
    return found


async def test_a_credential_plugin_runs_again_when_its_credential_expires(tmp_path: Path, run: RunProgram) -> None:
    answer = credential(token="t", expirationTimestamp="2030-01-01T00:10:00Z")
    clock = Clock()
    authentication = Authentication(Access("https://x", exec=plugin(tmp_path / "p", answer)), clock, run)
    for _ in range(3):
        assert await authentication.headers() == [("authorization", "Bearer t")]
    assert (tmp_path / "p.runs").read_text().count("run") == 1
    clock.at = 601
    await authentication.headers()
    assert (tmp_path / "p.runs").read_text().count("run") == 2
    authentication.forget()
    await authentication.headers()
    assert (tmp_path / "p.runs").read_text().count("run") == 3


async def test_a_credential_plugin_gets_the_cluster_and_its_environment(tmp_path: Path, run: RunProgram) -> None:
    told = tmp_path / "told"
    answer = f'printf %s "$KUBERNETES_EXEC_INFO" > {told}; echo "$EXTRA" >> {told}.env; {credential(token="t")}'
    asked = plugin(tmp_path / "p", answer, cluster={"server": "https://x"}, env={"EXTRA": "yes"})
    await run_exec_plugin(asked, run)
    info = json.loads(told.read_text())
    assert info["spec"] == {"interactive": False, "cluster": {"server": "https://x"}}
    assert (tmp_path / "told.env").read_text() == "yes\n"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("exit 3", "failed with exit code 3"),
        ("echo hello", "did not print an ExecCredential"),
        (credential(), "neither a token nor a certificate"),
        (credential(clientCertificateData="x"), "certificate without a key"),
        (credential(token="t").replace("/v1", "/v1beta1"), "returned the apiVersion"),
    ],
)
async def test_a_failed_credential_plugin_is_named_in_the_error(
    tmp_path: Path, run: RunProgram, answer: str, says: str
) -> None:
    with pytest.raises(KubeconfigError, match=says):
        await run_exec_plugin(plugin(tmp_path / "p", answer), run)


async def test_the_install_hint_of_a_missing_plugin_is_shown(run: RunProgram) -> None:
    missing = ExecPlugin(
        "client.authentication.k8s.io/v1", "/nowhere/p", install_hint="install it", interactive_mode="Never"
    )
    with pytest.raises(KubeconfigError, match=r"cannot run the credential plugin.*install it"):
        await run_exec_plugin(missing, run)
