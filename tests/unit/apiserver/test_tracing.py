"""Spans of requests: which are recorded, and what they say."""

from __future__ import annotations

import pytest
from server_harness import LIMITED_TOKEN, ServerHarness

from setpoint.apiserver.config_files import FileProblem
from setpoint.apiserver.tracing import Span, Tracer, TracingConfig, read_tracing
from setpoint.system import RandomIds

MAPS = "/api/v1/namespaces/default/configmaps"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEAD = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n"


def traced(harness: ServerHarness, rate: int) -> Tracer:
    tracer = harness.api._tracer = Tracer(rate, RandomIds())
    return tracer


def only(tracer: Tracer) -> Span:
    (span,) = tracer.take(10)
    return span


@pytest.mark.parametrize(("flags", "sampled"), [("01", True), ("00", False)])
async def test_privileged_clients_decide(harness: ServerHarness, flags: str, sampled: bool) -> None:
    tracer = traced(harness, 1_000_000)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}
    await harness.post(f"{MAPS}?fieldManager=f", body, headers={"traceparent": f"00-{TRACE}-{PARENT}-{flags}"})
    assert len(tracer) == int(sampled)
    if sampled:
        span = only(tracer)
        assert (span.trace.hex(), span.parent.hex(), span.link) == (TRACE, PARENT, None)
        assert span.name == "POST /api/v1/namespaces/{:namespace}/configmaps"
        assert span.attributes == {
            "http.request.method": "POST",
            "http.target": f"{MAPS}?fieldManager=f",
            "http.response.status_code": 201,
            "user_agent.original": "tests/1.0",
        }
        assert span.end >= span.start == int(harness.clock.now().timestamp() * 1e6) * 1000
        assert len(span.id) == 8 and not span.failed


async def test_other_clients_do_not_decide(harness: ServerHarness) -> None:
    """Their requests begin traces of their own, which the configured rate samples."""
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    tracer = traced(harness, 0)
    await harness.get(MAPS, token=LIMITED_TOKEN, headers=headers)
    impersonated = {"impersonate-user": "alice", "impersonate-group": "system:masters"}
    await harness.get(MAPS, headers={**headers, **impersonated})
    await harness.get(MAPS)
    assert len(tracer) == 0
    tracer = traced(harness, 1_000_000)
    await harness.get(f"{MAPS}/m", token=LIMITED_TOKEN, headers=headers)
    span = only(tracer)
    assert span.trace.hex() != TRACE and span.parent == b"" and len(span.trace) == 16
    assert span.link == (bytes.fromhex(TRACE), bytes.fromhex(PARENT))
    assert span.name == "GET /api/v1/namespaces/{:namespace}/configmaps/{:name}"
    assert span.attributes["http.response.status_code"] == 403


async def test_a_rate_samples_a_part(harness: ServerHarness) -> None:
    tracer = traced(harness, 300_000)
    for _ in range(400):
        await harness.get("/version")
    assert 60 < len(tracer) < 180
    assert {(span.name, span.link) for span in tracer.take(400)} == {("GET", None)}


@pytest.mark.parametrize(
    "header", ["nonsense", f"00-{TRACE}", f"ff-{TRACE}-{PARENT}-01", f"00-{'0' * 32}-{PARENT}-01", "x" * 5000]
)
async def test_invalid_headers_are_ignored(harness: ServerHarness, header: str) -> None:
    tracer = traced(harness, 1_000_000)
    assert (await harness.get("/version", headers={"traceparent": header})).status == 200
    assert only(tracer).link is None


async def test_spans_that_nobody_takes_are_dropped(harness: ServerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("setpoint.apiserver.tracing._MAX_SPANS", 3)
    tracer = traced(harness, 1_000_000)
    for _ in range(5):
        await harness.get("/version")
    assert (len(tracer), tracer.dropped) == (3, 2)


@pytest.mark.parametrize(
    ("text", "config"),
    [
        (HEAD, TracingConfig("localhost:4317", 0)),
        (HEAD + "endpoint: 127.0.0.1:1\nsamplingRatePerMillion: 1000000", TracingConfig("127.0.0.1:1", 1_000_000)),
        (HEAD.replace("v1\n", "v1beta1\n") + "endpoint: unix:///a/b", TracingConfig("unix:///a/b", 0)),
    ],
)
def test_configurations(text: str, config: TracingConfig) -> None:
    assert read_tracing(text.encode()) == config


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "Object 'Kind' is missing"),
        (HEAD.replace("Tracing", "Audit"), 'no kind "AuditConfiguration" is registered'),
        (HEAD + "rate: 1", 'unknown field "rate"'),
        (HEAD + "samplingRatePerMillion: -1", "sampling rate must be positive"),
        (HEAD + "samplingRatePerMillion: 1000001", "must be less than or equal to one million"),
        (HEAD + "endpoint: https://a:4317", "unsupported scheme: https.  Options are none, dns, unix"),
    ],
)
def test_invalid_configurations(text: str, problem: str) -> None:
    with pytest.raises(FileProblem) as found:
        read_tracing(text.encode())
    assert problem in str(found.value)
