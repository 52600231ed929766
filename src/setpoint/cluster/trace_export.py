"""Sends the spans of requests to a collector of OpenTelemetry, by OTLP over gRPC, as upstream without TLS.

Spans are sent in batches. What cannot be sent is dropped: a collector that is not there costs the server nothing but a
log line.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from setpoint.apiserver.config_files import FileProblem
from setpoint.apiserver.tracing import Span, Tracer, TracingConfig, read_tracing
from setpoint.apiserver.version import VERSION
from setpoint.cluster.config import ConfigError
from setpoint.meta.clock import Clock, Ids
from setpoint.wire.grpc import Channel, GrpcError
from setpoint.wire.proto_messages import message_classes

log = logging.getLogger("setpoint.cluster")

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
INTERVAL = 1.0
"""Seconds between two batches."""
_BATCH = 512
_TIMEOUT = 10.0
_SERVICE = "apiserver"
_SERVER, _ERROR = 2, 2
MESSAGES = """
ExportTraceServiceRequest: resource_spans 1 ResourceSpans*
ResourceSpans: resource 1 Resource, scope_spans 2 ScopeSpans*
Resource: attributes 1 KeyValue*
ScopeSpans: scope 1 InstrumentationScope, spans 2 Span*
InstrumentationScope: name 1 string, version 2 string
Span: trace_id 1 bytes, span_id 2 bytes, parent_span_id 4 bytes, name 5 string, kind 6 int32, \\
  start_time_unix_nano 7 fixed64, end_time_unix_nano 8 fixed64, attributes 9 KeyValue*, links 13 Link*, status 15 Status
Link: trace_id 1 bytes, span_id 2 bytes
Status: code 3 int32
KeyValue: key 1 string, value 2 AnyValue
AnyValue: string_value 1 string, int_value 3 int64
"""
"""The parts of OTLP's messages that are sent."""


def trace_exporter(path: str, instance: str, clock: Clock, ids: Ids) -> TraceExporter:
    """Return the exporter that a file configures. Raises ConfigError."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"--tracing-config-file: {path} cannot be read: {error.strerror or error}") from None
    try:
        config = read_tracing(data)
    except FileProblem as error:
        raise ConfigError(f"--tracing-config-file {path}: {error}") from None
    return TraceExporter(config, instance, clock, ids)


class TraceExporter:
    """`tracer` collects spans, and `run` sends them."""

    def __init__(self, config: TracingConfig, instance: str, clock: Clock, ids: Ids) -> None:
        """Raises ConfigError."""
        self.tracer = Tracer(config.rate, ids)
        self.target = _target(config.endpoint)
        self._instance = instance
        self._clock = clock
        self._messages = message_classes("setpoint.otlp", MESSAGES)
        self._channel: Channel | None = None
        self._failed = False

    async def run(self) -> None:
        """Send spans until cancelled."""
        try:
            while True:
                await self._clock.sleep(INTERVAL)
                while len(self.tracer):
                    await self._send(self.tracer.take(_BATCH))
        finally:
            if self._channel is not None:
                self._channel.close()

    async def _send(self, spans: list[Span]) -> None:
        try:
            if self._channel is None or self._channel.failure is not None:
                self._channel = await Channel.connect(self.target, timeout=_TIMEOUT)
            await self._channel.unary(EXPORT, self._request(spans).SerializeToString(), timeout=_TIMEOUT)
        except GrpcError as error:
            if not self._failed:
                log.warning("spans cannot be sent to %s, and are dropped: %s", self.target, error)
            self._failed = True
        else:
            if self._failed:
                log.info("spans are sent to %s again", self.target)
            self._failed = False

    def _request(self, spans: list[Span]) -> Any:
        request = self._messages["ExportTraceServiceRequest"]()
        found = request.resource_spans.add()
        for name, value in (("service.name", _SERVICE), ("service.instance.id", self._instance)):
            _set(found.resource.attributes.add(), name, value)
        scope = found.scope_spans.add()
        scope.scope.name, scope.scope.version = "setpoint", VERSION["gitVersion"]
        for span in spans:
            added = scope.spans.add(
                trace_id=span.trace,
                span_id=span.id,
                parent_span_id=span.parent,
                name=span.name,
                kind=_SERVER,
                start_time_unix_nano=span.start,
                end_time_unix_nano=span.end,
            )
            for name, attribute in span.attributes.items():
                _set(added.attributes.add(), name, attribute)
            if span.link is not None:
                added.links.add(trace_id=span.link[0], span_id=span.link[1])
            if span.failed:
                added.status.code = _ERROR
        return request


def _set(added: Any, name: str, value: str | int) -> None:
    added.key = name
    if isinstance(value, int):
        added.value.int_value = value
    else:
        added.value.string_value = value


def _target(endpoint: str) -> str:
    """Return the URL for a channel. Raises ConfigError."""
    address = urlsplit(endpoint if "//" in endpoint else f"dns://{endpoint}")
    if address.scheme == "unix":
        return f"unix://{address.path}"
    if address.scheme == "unix-abstract":
        raise ConfigError(f"--tracing-config-file: abstract sockets are not supported: {endpoint}")
    # dns://host:port, or dns://authority/host:port, of which the authority, a DNS server, is not used.
    host = address.path.lstrip("/") or address.netloc
    try:
        port = urlsplit(f"//{host}").port
    except ValueError:
        port = -1
    if port == -1 or not host:
        raise ConfigError(f"--tracing-config-file: the endpoint {endpoint} has no valid port")
    return f"http://{host}" if port else f"http://{host}:443"
