"""Indentation of responses for people."""

from __future__ import annotations

import pytest
from server_harness import ServerHarness


@pytest.mark.parametrize(
    ("agent", "query", "indented"),
    [
        ("curl/8.0", "", True),
        ("kubectl/v1.33", "", False),
        ("kubectl/v1.33", "?pretty=1", True),
        ("curl/8.0", "?pretty=false", False),
    ],
)
async def test_clients_that_get_indented_json(harness: ServerHarness, agent: str, query: str, indented: bool) -> None:
    reply = await harness.request("GET", f"/api/v1/namespaces/default{query}", headers={"user-agent": agent})
    assert reply.status == 200
    assert reply.body.startswith(b'{\n  "kind"' if indented else b'{"kind"')
