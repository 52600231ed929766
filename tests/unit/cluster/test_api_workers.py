"""The settings of the worker processes of an API server."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from setpoint.cluster.api_workers import WorkerRole, parse_settings, worker_settings
from setpoint.cluster.config import AccessConfig, ApiServerConfig, AuditConfig, BackendConfig, ConfigError

ROLE = WorkerRole(2, "127.0.0.1", 6443, "secret")


def test_a_worker_gets_the_whole_configuration() -> None:
    config = ApiServerConfig(
        Path("data"),
        workers=3,
        cert_dir=Path("pki"),
        authorization_mode=["RBAC"],
        access=AccessConfig(oidc_signing_algs=["ES256"], authorization_webhook_cache_authorized_ttl=1.5),
        audit=AuditConfig(policy_file="policy.yaml", log=BackendConfig(max_size=7)),
    )
    line = worker_settings(config, ROLE, 5, 6)
    assert b"\n" not in line
    parsed, role, link, numbers = parse_settings(line)
    assert (role, link, numbers) == (ROLE, 5, 6)
    assert asdict(parsed) == asdict(config)
    assert parsed.pki == Path("pki")


@pytest.mark.parametrize(
    ("path", "expected"),
    [("logs/audit.log", "logs/audit-worker2.log"), ("-", "-"), ("", ""), ("audit", "audit-worker2")],
)
def test_each_worker_has_an_audit_log_of_its_own(path: str, expected: str) -> None:
    config = ApiServerConfig(Path("data"), audit=AuditConfig(log_path=path))
    assert parse_settings(worker_settings(config, ROLE, 5, 6))[0].audit.log_path == expected


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (ApiServerConfig(Path("data"), workers=65), "between 0 and 64"),
        (ApiServerConfig(Path("data"), workers=-1), "between 0 and 64"),
        (
            ApiServerConfig(Path("data"), workers=2, store="etcd", etcd_servers=["http://127.0.0.1:2379"]),
            "run several API servers instead",
        ),
        (ApiServerConfig(Path("data"), workers=2, history_retention=60.0), "--history-retention"),
    ],
)
def test_what_workers_cannot_be_combined_with(config: ApiServerConfig, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        config.check()
