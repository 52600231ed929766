"""Spans are sent to a collector by OTLP over gRPC; a collector that is away does no harm."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from setpoint.client import Client
from setpoint.client.https import connect
from setpoint.client.kubeconfig import Kubeconfig
from setpoint.cluster import trace_export
from setpoint.cluster.apiserver import apiserver
from setpoint.cluster.config import ApiServerConfig, ConfigError
from setpoint.cluster.trace_export import EXPORT, MESSAGES, trace_exporter
from setpoint.system import RandomIds, SystemClock
from setpoint.wire.proto_messages import message_classes

_CLASSES = message_classes("collector", MESSAGES)


class Collector:
    """A collector that keeps what it gets."""

    def __init__(self) -> None:
        self.requests: list[Any] = []

    def _export(self, data: bytes, context: Any) -> bytes:
        self.requests.append(_CLASSES["ExportTraceServiceRequest"].FromString(data))
        return b""

    @contextmanager
    def serving(self, port: int = 0) -> Iterator[int]:
        server = grpc.server(ThreadPoolExecutor(2))
        _, service, method = EXPORT.split("/")
        methods = {method: grpc.unary_unary_rpc_method_handler(self._export)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
        port = server.add_insecure_port(f"127.0.0.1:{port}")
        server.start()
        try:
            yield port
        finally:
            server.stop(None).wait()

    def spans(self) -> list[Any]:
        return [span for each in self.requests for found in each.resource_spans for span in found.scope_spans[0].spans]


def configured(path: Path, port: int) -> str:
    text = f"apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: 127.0.0.1:{port}\n"
    path.write_text(text + "samplingRatePerMillion: 1000000\n")
    return str(path)


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_export, "INTERVAL", 0.02)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def read_until_traced(client: Client, collector: Collector, path: str) -> Any:
    async with asyncio.timeout(20):
        while True:
            await client.sender.json("GET", path)
            for span in collector.spans():
                if path in [each.value.string_value for each in span.attributes]:
                    return span
            await asyncio.sleep(0.02)


@pytest.mark.usefixtures("quickly")
async def test_a_server_sends_its_spans(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    port, collector = free_port(), Collector()
    file = configured(tmp_path / "tracing.yaml", port)
    config = ApiServerConfig(tmp_path / "data", port=0, store="memory", tracing_config_file=file)
    async with apiserver(config) as server:
        client = connect(Kubeconfig.load([server.kubeconfig]).access(), SystemClock(), user_agent="traced")
        async with asyncio.timeout(20):
            while "spans cannot be sent" not in caplog.text:
                await client.sender.json("GET", "/version")
                await asyncio.sleep(0.01)
        with collector.serving(port):
            span = await read_until_traced(client, collector, "/api/v1/namespaces/default")
            assert span.name == "GET /api/v1/namespaces/{:namespace}/namespaces/{:name}"
            assert span.kind == 2 and 0 < span.start_time_unix_nano <= span.end_time_unix_nano
            numbers = {each.key: each.value.int_value for each in span.attributes if each.value.int_value}
            assert numbers == {"http.response.status_code": 200}
            resource = collector.requests[0].resource_spans[0].resource
            named = {each.key: each.value.string_value for each in resource.attributes}
            assert named["service.name"] == "apiserver" and named["service.instance.id"].startswith("apiserver-")
        await client.close()
    assert caplog.text.count("spans cannot be sent") == 1 and "are sent to http://127.0.0.1" in caplog.text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "tracing.yaml cannot be read: No such file"),
        ("kind: Other", "tracing.yaml: "),
        ("endpoint: unix-abstract:///a", "abstract sockets are not supported: unix-abstract:///a"),
        ("endpoint: localhost:port", "the endpoint localhost:port has no valid port"),
    ],
)
def test_invalid_configurations_stop_the_server(tmp_path: Path, text: str | None, problem: str) -> None:
    path = tmp_path / "tracing.yaml"
    if text is not None:
        path.write_text(f"apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n{text}\n")
    with pytest.raises(ConfigError) as found:
        trace_exporter(str(path), "a", SystemClock(), RandomIds())
    assert problem in str(found.value) and "--tracing-config-file" in str(found.value)


@pytest.mark.parametrize(
    ("endpoint", "target"),
    [
        ("collector:4317", "http://collector:4317"),
        ("dns://collector:4317", "http://collector:4317"),
        ("dns://8.8.8.8/collector:4317", "http://collector:4317"),
        ("dns:///[::1]:4317", "http://[::1]:4317"),
        ("unix:///run/collector.sock", "unix:///run/collector.sock"),
        ("collector", "http://collector:443"),
    ],
)
def test_endpoints(endpoint: str, target: str) -> None:
    assert trace_export._target(endpoint) == target
