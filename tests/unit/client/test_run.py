"""Writes carry the claim of the run that they belong to."""

from __future__ import annotations

import asyncio

from setpoint.client.current_run import current_run
from setpoint.client.run import PersonalRun, Run, because
from setpoint.client.sender import Sender
from setpoint.client.transport import Headers, Reply, StreamReply
from setpoint.meta.cause import CAUSE_HEADER, Claim, claim_of, parse_claim, run_claim_values
from setpoint.system import SystemClock


class RecordingTransport:
    """A transport over a network: it knows text only."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Claim | None]] = []

    async def request(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> Reply:
        header = dict(headers).get(CAUSE_HEADER)
        assert header is None or type(header) is str
        self.sent.append((method, None if header is None else parse_claim(header)))
        return Reply(200, (), b"{}")

    async def stream(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> StreamReply:
        raise NotImplementedError

    async def close(self) -> None:
        pass


async def test_writes_of_a_run_and_of_its_tasks_carry_its_claim() -> None:
    transport = RecordingTransport()
    sender = Sender(transport, SystemClock())
    run = Run("teapots", "1f2e", 7, "default/brown", (41, 42), besides="retry:1")
    claim = Claim("teapots/1f2e.7", "default/brown", (41, 42), 0, "retry:1")

    async def reconcile() -> None:
        current_run.set(run)
        await sender.json("GET", "/x")
        await sender.json("POST", "/x", body={})
        because("it is empty; 3 cups are wanted")
        await asyncio.gather(sender.json("PUT", "/x", body={}), sender.json("DELETE", "/x"))

    await asyncio.create_task(reconcile())
    await sender.json("POST", "/x", body={})
    because("this has no effect outside of a run")
    explained = claim._replace(reason="it is empty; 3 cups are wanted")
    assert transport.sent == [("GET", None), ("POST", claim), ("PUT", explained), ("DELETE", explained), ("POST", None)]
    assert run.writes == 3


async def test_the_reason_of_a_person_names_no_reconcile() -> None:
    transport = RecordingTransport()
    run = PersonalRun("undo of 291")
    token = current_run.set(run)
    await Sender(transport, SystemClock()).json("DELETE", "/x")
    current_run.reset(token)
    assert transport.sent == [("DELETE", Claim(reason="undo of 291"))] and run.writes == 1
    assert claim_of(run_claim_values(*run.claim_write_in_process())) == Claim(reason="undo of 291")
