"""Audit sinks: rotated files, batches, truncation and webhooks."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from audit_harness import RecordingSink
from server_harness import VirtualClock, private_ids, settle

from setpoint.apiserver.audit.event import AuditEvent
from setpoint.apiserver.audit.log_file import RotatingFile
from setpoint.apiserver.audit.policy import METADATA, REQUEST
from setpoint.apiserver.audit.sinks import (
    AuditErrors,
    BatchOptions,
    BufferedSink,
    IgnoreErrorsSink,
    LogSink,
    PostFailed,
    TruncatingSink,
    UnionSink,
    WebhookSink,
)


def _event(name: str = "one", level: int = METADATA, **more: Any) -> AuditEvent:
    fields: dict[str, Any] = {
        "level": "Metadata",
        "auditID": name,
        "stage": "ResponseComplete",
        "requestURI": f"/api?name={name}",
        "verb": "get",
        "user": {"username": "jane", "groups": ["a", "b"]},
        "sourceIPs": ["192.0.2.1"],
        "userAgent": "tests",
        "requestReceivedTimestamp": "2026-01-01T00:00:00.120000Z",
        "stageTimestamp": "2026-01-01T00:00:00.130000Z",
        **more,
    }
    return AuditEvent(orjson.dumps(fields), level)


def _errors(failures: AuditErrors) -> dict[str, float]:
    (family,) = failures.families()
    return {sample.labels["plugin"]: sample.value for sample in family.samples}


class Time(VirtualClock):
    moment = datetime(2026, 3, 4, 5, 6, 7, 89_000, UTC)

    def now(self) -> datetime:
        return self.moment


def _file(path: Path, clock: Time, **more: Any) -> RotatingFile:
    how: dict[str, Any] = {"max_bytes": 100, "max_age": None, "max_backups": 0, "compress": False, **more}
    return RotatingFile(path, clock, **how)


# -- the file ---------------------------------------------------------------------------------------------------------


def test_a_full_file_is_rotated_with_a_timestamp(tmp_path: Path) -> None:
    clock, path = Time(), tmp_path / "made" / "audit.log"
    rotated: list[int] = []
    file = _file(path, clock, on_rotated=lambda: rotated.append(1))
    file.write(b"a" * 60)
    file.write(b"b" * 40)
    file.write(b"c")
    file.close()
    assert path.read_bytes() == b"c"
    assert (path.parent / "audit-2026-03-04T05-06-07.089.log").read_bytes() == b"a" * 60 + b"b" * 40
    assert [path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777, rotated] == [0o600, 0o700, [1]]
    with pytest.raises(OSError, match="write length 101 exceeds maximum file size 100"):
        _file(path, clock).write(b"d" * 101)


def test_an_existing_file_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(b"a" * 90)
    file = _file(path, Time())
    file.write(b"b" * 20)
    assert path.read_bytes() == b"b" * 20
    assert len(list(tmp_path.iterdir())) == 2
    without_limit = _file(tmp_path / "endless.log", Time(), max_bytes=0)
    for _ in range(3):
        without_limit.write(b"c" * 90)
    assert (tmp_path / "endless.log").stat().st_size == 270


def test_a_moved_file_is_recreated_at_rotation(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = _file(path, Time())
    file.write(b"a" * 90)
    path.rename(tmp_path / "elsewhere")
    file.write(b"b" * 20)
    assert path.read_bytes() == b"b" * 20
    assert len(list(tmp_path.iterdir())) == 2


def test_backups_are_limited_by_number_and_age_and_compressed(tmp_path: Path) -> None:
    clock = Time()
    names = [f"audit-2026-03-0{day}T00-00-00.000.log" for day in (1, 2, 3, 4)]
    for name in (*names, "audit-notes.log", "other-2026-03-01T00-00-00.000.log"):
        (tmp_path / name).write_bytes(name.encode())
    _file(tmp_path / "audit.log", clock, max_backups=3).tidy()
    assert not (tmp_path / names[0]).exists()
    _file(tmp_path / "audit.log", clock, max_age=timedelta(days=2), compress=True).tidy()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{names[2]}.gz",
        f"{names[3]}.gz",
        "audit-notes.log",
        "audit.log",
        "other-2026-03-01T00-00-00.000.log",
    ]
    assert gzip.decompress((tmp_path / f"{names[3]}.gz").read_bytes()) == names[3].encode()


# -- sinks ------------------------------------------------------------------------------------------------------------


class Broken:
    def write(self, data: bytes) -> None:
        raise OSError("no space left on device")


async def test_lines_as_json_and_as_text() -> None:
    class Lines(list[bytes]):
        def write(self, data: bytes) -> None:
            self.append(data)

    as_json, as_text, failures = Lines(), Lines(), AuditErrors()
    event = _event(responseStatus={"metadata": {}, "code": 200})
    await UnionSink(LogSink(as_json, False, failures), LogSink(as_text, True, failures)).process([event])
    assert orjson.loads(as_json[0])["kind"] == "Event"
    assert as_json[0].endswith(b"}\n")
    assert as_text == [
        b'2026-01-01T00:00:00.12Z AUDIT: id="one" stage="ResponseComplete" ip="192.0.2.1" method="get" user="jane" '
        b'groups="\\"a\\",\\"b\\"" as="<self>" asgroups="<lookup>" user-agent="tests" namespace="<none>" '
        b'uri="/api?name=one" response="200"\n'
    ]


async def test_write_errors_are_counted_and_logged_without_objects(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = AuditErrors()
    sink = LogSink(Broken(), False, failures)
    event = _event(level=REQUEST, requestObject={"data": "swordfish"})
    assert not await sink.process([event])
    assert await IgnoreErrorsSink(sink).process([event])
    assert _errors(failures) == {"log": 2}
    assert "no space left on device" in caplog.text
    assert "swordfish" not in caplog.text


async def test_large_events_are_truncated_or_dropped() -> None:
    recorded, failures = RecordingSink(), AuditErrors()
    sink = TruncatingSink(recorded, 600, 1000, failures)
    large = {"requestObject": {"data": "x" * 900}, "annotations": {"a": "b"}}
    assert await sink.process([_event("cut", REQUEST, **large), _event("x" * 600), _event("small"), _event("next")])
    cut, small, following = recorded.drain()
    assert ("requestObject" in cut, cut["annotations"]) == (False, {"a": "b", "audit.k8s.io/truncated": "true"})
    assert [small["auditID"], following["auditID"]] == ["small", "next"]
    assert _errors(failures) == {"truncate": 1}


class Batches(list[list[str]]):
    async def process(self, events: Sequence[AuditEvent]) -> bool:
        self.append([event.fields["auditID"] for event in events])
        return True


async def test_complete_batches_are_sent_and_the_rest_at_the_end() -> None:
    batches, failures = Batches(), AuditErrors()
    options = BatchOptions(max_size=2, max_wait=3600.0)
    buffered = BufferedSink(batches, options, VirtualClock(), failures)
    running = asyncio.ensure_future(buffered.run())
    for name in "abcde":
        await buffered.process([_event(name)])
        await settle()
    assert batches == [["a", "b"], ["c", "d"]]
    running.cancel()
    await running
    assert batches == [["a", "b"], ["c", "d"], ["e"]]
    await buffered.process([_event("f")])
    assert _errors(failures) == {"buffered": 1}


async def test_an_incomplete_batch_is_sent_after_max_wait() -> None:
    batches = Batches()
    buffered = BufferedSink(batches, BatchOptions(max_size=9, max_wait=0.0), VirtualClock(), AuditErrors())
    running = asyncio.ensure_future(buffered.run())
    await buffered.process([_event("a"), _event("b")])
    await settle(50)
    assert batches == [["a", "b"]]
    running.cancel()
    await running


async def test_buffer_overflow_is_dropped_and_counted() -> None:
    batches, failures = Batches(), AuditErrors()
    buffered = BufferedSink(batches, BatchOptions(buffer_size=2), VirtualClock(), failures)
    assert await buffered.process([_event(name) for name in "abcde"])
    assert _errors(failures) == {"buffered": 3}


async def test_batches_are_throttled() -> None:
    batches, clock = Batches(), VirtualClock()
    options = BatchOptions(throttle=True, qps=1.0, burst=2)
    buffered = BufferedSink(batches, options, clock, AuditErrors())
    await buffered.process([_event(name) for name in "abcd"])
    running = asyncio.ensure_future(buffered.run())
    await settle()
    assert len(batches) == 2
    await clock.advance(1.0)
    assert len(batches) == 3
    await clock.advance(1.0)
    assert len(batches) == 4
    running.cancel()
    await running


async def test_a_webhook_is_retried_with_backoff() -> None:
    clock, failures, bodies = VirtualClock(), AuditErrors(), list[bytes]()
    answers = [False, False, True]

    async def post(body: bytes) -> None:
        bodies.append(body)
        if not answers or not answers.pop(0):
            raise PostFailed("connection refused")

    sink = WebhookSink(post, 10.0, clock, private_ids(), failures)
    sending = asyncio.ensure_future(sink.process([_event("a"), _event("b")]))
    await settle()
    assert len(bodies) == 1
    await clock.advance(12.0)
    assert len(bodies) == 2
    await clock.advance(18.0)
    assert await sending
    sent = orjson.loads(bodies[0])
    assert (sent["kind"], sent["apiVersion"], sent["metadata"]) == ("EventList", "audit.k8s.io/v1", {})
    assert [("kind" in item, item["auditID"]) for item in sent["items"]] == [(False, "a"), (False, "b")]
    sending = asyncio.ensure_future(sink.process([_event("c")]))
    await clock.advance(120.0)
    assert not await sending
    assert len(bodies) == 8
    assert _errors(failures) == {"webhook": 1}
