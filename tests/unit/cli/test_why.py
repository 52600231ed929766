"""`setpoint why` as a command: its errors, its forms, and the plugin of kubectl."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest
from command_line import Result, surroundings

from setpoint.cli.main import run_within
from setpoint.cli.why import kubectl_plugin
from setpoint.client import Client
from setpoint.client.kubeconfig import Access
from setpoint.client.transport import Headers, Reply
from setpoint.system import SystemClock
from setpoint.testing import VirtualClock, run_virtual
from setpoint.view.why.answer import Answer, Step

PLAIN = "404 page not found\n"


class OtherServer:
    """A server that answers every question in the same way."""

    def __init__(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.status, self.body, self.kind = status, body, kind
        self.queries: list[str] = []

    async def request(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> Reply:
        self.queries.append(query)
        return Reply(self.status, [("content-type", self.kind)], self.body)

    async def close(self) -> None:
        pass


def asked(server: OtherServer, *words: str) -> Result:
    result: list[Result] = []

    async def main() -> None:
        clock = VirtualClock()

        def connect(access: Access, _: float) -> Client:
            return Client(server, clock, user_agent="cli")  # type: ignore[arg-type]

        io, finish = surroundings(Path("/nowhere"), clock, "", {}, connect)
        result.append(finish(await run_within(["--server", "https://local", "why", *words], io)))

    run_virtual(main)
    return result[0]


def test_a_cluster_that_is_not_setpoint() -> None:
    result = asked(OtherServer(404, PLAIN.encode(), "text/plain"), "--event", "x")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith(
        "error: the server has no record of causes: https://local is not a Setpoint API server"
    )


def test_an_object_that_is_not_known() -> None:
    status = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found", "details": {"name": "x"}}
    server = OtherServer(404, json.dumps(status).encode())
    assert asked(server, "--event", "x").err == (
        "error: no version of event/x is known, and none was deleted in the retained history\n"
    )
    # It may have been created since.
    assert asked(server, "--event", "x", "--at=-5m").err == "error: no version of event/x from -5m or before is known\n"


def test_an_answer_of_another_version() -> None:
    result = asked(OtherServer(200, b'{"version": 99}'), "--event", "x")
    assert (result.code, result.err) == (
        1,
        "error: the answer of the server cannot be read: the server answers in version 99, this program reads 1\n",
    )


def test_control_characters_in_answers_are_escaped() -> None:
    step = Step(7, 1, "eve\x1b[2J", "pod/x", "default", "changed")
    answer = Answer({}, 2, "A sentence.\x1b[2J", [step])
    result = asked(OtherServer(200, json.dumps(answer.to_json()).encode()), "--event", "x")
    assert "\x1b" not in result.out
    assert "A sentence." in result.out


@pytest.mark.parametrize(
    ("words", "query"),
    [
        (["--event", "x"], "resource=events&namespace=default&name=x"),
        (["--event", "x", "--at", "-5m", "--since", "1h"], "resource=events&namespace=default&name=x&at=-5m&since=1h"),
        (["not", "--event", "x", "--all"], "resource=events&namespace=default&name=x&all=true&not=true"),
        (["--event", "x", "--depth", "3", "--not"], "resource=events&namespace=default&name=x&depth=3&not=true"),
    ],
)
def test_flags_are_sent(words: list[str], query: str) -> None:
    server = OtherServer(200, json.dumps(Answer({}, 0, "Yes.").to_json()).encode())
    assert asked(server, *words).out == "Yes.\n"
    assert server.queries[-1] == query


class Collector(BaseHTTPRequestHandler):
    """An OpenTelemetry collector that keeps what it receives, and refuses what is sent to another path."""

    received: ClassVar[list[tuple[str, str | None, dict[str, Any]]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.received.append((self.path, self.headers["content-type"], json.loads(body)))
        self.send_response(200 if self.path == "/v1/traces" else 404)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def exported(url: str, chain: list[Step]) -> Result:
    answer = Answer({}, 2, "Yes.", chain)
    server = OtherServer(200, json.dumps(answer.to_json()).encode())
    result: list[Result] = []

    async def main() -> None:
        clock = SystemClock()

        def connect(access: Access, _: float) -> Client:
            return Client(server, clock, user_agent="cli")  # type: ignore[arg-type]

        io, finish = surroundings(Path("/nowhere"), clock, "", {}, connect)
        words = ["--server", "https://local", "why", "--event", "x", "--otlp", url]
        result.append(finish(await run_within(words, io)))

    asyncio.run(main())
    return result[0]


def test_an_answer_is_sent_to_a_collector() -> None:
    step = Step(7, 1, "alice", "pod/x", "default", "changed")
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        result = exported(url, [step])
        (path, kind, body), *_ = Collector.received
        trace = body["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"]
        assert (result.code, result.out) == (0, f"1 span of trace {trace} exported\n")
        assert (path, kind) == ("/v1/traces", "application/json")
        refused = exported(f"{url}/elsewhere", [step])
        assert refused.err == f"error: the collector at {url}/elsewhere refused the trace with status 404\n"
        server.shutdown()
    assert exported(url, []).err == "error: there is nothing to export: the answer names no write\n"
    assert exported(url, [step]).err.startswith(f"error: the collector at {url} cannot be reached: ")
    for wrong in ("localhost:4318", "ftp://x", "http://x?y"):
        assert exported(wrong, [step]).err.startswith("error: --otlp must be a URL ")


class ChangingServer(OtherServer):
    """A server whose answer changes once, and which fails in the end."""

    async def request(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> Reply:
        number = len(self.queries)
        steps = [Step(7 if number < 2 else 8, 1, "alice", "pod/x", "default", "changed")]
        self.status = 200 if number < 4 else 403
        self.body = json.dumps(Answer({}, 0, f"Answer {number}.", steps).to_json()).encode()
        return await super().request(method, path, query, headers, body)


def test_the_answer_is_printed_again_when_it_changes() -> None:
    result = asked(ChangingServer(200, b""), "--event", "x", "--watch")
    assert result.code == 1
    assert [line for line in result.out.split("\n") if line[:1] in ("A", "-")] == ["Answer 0.", "---", "Answer 2."]


def test_the_plugin_uses_the_cluster_of_kubectl(tmp_path: Path) -> None:
    """Also where the directory has a cluster of its own."""
    (tmp_path / ".setpoint").mkdir()
    home = tmp_path / "home"
    (home / ".kube").mkdir(parents=True)
    cluster = {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}
    context = {"name": "x", "context": {"cluster": "c", "user": ""}}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [cluster],
        "contexts": [context],
        "current-context": "x",
    }
    (home / ".kube" / "config").write_text(json.dumps(config))
    code = "from setpoint.cli.why import kubectl_plugin; kubectl_plugin()"
    environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"} | {"HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", code, "--event", "x"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "shown"),
    [
        (["--help"], 0, "Usage:\n  kubectl why [not] (TYPE/NAME"),
        (["--help"], 0, "\n  kubectl why deployment/web spec.replicas\n"),
        (["--nonsense"], 1, "See 'kubectl why --help' for usage."),
        (["deployment"], 1, "name an object: `kubectl why deployment/web`, or `kubectl why deployment web`"),
    ],
)
def test_the_plugin_names_itself_as_it_was_called(
    words: list[str], code: int, shown: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        kubectl_plugin(words)
    out, err = capfd.readouterr()
    assert (ended.value.code, shown in out + err) == (code, True), out + err
    assert "setpoint why" not in out + err
