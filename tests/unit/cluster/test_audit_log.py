"""The audit log: from flags to log file and webhook."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
import pytest

from setpoint.apiserver.request_context import RequestContext, parse_path
from setpoint.cli.flags import Flags
from setpoint.cli.server_options import NAME, SERVER_FLAGS, server_config
from setpoint.cluster.audit_log import AuditLog, audit_log
from setpoint.cluster.config import ApiServerConfig, AuditConfig, ConfigError
from setpoint.kinds.strategy import UserInfo
from setpoint.system import RandomIds, SystemClock
from setpoint.wire.message import Peer, Request, Response


def _config(*words: str) -> ApiServerConfig:
    flags = Flags((NAME, *SERVER_FLAGS))
    config = server_config(flags.parse(words).values, Path("unused"))
    config.check()
    return config


def _policy(path: Path, level: str = "Metadata") -> str:
    path.write_text(f"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: {level}\n")
    return str(path)


async def _request(log: AuditLog, name: str) -> None:
    request = Request("GET", f"/api/v1/namespaces/{name}", "", {"audit-id": name}, b"", Peer("127.0.0.1"))
    target = parse_path(request.path)
    ctx = RequestContext(request, target, {}, "get", UserInfo(), SystemClock().now())
    record = await log.auditor.received(ctx, UserInfo("jane"))
    assert record is not None
    await record.respond(ctx, Response(200, b"{}"))


async def _running(log: AuditLog, *names: str) -> None:
    running = asyncio.ensure_future(log.run())
    await asyncio.sleep(0)
    for name in names:
        await _request(log, name)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


def _events(text: str) -> list[tuple[str, str]]:
    events = [orjson.loads(line) for line in text.splitlines()]
    return [(event["auditID"], event["stage"]) for event in events]


_BOTH = [("a", "RequestReceived"), ("a", "ResponseComplete")]


def test_flags_have_upstreams_names_and_defaults() -> None:
    config = _config().audit
    assert asdict(config) == asdict(AuditConfig())
    assert (config.enabled, config.log.mode, config.webhook.mode, config.webhook.max_size) == (
        False,
        "blocking",
        "batch",
        400,
    )
    given = _config(
        "--audit-policy-file=p",
        "--audit-log-path=-",
        "--audit-log-mode=batch",
        "--audit-log-batch-buffer-size=7",
        "--audit-log-truncate-enabled",
        "--audit-webhook-config-file=w",
        "--audit-webhook-batch-max-wait=2s",
        "--audit-webhook-batch-throttle-qps=1.5",
        "--audit-webhook-initial-backoff=3s",
    ).audit
    assert given.enabled
    assert (given.log.mode, given.log.buffer_size, given.log.truncate_enabled) == ("batch", 7, True)
    assert (given.webhook.max_wait, given.webhook.throttle_qps, given.webhook_initial_backoff) == (2.0, 1.5, 3.0)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--audit-log-maxage=-1"], "--audit-log-maxage -1 can't be a negative number"),
        (["--audit-log-format=xml"], 'invalid audit log format xml, allowed formats are "legacy,json"'),
        (
            ["--audit-log-mode=later"],
            'invalid audit log mode later, allowed modes are "batch,blocking,blocking-strict"',
        ),
        (
            ["--audit-log-mode=batch", "--audit-log-batch-buffer-size=0"],
            "invalid audit batch log buffer size 0, must be a positive number",
        ),
        (
            ["--audit-webhook-batch-throttle-burst=-1"],
            "invalid audit batch webhook throttle burst -1, must be a positive number",
        ),
        (
            ["--audit-log-truncate-max-batch-size=5"],
            "invalid audit truncate log max batch size 5, must be greater than max event size (102400)",
        ),
    ],
)
def test_invalid_flags_are_rejected(words: list[str], why: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        _config("--audit-log-path=x", "--audit-webhook-config-file=y", *words)
    assert str(refusal.value) == why


def test_flags_of_an_unused_backend_are_not_checked() -> None:
    _config("--audit-log-maxage=-1", "--audit-webhook-mode=later")


async def test_events_are_in_the_file_before_the_answer(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "audit.log"
    log = AuditLog(AuditConfig(_policy(tmp_path / "policy"), log_path=str(path)), SystemClock(), RandomIds())
    await _request(log, "a")
    assert _events(path.read_text()) == _BOTH
    assert path.stat().st_mode & 0o777 == 0o600
    await _running(log)


async def test_buffers_are_flushed_at_the_end(tmp_path: Path) -> None:
    config = AuditConfig(_policy(tmp_path / "policy"), log_path=str(tmp_path / "audit.log"))
    config.log.mode = "batch"
    await _running(AuditLog(config, SystemClock(), RandomIds()), "a")
    assert _events((tmp_path / "audit.log").read_text()) == _BOTH


async def test_the_log_can_be_the_standard_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = AuditConfig(_policy(tmp_path / "policy"), log_path="-", log_format="legacy")
    await _running(AuditLog(config, SystemClock(), RandomIds()), "a")
    assert capfd.readouterr().out.count("AUDIT: id=") == 2


async def test_a_webhook_gets_lists_of_events(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bodies: list[Any] = []
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                heads.append(head)
                length = next(int(line.split(":")[1]) for line in head.splitlines() if "content-length" in line)
                bodies.append(orjson.loads(await reader.readexactly(length)))
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    kubeconfig = tmp_path / "webhook.yaml"
    kubeconfig.write_text(
        f"clusters: [{{name: a, cluster: {{server: 'http://127.0.0.1:{port}/events'}}}}]\n"
        "users: [{name: me, user: {token: webhook-token}}]\n"
        "contexts: [{name: c, context: {cluster: a, user: me}}]\ncurrent-context: c\n"
    )
    config = AuditConfig(_policy(tmp_path / "policy"), webhook_config_file=str(kubeconfig))
    caplog.set_level(logging.DEBUG)
    await _running(AuditLog(config, SystemClock(), RandomIds()), "a", "b")
    server.close()
    assert [len(body["items"]) for body in bodies] == [4]
    assert heads[0].startswith("post /events http/1.1")
    assert "authorization: bearer webhook-token" in heads[0]
    assert "webhook-token" not in caplog.text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"log_path": "a.log"}, "No audit policy file provided, no events will be recorded for log backend"),
        ({"webhook_config_file": "w"}, "No audit policy file provided, no events will be recorded for webhook backend"),
        ({}, "--audit-policy-file has no effect: set --audit-log-path or --audit-webhook-config-file to record events"),
    ],
)
def test_flags_without_effect_are_logged(
    given: dict[str, Any], message: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = AuditConfig("" if given else _policy(tmp_path / "policy", "Metadata"), **given)
    assert audit_log(config, SystemClock(), RandomIds()) is None
    assert caplog.messages == [message]
    with pytest.raises(ConfigError, match="loading audit policy file: failed to read"):
        audit_log(AuditConfig(str(tmp_path / "missing")), SystemClock(), RandomIds())


def test_invalid_files_are_rejected(tmp_path: Path) -> None:
    def refused(config: AuditConfig) -> str:
        with pytest.raises(ConfigError) as refusal:
            AuditLog(config, SystemClock(), RandomIds())
        return str(refusal.value)

    missing = tmp_path / "missing"
    assert refused(AuditConfig(str(missing), log_path="-")) == (
        f'loading audit policy file: failed to read file path "{missing}": open {missing}: no such file or directory'
    )
    bad = _policy(tmp_path / "bad", "All")
    assert refused(AuditConfig(bad, log_path="-")) == (
        'loading audit policy file: rules[0].level: Unsupported value: "All": supported values: "None", "Metadata", '
        f'"Request", "RequestResponse": from file {bad}'
    )
    good = _policy(tmp_path / "good")
    assert refused(AuditConfig(good, webhook_config_file=str(missing))).startswith("initializing audit webhook: ")
    assert refused(AuditConfig(good, log_path=str(tmp_path))).startswith("ensureLogFile: open ")
