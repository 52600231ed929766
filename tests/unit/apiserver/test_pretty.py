"""Answers that people read are indented."""

from __future__ import annotations

import pytest
from front_door import FrontDoor


@pytest.mark.parametrize(
    ("agent", "query", "indented"),
    [("curl/8.0", "", True), ("kubectl/v1.33", "", False), ("kubectl/v1.33", "?pretty=1", True),
     ("curl/8.0", "?pretty=false", False)],
)  # fmt: skip
async def test_who_gets_it_indented(door: FrontDoor, agent: str, query: str, indented: bool) -> None:
    reply = await door.request("GET", f"/api/v1/namespaces/default{query}", headers={"user-agent": agent})
    assert reply.status == 200
    assert reply.body.startswith(b'{\n  "kind"' if indented else b'{"kind"')
