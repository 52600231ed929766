"""What the store on etcd promises beyond the contract: faults of etcd, lost answers, compaction, foreign keys."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cuttable_relay import Cuttable
from etcd_process import EtcdProcess, etcd_process

from setpoint.store.interface import (
    Check,
    Compacted,
    CompareFailed,
    Delete,
    Event,
    Put,
    StoreError,
    TooLarge,
    Unavailable,
)

pytest.importorskip("google.protobuf")

from setpoint.store.etcd import client as etcd_client
from setpoint.store.etcd import messages
from setpoint.store.etcd import store as etcd_store
from setpoint.store.etcd.client import EtcdClient
from setpoint.store.etcd.replacement import replace_content
from setpoint.store.etcd.store import EtcdStore


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    with etcd_process(tmp_path) as running:
        yield running


def shorten_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_client, "CALL_TIMEOUT", 0.5)
    monkeypatch.setattr(etcd_store, "_RESOLVE_TIMEOUT", 1.0)


async def opened(*endpoints: str, prefix: str = "/registry/", first_revision: int | None = None) -> EtcdStore:
    if first_revision is not None:
        await replace_content(endpoints, prefix, None, first_revision)
    return await EtcdStore.open(endpoints, prefix=prefix, number=partial(os.urandom, 16))


@pytest.fixture
async def relay(etcd: EtcdProcess) -> AsyncIterator[Cuttable]:
    async with Cuttable(etcd.endpoint).running() as running:
        yield running


async def until_available(store: EtcdStore) -> None:
    async with asyncio.timeout(15):
        while store.unavailable is not None:  # noqa: ASYNC110 (the store has no event for it)
            await asyncio.sleep(0.05)


async def suspend(etcd: EtcdProcess) -> None:
    """Suspend etcd, and wait until it has stopped: before that it may still answer."""
    etcd.process.send_signal(signal.SIGSTOP)
    await asyncio.to_thread(os.waitid, os.P_PID, etcd.process.pid, os.WSTOPPED | os.WNOWAIT)


class Sink:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, events: Sequence[Event], revision: int) -> None:
        self.events += events


async def test_a_paused_etcd_is_unavailable_and_recovers(etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await opened(etcd.endpoint)
    _, (made,) = await store.txn([Put("a", b"1")])
    shorten_timeouts(monkeypatch)
    await suspend(etcd)
    with pytest.raises(Unavailable, match="it is not known whether the transaction happened"):
        await store.txn([Put("b", b"1")])
    with pytest.raises(Unavailable):
        await store.sync()
    assert await store.get("a") == made, "reads show the last known state"
    etcd.process.send_signal(signal.SIGCONT)
    monkeypatch.undo()
    await until_available(store)
    await store.sync()
    await store.txn([Put("c", b"1")])
    assert store.failure is None
    await store.close()


async def test_questions_for_the_revision_are_shared_and_bounded(
    etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While etcd does not answer, callers wait for few questions, and each for one that was sent in the iteration of
    its call or later."""
    store = await opened(etcd.endpoint)
    sent: list[object] = []
    original = EtcdClient.query_revision

    def query_revision(client: EtcdClient, on_answer: Callable[[Any], None]) -> None:
        sent.append(on_answer)
        original(client, on_answer)

    monkeypatch.setattr(EtcdClient, "query_revision", query_revision)
    await suspend(etcd)
    calls = []
    for _ in range(100):
        calls += [asyncio.ensure_future(store.sync()) for _ in range(3)]
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(sent) == 16, "one for each iteration of the event loop, up to the limit"
    etcd.process.send_signal(signal.SIGCONT)
    assert len(set(await asyncio.gather(*calls))) == 1
    assert len(sent) == 17, "all callers that had to wait share the next one"
    revision, _ = await store.txn([Put("a", b"1")])
    assert await store.sync() == revision
    await store.close()


