"""The examples of docs/access.md work."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.authentication.configuration import check_authentication, read_authentication
from setpoint.apiserver.authorization import read_authorization
from setpoint.apiserver.filters.authenticate import AuthenticatorChain
from setpoint.apiserver.internal_writes import ensure
from setpoint.cli.server_options import ACCESS_FLAGS
from setpoint.cluster.certificates import ensure_certificates
from setpoint.cluster.config import NO_DATA_DIR, AccessConfig, ApiServerConfig
from setpoint.cluster.outgoing_tls import FrontProxy
from setpoint.cluster.webhook_kubeconfig import webhook_endpoint
from setpoint.cluster.wiring import build_server
from setpoint.store.memory import MemoryStore
from setpoint.system import RandomIds, SystemClock

PAGE = (Path(__file__).parents[3] / "docs" / "access.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def block(kind: str) -> str:
    (found,) = [text for text in BLOCKS if f"kind: {kind}\n" in text]
    return str(found)


def test_the_authentication_configuration_is_valid() -> None:
    config = read_authentication(block("AuthenticationConfiguration").encode())
    assert check_authentication(config) == []
    assert len(config["jwt"]) == 1


def test_the_authorization_configuration_is_valid(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "webhook.kubeconfig"
    kubeconfig.write_text("")
    text = block("AuthorizationConfiguration").replace("/etc/setpoint/webhook.kubeconfig", str(kubeconfig))
    assert [one["type"] for one in read_authorization(text.encode())] == ["Webhook", "Node", "RBAC"]


def test_the_webhook_kubeconfig_is_valid(tmp_path: Path) -> None:
    (tmp_path / "hook.yaml").write_text(block("Config"))
    for name in ("ca.crt", "apiserver.crt", "apiserver.key"):
        (tmp_path / name).write_text(name)
    endpoint = webhook_endpoint(str(tmp_path / "hook.yaml"), "--flag")
    assert (endpoint.server.host, endpoint.server.port, endpoint.path) == ("webhook.example.com", 443, "/review")
    assert endpoint.server.ca_bundle == b"ca.crt"
    assert endpoint.server.client_certificate == (b"apiserver.crt", b"apiserver.key")
    assert "apiserver.key" not in repr(endpoint)


@pytest.mark.parametrize("flag", ACCESS_FLAGS, ids=lambda flag: flag.name)
def test_every_flag_exists(flag: object) -> None:
    name = flag.key  # type: ignore[attr-defined]
    plain = getattr(AccessConfig(), name)
    default = flag.default  # type: ignore[attr-defined]
    assert (list(default) if isinstance(default, tuple) else default) == plain


async def test_the_front_proxy_configuration_is_published(tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path / "pki", datetime.now(UTC))
    other = ensure_certificates(tmp_path / "other", datetime.now(UTC)).ca
    access = AccessConfig(
        requestheader_client_ca_file=str(other),
        requestheader_allowed_names=["mine"],
        requestheader_username_headers=["X-Remote-User", "X-User"],
    )
    config = ApiServerConfig(tmp_path, client_ca_file=str(other), access=access)
    store, clock = MemoryStore(), SystemClock()
    resources = ApiResources(store, clock, RandomIds(1))
    api = build_server(resources, ApiServerConfig(NO_DATA_DIR), AuthenticatorChain([], True))
    await api.start()
    await ensure(resources, "", "namespaces", {"metadata": {"name": "kube-system"}})
    await FrontProxy(files, clock, config).publish(resources)
    found = resources.registry("", "configmaps").get("kube-system", "extension-apiserver-authentication").obj["data"]
    await api.stop()
    assert found["client-ca-file"] == files.ca.read_text() + other.read_text()
    assert found["requestheader-client-ca-file"].endswith(other.read_text())
    assert found["requestheader-allowed-names"] == '["front-proxy-client","mine"]'
    assert found["requestheader-username-headers"] == '["X-Remote-User","X-User"]'
