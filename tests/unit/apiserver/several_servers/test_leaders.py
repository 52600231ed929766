"""Leaders of components that use different servers, one of which has a wrong wall clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import pytest
from server_harness import ADMIN_TOKEN
from several_servers import MaintainedServer, advance

from setpoint.client import Client
from setpoint.client.inprocess import InProcessTransport
from setpoint.cluster.inprocess import InProcess
from setpoint.meta.errors import Conflict
from setpoint.meta.lease_term import TERM_HEADER
from setpoint.meta.objects import Obj
from setpoint.reconcile.leader_election import LeaderElection, LeadershipLost
from setpoint.system import RandomIds

Pair = tuple[MaintainedServer, MaintainedServer]


class Candidate:
    """A component on the machine of a server: it uses this server and has its clock."""

    def __init__(self, server: MaintainedServer, entrance: InProcess, identity: str) -> None:
        self.client = Client(InProcessTransport(entrance, ADMIN_TOKEN), server.clock, user_agent=identity)
        self.election = LeaderElection(
            self.client, server.clock, RandomIds(1), name="work", identity=identity, namespace="default"
        )

    @property
    def leads(self) -> bool:
        return self.election.leading.is_set()

    async def run(self) -> None:
        while True:
            with suppress(LeadershipLost):
                await self.election.lead(asyncio.Event().wait)  # type: ignore[arg-type]


@asynccontextmanager
async def candidate(server: MaintainedServer, identity: str) -> AsyncIterator[Candidate]:
    async with InProcess(server.api.handle) as entrance:
        made = Candidate(server, entrance, identity)
        running = asyncio.ensure_future(made.run())
        await server.clock.advance(0)
        try:
            yield made
        finally:
            server.view.release()
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


def config_map(name: str) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


@pytest.mark.parametrize("hours", [1, -1, 24])
@pytest.mark.parametrize("wrong", [0, 1])
async def test_a_wall_clock_that_jumps_moves_no_leader_and_lets_no_late_write_in(
    pair: Pair, hours: int, wrong: int
) -> None:
    async with candidate(pair[0], "first") as first, candidate(pair[1], "second") as second:
        await advance(3, *pair)
        assert (first.leads, second.leads) == (True, False)
        pair[wrong].clock.skew = timedelta(hours=hours)
        await advance(40, *pair)
        assert (first.leads, second.leads) == (True, False)
        late = Client(first.client.sender.transport, pair[0].clock)
        late.sender._who.append((TERM_HEADER, str(first.election.term())))
        await late.create(config_map("in-time"))

        # The first server is cut off from the store, and with it the leader.
        pair[0].view.hold()
        both = False
        for _ in range(60):
            await advance(0.5, *pair)
            both |= first.leads and second.leads
        assert (first.leads, second.leads, both) == (False, True, False)
        with pytest.raises(Conflict, match="not sent"):
            first.election.term()
        pair[0].view.release()
        await advance(3, *pair)
        with pytest.raises(Conflict, match="its writes are refused"):
            await late.create(config_map("late"))
        assert second.leads and not first.leads
