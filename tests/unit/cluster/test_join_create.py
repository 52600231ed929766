"""A join token is created on a machine that has the keys, for a cluster that several machines can share."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("google.protobuf", reason="an optional dependency")

from setpoint.cluster.certificates import ensure_certificates, ensure_etcd_certificates
from setpoint.cluster.config import AccessConfig, ApiServerConfig, ConfigError, flags_of
from setpoint.cluster.etcd_member import MemberRecord
from setpoint.cluster.join_bundle import Bundle, sealed_bundle
from setpoint.cluster.join_create import CreatedToken, create_join_token
from setpoint.system import SystemClock


class Server:
    """The client of a server with these flags, which records the objects that are created."""

    def __init__(self, config: ApiServerConfig) -> None:
        self.flags = flags_of(config)
        self.created: list[dict[str, Any]] = []
        self.sender = self

    async def request(self, method: str, path: str, *, accept: str) -> Any:
        assert (method, path) == ("GET", "/flagz")
        lines = ["", "kube-apiserver flagz", *(f"{name}={value}" for name, value in self.flags.items())]
        return SimpleNamespace(body="\n".join(lines).encode())

    async def create(self, obj: dict[str, Any]) -> dict[str, Any]:
        self.created.append(obj)
        return {**obj, "metadata": {**obj["metadata"], "uid": "uid"}}


def machine(directory: Path, **settings: Any) -> ApiServerConfig:
    ensure_certificates(directory / "pki", datetime.now(UTC))
    ensure_etcd_certificates(directory / "pki" / "etcd", datetime.now(UTC), ())
    MemberRecord("a", "10.0.0.1", 2379, 2380, joined=False, servers=["https://10.0.0.2:2379"]).write(directory)
    access = AccessConfig(enable_bootstrap_token_auth=True)
    return ApiServerConfig(directory, **{"store": "etcd", "etcd": "embedded", "access": access, **settings})


async def create(config: ApiServerConfig) -> tuple[CreatedToken, Bundle, Server]:
    server = Server(config)
    created = await create_join_token(server, config.data_dir, 60.0, SystemClock(), os.urandom)  # type: ignore[arg-type]
    return created, Bundle.open(sealed_bundle(server.created[1]), created.token), server


async def test_the_bundle_holds_the_keys_of_the_cluster(tmp_path: Path) -> None:
    created, bundle, server = await create(machine(tmp_path))
    assert created.flags == []
    assert bundle.etcd_servers == ["https://10.0.0.1:2379", "https://10.0.0.2:2379"]
    for name, content in bundle.files.items():
        assert content == (tmp_path / "pki" / name).read_bytes()
    assert {"ca.key", "sa.key", "front-proxy/ca.key", "etcd/ca.key"} <= bundle.files.keys()
    assert not any("PRIVATE KEY" in str(obj) for obj in server.created)
    assert [obj["kind"] for obj in server.created] == ["Secret", "Secret", "Role", "RoleBinding"]


async def test_files_and_flags_of_the_server_are_passed_on(tmp_path: Path) -> None:
    key, encryption = tmp_path / "own.key", tmp_path / "own.yaml"
    key.write_bytes(b"the key")
    encryption.write_bytes(b"the providers")
    config = machine(tmp_path / "data", service_cluster_ip_range="10.0.0.0/16", api_audiences=["a", "b"])
    config.access.service_account_signing_key_file = str(key)
    config.encryption_provider_config = str(encryption)
    created, bundle, _ = await create(config)
    assert (bundle.files["sa.key"], bundle.files["encryption-config.yaml"]) == (b"the key", b"the providers")
    assert created.flags == ["--service-cluster-ip-range=10.0.0.0/16", "--api-audiences=a,b"]
    bundle.check(flags_of(config))
    encryption.unlink()
    with pytest.raises(ConfigError, match=r"there is no file .*own\.yaml"):
        await create(config)


async def test_an_external_etcd_is_named_in_the_command(tmp_path: Path) -> None:
    config = machine(tmp_path, etcd="", etcd_servers=["https://e:2379"], etcd_cafile="ca.crt")
    created, bundle, _ = await create(config)
    assert bundle.etcd_servers == []
    assert created.flags == ["--etcd-servers=https://e:2379", "--etcd-cafile=FILE"]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"store": "sqlite", "etcd": ""}, "stored in sqlite, which only one machine can use.*`setpoint store copy`"),
        ({"access": AccessConfig()}, "start it with --enable-bootstrap-token-auth"),
    ],
)
async def test_a_cluster_that_cannot_be_joined_says_why(tmp_path: Path, settings: dict[str, Any], why: str) -> None:
    server = Server(machine(tmp_path, **settings))
    with pytest.raises(ConfigError, match=why):
        await create_join_token(server, tmp_path, 60.0, SystemClock(), os.urandom)  # type: ignore[arg-type]
    assert server.created == []
