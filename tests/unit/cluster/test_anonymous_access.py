"""Anonymous requests, by the flags of the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from setpoint.cluster.apiserver import apiserver
from setpoint.cluster.config import ApiServerConfig
from setpoint.wire.message import Peer, Request, Response


@pytest.mark.parametrize(
    ("modes", "flag", "status"),
    [
        (["Node", "RBAC"], None, 403),
        (["RBAC"], True, 403),
        (["RBAC"], False, 401),
        (["AlwaysAllow"], None, 401),
        (["AlwaysAllow"], False, 401),
        (["RBAC", "AlwaysAllow"], True, 401),  # the flag is ignored, with a warning
    ],
)
async def test_anonymous_users_cannot_read_secrets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, modes: list[str], flag: bool | None, status: int
) -> None:
    config = ApiServerConfig(
        tmp_path, port=0, insecure_http=True, store="memory", authorization_mode=modes, anonymous_auth=flag
    )
    async with apiserver(config, alone=True) as server:
        answer = await server.api.handle(Request("GET", "/api/v1/secrets", "", {}, b"", Peer()))
        assert isinstance(answer, Response)
        assert answer.status == status
    warned = any("Resetting AnonymousAuth to false" in record.getMessage() for record in caplog.records)
    assert warned == (flag is True and "AlwaysAllow" in modes)
