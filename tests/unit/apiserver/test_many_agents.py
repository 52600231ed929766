"""The memory of a server whose clients all have other names."""

from __future__ import annotations

import gc

import pytest
from effort import tries
from process_memory import resident
from server_harness import ADMIN_TOKEN, JSON, ServerHarness

from setpoint.meta.cause import CAUSE_HEADER, MAX_AGENT_LENGTH, decode
from setpoint.store.memory import MemoryStore
from setpoint.wire.message import Peer, Request, Response

MAP = "/api/v1/namespaces/default/configmaps/m"


@pytest.fixture(autouse=True)
def nothing_shared_is_changed() -> None:
    """Replace the fixture that remembers every object."""


@pytest.mark.slow
async def test_tens_of_thousands_of_agents_and_claims_leave_nothing_behind() -> None:
    """Each write has an agent and a claim that no other has: what is remembered about them is bounded."""
    harness = await ServerHarness.open(MemoryStore())
    store = harness.store
    await harness.make(MAP.removesuffix("/m"), {"metadata": {"name": "m"}})
    agent, claim, sizes = "a" * 100, "x" * 200, list[int]()
    for number in range(tries(30_000, 100_000)):
        headers = {
            "authorization": f"Bearer {ADMIN_TOKEN}",
            "content-type": JSON,
            "user-agent": f"{number}{agent}",
            CAUSE_HEADER: f"r=c/{number}.1;why={number}{claim}",
        }
        body = b'{"metadata":{"name":"m"},"data":{"n":"%d"}}' % number
        reply = await harness.api.handle(Request("PUT", MAP, "", headers, body, Peer("127.0.0.1", 1)))
        assert isinstance(reply, Response) and reply.status == 200
        if number % 1_000 == 0:
            (record,) = await store.causes(store.revision - 1)
            assert decode(record.cause).agent == f"{number}{agent}"[:MAX_AGENT_LENGTH] and len(record.cause) < 4_096
            await store.compact(store.revision)
        if number % 5_000 == 4_999:
            gc.collect()
            sizes.append(resident())
    await harness.close()
    # The names of the last 25,000 would be 3 MiB, and the claims 6.
    assert sizes[-1] - sizes[0] < 3 << 19, sizes
