"""Spans of requests, for a collector of OpenTelemetry (`--tracing-config-file`).

As upstream, a request is traced if its client says so in `traceparent`, and is in a privileged group; the span is then
a child of the client's. Other requests start a trace of their own, of which the configuration samples a part, with a
link to the client's span if it sent one. `cluster/trace_export.py` sends the spans.
"""

from __future__ import annotations

import re
from collections import deque
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import urlsplit

from setpoint.apiserver.config_files import NUMBER, TEXT, Explicit, FileProblem, document, read_config
from setpoint.apiserver.filters.authorize import MASTERS
from setpoint.apiserver.request_context import RequestContext, Target
from setpoint.meta.clock import Ids
from setpoint.meta.field import Errors, aggregate_message, invalid

DEFAULT_ENDPOINT = "localhost:4317"
_CONFIGURATION = document("v1.TracingConfiguration", endpoint=Explicit(TEXT), samplingRatePerMillion=Explicit(NUMBER))
_KINDS = {
    (f"apiserver.config.k8s.io/{version}", "TracingConfiguration"): _CONFIGURATION
    for version in ("v1", "v1beta1", "v1alpha1")
}
_MILLION = 1_000_000
_SCHEMES = ("dns", "unix", "unix-abstract")
_PRIVILEGED = frozenset({MASTERS, "system:monitoring"})
_PARENT = re.compile("[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_MAX_SPANS = 2048
"""Number of spans that wait to be sent; more are dropped."""
_MAX_TEXT = 1024


class TracingConfig(NamedTuple):
    endpoint: str
    """Address of the collector: `host:port`, `dns://authority/host:port` or `unix:///path`."""
    rate: int
    """How many of a million requests are sampled whose clients do not decide."""


def read_tracing(data: bytes) -> TracingConfig:
    """Read a TracingConfiguration. Raises FileProblem."""
    found = read_config(data, _KINDS)
    endpoint, rate = found.get("endpoint"), found.get("samplingRatePerMillion")
    errs: Errors = []
    if rate is not None and rate < 0:
        errs.append(invalid("samplingRatePerMillion", rate, "sampling rate must be positive"))
    if rate is not None and rate > _MILLION:
        problem = "sampling rate per million must be less than or equal to one million"
        errs.append(invalid("samplingRatePerMillion", rate, problem))
    if endpoint is not None:
        given = endpoint if "//" in endpoint else f"dns://{endpoint}"
        scheme = urlsplit(given).scheme
        if scheme not in _SCHEMES:
            options = "Options are none, dns, unix, or unix-abstract."
            link = "See https://github.com/grpc/grpc/blob/master/doc/naming.md"
            errs.append(invalid("endpoint", given, f"unsupported scheme: {scheme}.  {options}  {link}"))
    if errs:
        raise FileProblem(f"failed to validate tracing configuration: {aggregate_message(errs)}")
    return TracingConfig(endpoint or DEFAULT_ENDPOINT, rate or 0)


class Span(NamedTuple):
    """The span of one request."""

    trace: bytes
    id: bytes
    parent: bytes
    """The span of the client; empty if this one begins a trace."""
    link: tuple[bytes, bytes] | None
    """Trace and span of a client that does not decide; None if there is none."""
    name: str
    start: int
    """Nanoseconds since the epoch."""
    end: int
    attributes: dict[str, str | int]
    failed: bool
    """Whether the server is to blame for the answer."""


class Tracer:
    """Keeps the spans of sampled requests until they are taken."""

    def __init__(self, rate: int, ids: Ids) -> None:
        self._rate = rate
        self._ids = ids
        self._spans: deque[Span] = deque()
        self.dropped = 0
        """Number of spans that were dropped because too many waited."""

    def __len__(self) -> int:
        """Return the number of spans that wait."""
        return len(self._spans)

    def take(self, count: int) -> list[Span]:
        """Remove and return the oldest spans, at most `count`."""
        return [self._spans.popleft() for _ in range(min(count, len(self._spans)))]

    def record(self, ctx: RequestContext, status: int, seconds: float) -> None:
        """Keep the span of an answered request, if it is sampled. `seconds` is the time until the answer."""
        client = _client_span(ctx)
        parent = client if client is not None and _is_privileged(ctx) else None
        if parent is not None:
            if not parent[2]:
                return
        elif self._ids.below(_MILLION) >= self._rate:
            return
        if len(self._spans) >= _MAX_SPANS:
            self.dropped += 1
            return
        new = sha256(self._ids.uid().encode()).digest()
        start = int(ctx.now.timestamp() * 1e6) * 1000
        headers, target = ctx.request.headers, ctx.request.path + (f"?{ctx.request.query}" if ctx.request.query else "")
        attributes: dict[str, str | int] = {
            "http.request.method": ctx.request.method,
            "http.target": target[:_MAX_TEXT],
            "http.response.status_code": status,
            "user_agent.original": headers.get("user-agent", "")[:_MAX_TEXT],
            "audit-id": headers.get("audit-id", "")[:64],
        }
        self._spans.append(
            Span(
                parent[0] if parent is not None else new[:16],
                new[16:24],
                parent[1] if parent is not None else b"",
                (client[0], client[1]) if client is not None and parent is None else None,
                _name(ctx.request.method, ctx.target),
                start,
                start + int(seconds * 1e9),
                {name: value for name, value in attributes.items() if value != ""},
                status >= 500,
            )
        )


def _client_span(ctx: RequestContext) -> tuple[bytes, bytes, bool] | None:
    """Return trace, span and sampling decision of the client; None if it sent none."""
    header = ctx.request.headers.get("traceparent")
    found = _PARENT.fullmatch(header) if header else None
    if found is None or header is None or header.startswith("ff") or not int(found[1], 16) or not int(found[2], 16):
        return None
    return bytes.fromhex(found[1]), bytes.fromhex(found[2]), bool(int(found[3], 16) & 1)


def _is_privileged(ctx: RequestContext) -> bool:
    return not ctx.impersonator and not _PRIVILEGED.isdisjoint(ctx.user.groups)


def _name(method: str, target: Target) -> str:
    """Return the name of a span: the method, and the path of a resource with placeholders for names."""
    if not target.resource:
        return method
    group = f"/apis/{target.group}" if target.group else "/api"
    namespace = "/namespaces/{:namespace}" if target.namespace else ""
    name, subresource = "/{:name}" if target.name else "", f"/{target.subresource}" if target.subresource else ""
    return f"{method} {group}/{target.version}{namespace}/{target.resource}{name}{subresource}"
