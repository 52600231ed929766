"""Credentials for admission webhooks: WebhookAdmissionConfiguration, through the API."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography.x509 import load_der_x509_certificate
from server_harness import EPOCH, ServerHarness
from token_issuer import Network

from setpoint.apiserver.remote_servers import RemoteServer
from setpoint.apiserver.webhook_client import Identity, WebhookIdentities
from setpoint.cluster.certificates import ensure_certificates, issue_client_certificate, server_context
from setpoint.cluster.config import ConfigError
from setpoint.meta.objects import Obj
from setpoint.system import SystemClock
from setpoint.wire.message import Request, Response
from setpoint.wire.server import Server

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps"
KIND = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration"}
VALIDATING, MUTATING = "ValidatingAdmissionWebhook", "MutatingAdmissionWebhook"


def kubeconfig(path: Path, users: dict[str, Obj], current: str = "") -> str:
    content = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "none", "user": current}}] if current else [],
        "users": [{"name": name, "user": user} for name, user in users.items()],
    }
    path.write_bytes(orjson.dumps(content))
    return str(path)


def written(path: Path, **plugins: Obj) -> str:
    listed = [{"name": name, "configuration": told} for name, told in plugins.items()]
    kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration"}
    path.write_bytes(orjson.dumps(kind | {"plugins": listed}))
    return str(path)


def hook(name: str, config: Obj, **more: Any) -> Obj:
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}]
    webhook = {
        "name": f"{name}.example.com",
        "clientConfig": config,
        "rules": rules,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **more,
    }
    return {"metadata": {"name": name}, "webhooks": [webhook]}


def allowed(request: Request) -> Response:
    review = orjson.loads(request.body)
    response = {"uid": review["request"]["uid"], "allowed": True}
    return Response(200, orjson.dumps({**{key: review[key] for key in ("kind", "apiVersion")}, "response": response}))


class Listener:
    """Allows everything, and records the credentials of each request."""

    def __init__(self, network: Network, host: str) -> None:
        self.shown: list[tuple[RemoteServer, Request]] = []
        network.hosts[host] = self.answer

    def answer(self, server: RemoteServer, request: Request) -> Response:
        self.shown.append((server, request))
        return allowed(request)

    @property
    def authorization(self) -> str:
        return self.shown[-1][1].headers.get("authorization", "")


@asynccontextmanager
async def opened(path: Path, network: Network, **plugins: Obj) -> AsyncIterator[ServerHarness]:
    harness = await ServerHarness.open(servers=network, admission_control_config_file=written(path, **plugins))
    try:
        yield harness
    finally:
        await harness.close()


async def changed(harness: ServerHarness, name: str = "m") -> str:
    reply = await harness.post(MAPS, {"metadata": {"name": name}})
    return "" if reply.status == 201 else reply.message


async def test_each_webhook_gets_its_own_credentials(tmp_path: Path) -> None:
    validating = kubeconfig(tmp_path / "v", {"one.example": {"token": "one"}, "*.svc": {"token": "in-cluster"}})
    mutating = kubeconfig(tmp_path / "m", {"*": {"username": "we", "password": "say"}})
    network = Network()
    one, two, inside = (Listener(network, host) for host in ("one.example", "two.example", "10.0.0.9"))
    async with opened(
        tmp_path / "admission",
        network,
        ValidatingAdmissionWebhook=KIND | {"kubeConfigFile": validating},
        MutatingAdmissionWebhook=KIND | {"kubeConfigFile": mutating},
    ) as harness:
        hooks = f"{REGISTRATION}/validatingwebhookconfigurations"
        await harness.make(hooks, hook("one", {"url": "https://one.example/v"}))
        await harness.make(hooks, hook("two", {"url": "https://two.example:8443/v"}))
        await harness.make(
            "/api/v1/namespaces/default/services",
            {
                "metadata": {"name": "hook"},
                "spec": {"ports": [{"port": 443}]},
            },
        )
        await harness.make(
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
            {
                "metadata": {"name": "hook", "labels": {"kubernetes.io/service-name": "hook"}},
                "addressType": "IPv4",
                "ports": [{"port": 9443}],
                "endpoints": [{"addresses": ["10.0.0.9"]}],
            },
        )
        await harness.make(hooks, hook("inside", {"service": {"name": "hook", "namespace": "default"}}))
        assert await changed(harness) == ""
        assert [listener.authorization for listener in (one, two, inside)] == ["Bearer one", "", "Bearer in-cluster"]
        # Mutating webhooks have a configuration file of their own.
        await harness.make(f"{REGISTRATION}/mutatingwebhookconfigurations", hook("m", {"url": "https://two.example/m"}))
        assert await changed(harness, "n") == ""
        basic = "Basic " + b64encode(b"we:say").decode()
        shown = {request.path: request.headers.get("authorization") for _, request in two.shown}
        assert shown == {"/v": None, "/m": basic}
        assert {request.headers["user-agent"] for _, request in two.shown} == {"kube-apiserver-admission"}


async def test_tokens_in_files_and_impersonation(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    users = {"*": {"tokenFile": "token", "as": "jane", "as-uid": "7", "as-groups": ["a", "b"]}}
    network = Network()
    far = Listener(network, "far.example")
    told = KIND | {"kubeConfigFile": kubeconfig(tmp_path / "k", users)}
    async with opened(tmp_path / "admission", network, ValidatingAdmissionWebhook=told) as harness:
        url = {"url": "https://far.example/v"}
        await harness.make(f"{REGISTRATION}/validatingwebhookconfigurations", hook("v", url))
        assert await changed(harness) == "" and far.authorization == "Bearer first"
        request = far.shown[-1][1]
        assert [request.headers[f"impersonate-{name}"] for name in ("user", "uid")] == ["jane", "7"]
        assert request.repeated["impersonate-group"] == ["a", "b"]
        (tmp_path / "token").write_text("second")
        await harness.clock.advance(61)
        assert await changed(harness, "n") == "" and far.authorization == "Bearer second"
        # Unreadable credentials count as a failure of the webhook, which its failure policy handles.
        (tmp_path / "token").unlink()
        await harness.clock.advance(61)
        problem = await changed(harness, "o")
        assert problem == (
            'Internal error occurred: failed calling webhook "v.example.com": could not get REST client: '
            f"open {tmp_path}/token: no such file or directory"
        )
        await harness.patch(
            f"{REGISTRATION}/validatingwebhookconfigurations/v",
            {"webhooks": hook("v", url, failurePolicy="Ignore")["webhooks"]},
        )
        assert await changed(harness, "o") == ""
        assert len(far.shown) == 2


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ({"tokenFile": "/not/there"}, "open /not/there: no such file or directory"),
        ({"client-certificate": "/not/c", "client-key": "/not/k"}, "open /not/c: no such file or directory"),
        (
            {"client-certificate-data": "YQ==", "client-key-data": "YQ=="},
            "tls: failed to find any PEM data in certificate input",
        ),
        ({"token": "a", "username": "b"}, "username/password or bearer token may be set, but not both"),
        ({"auth-provider": {"name": "x"}}, "auth provider not supported"),
        (
            {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "x", "interactiveMode": "Never"}},
            "credential plugins (exec) are not supported for webhooks",
        ),
    ],
)
async def test_invalid_users(tmp_path: Path, user: Obj, why: str) -> None:
    told = KIND | {"kubeConfigFile": kubeconfig(tmp_path / "k", {"*": user})}
    async with opened(tmp_path / "admission", Network(), ValidatingAdmissionWebhook=told) as harness:
        url = {"url": "https://far.example/v"}
        await harness.make(f"{REGISTRATION}/validatingwebhookconfigurations", hook("v", url))
        assert (await changed(harness)).endswith(f": could not get REST client: {why}")


async def test_a_certificate_over_the_network(tmp_path: Path) -> None:
    theirs = ensure_certificates(tmp_path / "a", EPOCH)
    ours = ensure_certificates(tmp_path / "b", datetime.now(UTC))
    shown: list[str] = []

    async def handle(request: Request) -> Response:
        shown.append(load_der_x509_certificate(request.peer.certificate or b"").subject.rfc4514_string())
        return allowed(request)

    certificate, key = issue_client_certificate(ours, "kube-apiserver", [], datetime.now(UTC))
    server = Server(handle, clock=SystemClock(), ssl=server_context(theirs, ours.ca))
    _, port = await server.start("127.0.0.1", 0)
    user = {
        f"client-{kind}-data": b64encode(data).decode() for kind, data in (("certificate", certificate), ("key", key))
    }
    told = KIND | {"kubeConfigFile": kubeconfig(tmp_path / "k", {f"127.0.0.1:{port}": user})}
    harness = await ServerHarness.open(
        admission_control_config_file=written(tmp_path / "admission", **{VALIDATING: told})
    )
    bundle = b64encode(theirs.ca.read_bytes()).decode()
    config = {"url": f"https://127.0.0.1:{port}/v", "caBundle": bundle}
    await harness.make(f"{REGISTRATION}/validatingwebhookconfigurations", hook("v", config))
    assert await changed(harness) == "" and shown == ["CN=kube-apiserver"]
    await harness.close()
    await server.stop(0)


# -- which name stands for which host ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "target", "found"),
    [
        ([], "foo.com", ""),
        (["bar.com"], "foo.com", "(current)"),
        (["foo.com", "*.com", "*"], "foo.com", "foo.com"),
        (["*.com", "*"], "foo.com", "*.com"),
        (["*"], "foo.com", "*"),
        (["*.c", "*.b.c", "*.a.b.c"], "x.a.b.c", "*.a.b.c"),
        (["*.c", "*.b.c"], "x.a.b.c", "*.b.c"),
        (["a.b.c:443", "*.b.c", "a.b.c"], "a.b.c:443", "a.b.c:443"),
        (["*.b.c:443", "a.b.c"], "a.b.c:443", "*.b.c:443"),
        (["*.b.c", "*.c", "*"], "a.b.c:443", "*.b.c"),
        (["a.b.c", "*.b.c"], "a.b.c:443", "a.b.c"),
        (["a.b.c", "*.b.c", "*"], "a.b.c:8443", "*"),
        (["*.b.c:8443", "a.b.c"], "a.b.c:8443", "*.b.c:8443"),
        (["*.ns.svc"], "hook.ns.svc:443", "*.ns.svc"),
        (["*.svc"], "hook.ns.svc:443", "*.svc"),
        (["hook.ns.svc"], "hook.other.svc:443", "(current)"),
        (["*.0.0.1:8443"], "127.0.0.1:8443", "*.0.0.1:8443"),
        (["*"], "kubernetes.default.svc:443", ""),
    ],
)
def test_the_most_specific_pattern_wins(names: list[str], target: str, found: str) -> None:
    current = "(current)" if names else ""
    identities = WebhookIdentities([*names, "(current)"], current, lambda name: Identity(), SystemClock())
    assert identities.pattern_for(target) == found


# -- configuration ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plugin", "told", "why"),
    [
        (
            VALIDATING,
            KIND | {"kubeConfigFile": "x"},
            'kubeConfigFile: Invalid value: "x": must be an absolute file path',
        ),
        (MUTATING, KIND | {"kubeConfigFile": "/not/there"}, "stat /not/there: no such file or directory"),
        (MUTATING, KIND | {"foo": "x"}, 'strict decoding error: unknown field "foo"'),
        (MUTATING, {}, "Object 'Kind' is missing in '{}'"),
        (
            MUTATING,
            KIND | {"apiVersion": "apiserver.config.k8s.io/v1alpha1"},
            'no kind "WebhookAdmissionConfiguration" is registered for version "apiserver.config.k8s.io/v1alpha1"',
        ),
        (
            VALIDATING,
            KIND | {"staticManifestsDir": "x"},
            'staticManifestsDir: Invalid value: "x": must be an absolute file path',
        ),
        (
            "ValidatingAdmissionPolicy",
            KIND | {"kind": "ValidatingAdmissionPolicyConfiguration", "staticManifestsDir": "/not/there"},
            'staticManifestsDir: Invalid value: "/not/there": unable to read: stat /not/there: no such '
            "file or directory",
        ),
        (
            VALIDATING,
            KIND | {"staticManifestsDir": __file__},
            f'staticManifestsDir: Invalid value: "{__file__}": must be a directory',
        ),
        ("MutatingAdmissionPolicy", {}, "Object 'Kind' is missing in '{}'"),
    ],
)
async def test_invalid_configurations(tmp_path: Path, plugin: str, told: Obj, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        await ServerHarness.open(admission_control_config_file=written(tmp_path / "a", **{plugin: told}))
    prefix = f'--admission-control-config-file: couldn\'t init admission plugin "{plugin}": '
    assert str(caught.value) == prefix + why


async def test_the_configuration_is_optional(tmp_path: Path) -> None:
    network = Network()
    far = Listener(network, "far.example")
    file = kubeconfig(tmp_path / "k", {"other": {"token": "t"}}, current="other")
    for told, expected in ((KIND, ""), (KIND | {"kubeConfigFile": file}, "Bearer t")):
        async with opened(tmp_path / "a", network, **{VALIDATING: told}) as harness:
            config = {"url": "https://far.example/v"}
            await harness.make(f"{REGISTRATION}/validatingwebhookconfigurations", hook("v", config))
            assert await changed(harness) == "" and far.authorization == expected
