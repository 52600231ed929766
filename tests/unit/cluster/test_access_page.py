"""What docs/access.md shows, works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from setpoint.apiserver.authentication.configuration import check_authentication, read_authentication
from setpoint.apiserver.authorization.configuration import read_authorization
from setpoint.cli.access_options import ACCESS_FLAGS
from setpoint.cluster.access_config import AccessConfig
from setpoint.cluster.webhook_kubeconfig import webhook_endpoint

PAGE = (Path(__file__).parents[3] / "docs" / "access.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def block(kind: str) -> str:
    (found,) = [text for text in BLOCKS if f"kind: {kind}\n" in text]
    return str(found)


def test_the_authentication_configuration() -> None:
    config = read_authentication(block("AuthenticationConfiguration").encode())
    assert check_authentication(config) == []
    assert len(config["jwt"]) == 1


def test_the_authorization_configuration(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "webhook.kubeconfig"
    kubeconfig.write_text("")
    text = block("AuthorizationConfiguration").replace("/etc/setpoint/webhook.kubeconfig", str(kubeconfig))
    assert [one["type"] for one in read_authorization(text.encode())] == ["Webhook", "Node", "RBAC"]


def test_the_kubeconfig_of_a_webhook(tmp_path: Path) -> None:
    (tmp_path / "hook.yaml").write_text(block("Config"))
    for name in ("ca.crt", "apiserver.crt", "apiserver.key"):
        (tmp_path / name).write_text(name)
    endpoint = webhook_endpoint(str(tmp_path / "hook.yaml"), "--flag")
    assert (endpoint.server.host, endpoint.server.port, endpoint.path) == ("webhook.example.com", 443, "/review")
    assert endpoint.server.authority == b"ca.crt"
    assert endpoint.server.certificate == b"apiserver.crt\napiserver.key"
    assert "apiserver.key" not in repr(endpoint)


@pytest.mark.parametrize("flag", ACCESS_FLAGS, ids=lambda flag: flag.name)
def test_every_flag_is_a_setting(flag: object) -> None:
    name = flag.key  # type: ignore[attr-defined]
    plain = getattr(AccessConfig(), name)
    default = flag.default  # type: ignore[attr-defined]
    assert (list(default) if isinstance(default, tuple) else default) == plain
