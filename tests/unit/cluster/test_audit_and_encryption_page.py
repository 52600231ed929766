"""The examples of docs/audit-and-encryption.md, on a real server with a real data directory."""

from __future__ import annotations

import re
import textwrap
from base64 import b64encode
from pathlib import Path
from typing import Any

import orjson
import pytest

from setpoint.apiserver.server import ApiServer
from setpoint.cli.flags import Flags
from setpoint.cli.main import find_command, flags_of
from setpoint.client import Client
from setpoint.client.https import HttpsTransport
from setpoint.client.kubeconfig import Access, Kubeconfig
from setpoint.cluster import encryption
from setpoint.cluster.apiserver import apiserver
from setpoint.cluster.config import ApiServerConfig, AuditConfig
from setpoint.system import SystemClock

PAGE = (Path(__file__).parents[3] / "docs" / "audit-and-encryption.md").read_text()
_PASSWORD = b64encode(b"swordfish of the documents").decode()


def _examples(name: str) -> list[str]:
    blocks = [textwrap.dedent(block) for block in re.findall(r"```yaml\n(.*?)\n *```", PAGE, re.DOTALL)]
    return [block for block in blocks if block.startswith(f"# {name}\n")]


def test_commands_and_flags_exist() -> None:
    lines = re.findall(r"^setpoint (apiserver .*)$", PAGE, re.MULTILINE)
    assert len(lines) == 2
    for line in lines:
        command, words = find_command(line.split(), ["setpoint"])
        flags_of(command).parse(words)
    known = {f"--{flag.name}" for flag in Flags(flags_of(find_command(["apiserver"], ["setpoint"])[0]).all).all}
    mentioned = set(re.findall(r"`(--[\w-]+)`", PAGE))
    assert mentioned <= known
    assert len(mentioned) > 15


def test_the_webhook_kubeconfig_is_valid(tmp_path: Path) -> None:
    (path := tmp_path / "webhook.yaml").write_text(_examples("audit-webhook.yaml")[0])
    for name in ("collector-ca.pem", "apiserver.pem", "apiserver-key.pem"):
        (tmp_path / name).write_text(name)
    access = Kubeconfig.load([path], must_exist=True).access()
    assert (access.server, access.certificate) == ("https://collector.example:8443/events", b"apiserver.pem")


async def _raw(api: ApiServer) -> bytes:
    encrypted: Any = api.resources.store
    stored = await encrypted._backend.get("core/secrets/default/s")
    assert stored is not None
    value: bytes = stored.value
    return value


async def test_audit_and_encryption_work_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[encryption.Encryption] = []
    begin = encryption.Encryption.__init__

    def remembered(self: encryption.Encryption, *given: Any) -> None:
        made.append(self)
        begin(self, *given)

    monkeypatch.setattr(encryption.Encryption, "__init__", remembered)
    keys, rules, log = tmp_path / "encryption.yaml", tmp_path / "audit-policy.yaml", tmp_path / "audit.log"
    first, second = _examples("encryption.yaml")
    keys.write_text(first)
    rules.write_text(_examples("audit-policy.yaml")[0])
    config = ApiServerConfig(
        tmp_path / "data",
        port=0,
        insecure_http=True,
        encryption_provider_config=str(keys),
        encryption_provider_config_automatic_reload=True,
        audit=AuditConfig(str(rules), log_path=str(log)),
    )
    async with apiserver(config, alone=True) as server:
        access = Access(server.url, token=server.loopback_token)
        client = Client(HttpsTransport(access, SystemClock()), SystemClock(), user_agent="docs")
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
        stored = await client.create({**secret, "data": {"password": _PASSWORD}})
        assert (await _raw(server.api)).startswith(b"k8s:enc:aesgcm:v1:key1:")
        keys.write_text(second)
        await made[0].watcher(server.api.resources).check()
        # As `kubectl get -o json | kubectl replace -f -` does.
        await client.update(stored)
        assert (await _raw(server.api)).startswith(b"k8s:enc:aesgcm:v1:key2:")
        await client.create({**secret, "kind": "ServiceAccount", "metadata": {"name": "a", "namespace": "default"}})
        await client.close()
    for file in (tmp_path / "data").rglob("*"):
        assert not file.is_file() or _PASSWORD.encode() not in file.read_bytes(), file
    written = log.read_text()
    assert _PASSWORD not in written and server.loopback_token not in written
    events = [event for event in map(orjson.loads, written.splitlines()) if event["userAgent"].startswith("docs")]
    audited = [
        (event["verb"], event["objectRef"]["resource"], event["level"]) for event in events if "objectRef" in event
    ]
    assert audited == [
        ("create", "secrets", "Metadata"),
        ("update", "secrets", "Metadata"),
        ("create", "serviceaccounts", "Request"),
    ]
    assert {event["stage"] for event in events} == {"ResponseComplete"}
    assert log.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