async def test_callers_share_a_question_until_the_end_of_the_iteration_or_its_answer(
    etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(etcd.endpoint)
    asked: list[Callable[[int], None]] = []
    monkeypatch.setattr(EtcdClient, "query_revision", lambda client, on_answer: asked.append(on_answer))
    calls = [asyncio.ensure_future(store.sync()) for _ in range(2)]
    await asyncio.sleep(0)
    assert len(asked) == 1, "it is sent by the first caller"
    asked[0](store.revision)
    call = store.sync()
    call.send(None)  # at once, in the same iteration
    assert len(asked) == 2, "the answer came before the end of the iteration: the next caller asks anew"
    asked[1](store.revision)
    with pytest.raises(StopIteration):
        call.send(None)
    await asyncio.sleep(0)
    calls.append(asyncio.ensure_future(store.sync()))
    await asyncio.sleep(0)
    assert len(asked) == 3, "a later iteration asks anew"
    assert [each.done() for each in calls] == [True, True, False]
    asked[2](store.revision)
    assert await asyncio.gather(*calls) == [store.revision] * 3
    await store.close()


async def test_the_watch_continues_after_a_lost_connection(relay: Cuttable, etcd: EtcdProcess) -> None:
    store, other = await opened(relay.url), await opened(etcd.endpoint)
    sink = Sink()
    store.watch("", store.revision, sink)
    revisions = []
    for round_number in range(5):
        revisions.append((await store.txn([Put("a", b"%d" % round_number)]))[0])
        relay.cut()
        revisions += [(await other.txn([Put(f"b/{number}", b"")]))[0] for number in range(20)]
    await until_available(store)
    assert await store.sync() >= revisions[-1]
    assert [event.revision for event in sink.events] == revisions, "complete, in order, without duplicates"
    await store.close()
    await other.close()


async def test_a_transaction_whose_answer_was_lost_is_acknowledged_if_it_happened(relay: Cuttable) -> None:
    store = await opened(relay.url)
    relay.swallow_answers = True
    writing = asyncio.ensure_future(store.txn([Put("a", b"1")], b"why"))
    await asyncio.sleep(0.3)
    relay.cut()
    relay.swallow_answers = False
    revision, (made,) = await writing
    assert made is not None
    assert (made.value, made.mod_revision) == (b"1", revision)
    assert [cause.cause for cause in await store.causes(revision - 1)] == [b"why"]
    await store.close()


async def test_a_transaction_that_was_not_sent_is_repeated(relay: Cuttable) -> None:
    store = await opened(relay.url)
    relay.refuse = True
    relay.cut()
    await asyncio.sleep(0.1)
    writing = asyncio.ensure_future(store.txn([Put("a", b"1", 0)]))
    await asyncio.sleep(0.3)
    relay.refuse = False
    revision, (made,) = await writing
    assert made is not None and made.mod_revision == revision
    await store.close()


async def test_history_that_was_compacted_during_an_outage(relay: Cuttable, etcd: EtcdProcess) -> None:
    """What changed meanwhile is delivered as one transaction; what was in between is gone, and older reads say so."""
    store, other = await opened(relay.url), await opened(etcd.endpoint)
    await store.txn([Put("stays", b"1"), Put("changes", b"1"), Put("goes", b"1")])
    begin, sink = store.revision, Sink()
    store.watch("", begin, sink)
    relay.refuse = True
    relay.cut()
    await other.sync()
    for number in range(5):
        await other.txn([Put("changes", b"%d" % number), Put("new", b"%d" % number)])
    await other.txn([Put("final", b"1")])
    last, _ = await other.txn([Delete("goes")])
    await other.compact(last)
    relay.refuse = False
    await until_available(store)
    await store.sync()
    assert {(event.key, event.now.value if event.now else None) for event in sink.events} == {
        ("changes", b"4"),
        ("new", b"4"),
        ("final", b"1"),
        ("goes", None),
    }
    assert [item.key for item in (await store.list("")).items] == ["changes", "final", "new", "stays"]
    with pytest.raises(Compacted):
        store.watch("", begin, sink)
    _, (made,) = await store.txn([Put("after", b"")])
    assert sink.events[-1].now == made
    await store.close()
    await other.close()


async def test_revisions_before_the_replica_are_read_from_etcd(
    etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await opened(etcd.endpoint)
    revisions = [(await first.txn([Put("a/b/c", b"%d" % number), Put("a/b/d", b"")]))[0] for number in range(30)]
    await first.close()
    monkeypatch.setattr(etcd_store, "_REPLAYED", 10)
    store = await opened(etcd.endpoint)
    assert store.compacted > revisions[5]
    old = await store.get("a/b/c", revisions[5])
    assert old is not None and old.value == b"5"
    page = await store.list("a/b/", limit=1, revision=revisions[5])
    assert ([item.value for item in page.items], page.revision, page.more, page.total) == (
        [b"5"],
        revisions[5],
        True,
        2,
    )
    await store.compact(revisions[-2])
    with pytest.raises(Compacted):
        await store.get("a/b/c", revisions[5])
    await store.close()


async def test_only_callers_before_a_question_for_the_revision_share_its_answer(
    etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = await opened(etcd.endpoint), await opened(etcd.endpoint)
    ask = store._keyspace.client.query_revision
    answers: list[Callable[[], None]] = []
    monkeypatch.setattr(
        store._keyspace.client,
        "query_revision",
        lambda on_answer: ask(lambda answer: answers.append(partial(on_answer, answer))),
    )

    async def asked(count: int) -> None:
        async with asyncio.timeout(15):
            while len(answers) < count:  # noqa: ASYNC110 (the answer arrives on a connection)
                await asyncio.sleep(0.001)

    early = [asyncio.ensure_future(store.sync()) for _ in range(50)]
    await asked(1)
    revision, _ = await other.txn([Put("a", b"1")])
    late = [asyncio.ensure_future(store.sync()) for _ in range(50)]
    await asked(2)
    answers[0]()
    assert max(await asyncio.gather(*early)) < revision
    assert not any(each.done() for each in late)
    answers[1]()
    assert min(await asyncio.gather(*late)) >= revision
    assert len(answers) == 2
    await asyncio.gather(store.close(), other.close())


async def test_an_unanswered_question_for_the_revision_fails_with_the_store(etcd: EtcdProcess) -> None:
    store = await opened(etcd.endpoint)
    await suspend(etcd)
    try:
        callers = [asyncio.ensure_future(store.sync())]
        await asyncio.sleep(0.02)
        callers += [asyncio.ensure_future(store.sync())]
        await asyncio.sleep(0)
        await store.close()
        outcomes = await asyncio.gather(*callers, return_exceptions=True)
        assert [str(each) for each in outcomes] == ["the store is closed"] * 2
    finally:
        etcd.process.send_signal(signal.SIGCONT)


async def test_foreign_keys_count_as_revisions_and_are_not_seen(etcd: EtcdProcess) -> None:
    store, client = await opened(etcd.endpoint), EtcdClient([etcd.endpoint])
    request = messages.TxnRequest()
    put = request.success.add().request_put
    put.key, put.value = b"/elsewhere/x", b"1"
    foreign = (await client.txn(request)).header.revision
    assert await store.sync() >= foreign
    assert (await store.list("")).items == []
    client.close()
    await store.close()


async def test_the_limits_of_etcd(tmp_path: Path) -> None:
    """By default it accepts 128 operations and 1.5 MiB; what is larger is refused at once and harms nothing."""
    with etcd_process(tmp_path, "--max-snapshots", "1") as etcd:
        store = await opened(etcd.endpoint)
        limits = store.limits
        with pytest.raises(TooLarge, match=r"^etcdserver: too many operations in txn request$"):
            await store.txn([Put(f"a/{number}", b"", 0) for number in range(129)])
        for size in (3 << 19, 3 << 20, 65 << 20):
            with pytest.raises(TooLarge, match=r"^etcdserver: request is too large$"):
                await store.txn([Put("a", bytes(size))])
        assert store.failure is None and store.unavailable is None
        assert (await store.list("")).items == []
        keys = [f"a/{number}" for number in range(limits.operations)]
        await store.txn([Put(key, b"", 0) for key in keys], b"c" * 1000)
        await store.txn([Delete(key) for key in keys], b"c" * 1000)
        await store.txn([Put("b", bytes(limits.size - 1)), Check("c", 0)], b"c" * 1000)
        await store.close()


async def test_no_endpoint_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_timeouts(monkeypatch)
    with pytest.raises(Unavailable, match=r"cannot connect to http://127.0.0.1:1.*http://127.0.0.1:2"):
        await opened("http://127.0.0.1:1", "http://127.0.0.1:2")


async def test_the_next_endpoint_is_used(etcd: EtcdProcess) -> None:
    store = await opened("http://127.0.0.1:1", etcd.endpoint)
    await store.txn([Put("a", b"")])
    await store.close()


# -- content that was moved from another store ------------------------------------------------------------------------


async def test_revisions_continue_those_of_another_store(etcd: EtcdProcess) -> None:
    store = await opened(etcd.endpoint, first_revision=1_000)
    assert 1_000 < store.revision == store.compacted
    first, _ = await store.txn([Put("a", b"at: ", stamp=4)])
    assert first > 1_000
    for old in (1, 999, 1_000, store.compacted - 1):
        with pytest.raises(Compacted):
            store.watch("", old, Sink())
        with pytest.raises(Compacted):
            await store.get("a", old)
        with pytest.raises(CompareFailed):
            await store.txn([Put("a", b"", old)])
        with pytest.raises(CompareFailed):
            await store.txn([Put("absent", b"", old)])
    await store.close()
    again = await opened(etcd.endpoint)
    made = await again.get("a")
    assert made is not None and (made.value, made.mod_revision) == (b"at: %d" % first, first)
    assert again.compacted > 1_000
    assert (await again.txn([Put("a", b"", made.mod_revision)]))[0] > first
    await again.close()


async def test_content_is_replaced_in_one_transaction(etcd: EtcdProcess) -> None:
    neighbour = await opened(etcd.endpoint, prefix="/other/")
    await neighbour.txn([Put("a", b"")])
    keys = ["a", "b", "b/c", "\N{LATIN SMALL LETTER E WITH ACUTE}"]
    for first_revision in (1_000, 1, 2_000):  # the second and third replace content that has an offset already
        store = await opened(etcd.endpoint)
        await store.txn([Put(key, b"old") for key in keys])
        await store.txn([Delete("a")])
        before = await store.sync()
        await store.close()
        await replace_content([etcd.endpoint], "/registry/", None, first_revision, [Put("b", b"at: ", stamp=4)])
        store = await opened(etcd.endpoint)
        (only,) = (await store.list("")).items
        assert (only.key, only.value) == ("b", b"at: %d" % only.mod_revision)
        assert only.create_revision <= only.mod_revision == store.revision == store.compacted
        assert store.revision > first_revision and (store.revision > before or first_revision == 1)
        with pytest.raises(CompareFailed):
            await store.txn([Put("b", b"", before)])
        await store.txn([Delete("b")])
        await store.close()
    assert await neighbour.get("a") is not None
    await neighbour.close()
    with pytest.raises(ValueError, match="begins with ~"):
        await replace_content([etcd.endpoint], "/registry/", None, 1, [Put("~offset", b"7")])


async def test_a_store_whose_content_is_replaced_fails(etcd: EtcdProcess) -> None:
    """It would otherwise return revisions that are not those of the others."""
    store = await opened(etcd.endpoint)
    other = await opened(etcd.endpoint, first_revision=1_000)
    with pytest.raises(StoreError, match="was replaced; restart this server"):
        await store.wait_for_revision(store.revision + 100)
    assert store.failure is not None and store.unavailable is None
    await store.close()
    await other.close()


async def test_old_pages_of_everything_omit_the_own_keys(etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await opened(etcd.endpoint, first_revision=1_000)
    keys = ["a/b/c", "x", "\N{LATIN SMALL LETTER E WITH ACUTE}"]
    revision, _ = await first.txn([Put(key, b"") for key in keys], b"why")
    await first.txn([Put("later", b"")])
    await first.close()
    monkeypatch.setattr(etcd_store, "_REPLAYED", 0)
    store = await opened(etcd.endpoint)
    pages = [await store.list("", start=start, limit=2, revision=revision) for start in ("", keys[2])]
    assert [[item.key for item in page.items] for page in pages] == [keys[:2], keys[2:]]
    assert [(page.more, page.total) for page in pages] == [(True, 3), (False, 1)]
    with pytest.raises(ValueError, match="begins with ~"):
        await store.txn([Put("~cause", b"")])
    await store.close()


async def test_the_record_of_a_transaction_costs_a_key_only_if_nothing_else_is_written(
    etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, client = await opened(etcd.endpoint), EtcdClient([etcd.endpoint])
    everything = messages.RangeRequest(key=b"/", range_end=b"0", keys_only=True)
    revision, _ = await store.txn([Put("a", b"1", 0, 1), Put("b", b"2")], b"first")
    assert [each.key for each in (await client.range(everything)).kvs] == [b"/registry/a", b"/registry/b"]
    await store.txn([Delete("a"), Put("b", b"3")], b"second")
    await store.txn([Delete("b")], b"third")
    assert [each.key for each in (await client.range(everything)).kvs] == [b"/registry/~cause"]
    for replayed in (5_000, 0):
        monkeypatch.setattr(etcd_store, "_REPLAYED", replayed)
        other = await opened(etcd.endpoint)
        past = await other.list("", revision=revision)
        assert [(each.key, each.value) for each in past.items] == [("a", b"1%d" % revision), ("b", b"2")]
        causes = [cause.cause for cause in await other.causes(other.compacted)]
        assert causes == ([b"first", b"second", b"third"] if replayed else [])
        await other.close()
    client.close()
    await store.close()


async def test_data_of_earlier_versions(etcd: EtcdProcess) -> None:
    """They stored the record of every transaction in a key of its own."""
    client = EtcdClient([etcd.endpoint])
    request = messages.TxnRequest()
    for key, value in ((b"a", b"1:xy"), (b"~cause", bytes(16) + b"why")):
        put = request.success.add().request_put
        put.key, put.value = b"/registry/" + key, value
    revision = (await client.txn(request)).header.revision
    client.close()
    store = await opened(etcd.endpoint)
    (found,) = (await store.list("")).items
    assert (found.key, found.value) == ("a", b"x%dy" % revision)
    _, (changed,) = await store.txn([Put("a", b"z", revision)], b"changed")
    assert changed is not None and changed.value == b"z"
    assert [cause.cause for cause in await store.causes(0)] == [b"why", b"changed"]
    await store.close()


async def test_events_before_an_invalid_one_are_delivered(etcd: EtcdProcess, caplog: pytest.LogCaptureFixture) -> None:
    """A release of etcd sent events of the past again; what comes before them in a response counts, once."""
    store, sink = await opened(etcd.endpoint), Sink()
    store.watch("", store.revision, sink)
    response = messages.WatchResponse()
    for revision in (store.revision + 1, store.revision):
        event = response.events.add()
        event.kv.key, event.kv.value = b"/registry/a", b":1"
        event.kv.mod_revision = event.kv.create_revision = revision
    with pytest.raises(StoreError, match="follows revision"):
        store._on_response(response)
    assert [event.key for event in sink.events] == ["a"]
    assert store.revision == sink.events[0].revision
    await store.close()
