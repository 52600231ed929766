"""An audit log from its flags: policy, file and webhook, and whatever lies in between."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from pathlib import Path

from setpoint.apiserver.audit.auditor import Auditor, Sink
from setpoint.apiserver.audit.buffered import BatchOptions, Buffered
from setpoint.apiserver.audit.log_file import LogFile, RotatingFile
from setpoint.apiserver.audit.policy import Policy, PolicyError, read_policy
from setpoint.apiserver.audit.sinks import Both, Failures, IgnoringFailures, LogSink, Truncating
from setpoint.apiserver.audit.webhook import Post, PostFailed, WebhookSink
from setpoint.apiserver.far_server import FarServerProblem
from setpoint.apiserver.webhook_client import refusal_text
from setpoint.cluster.audit_config import AuditConfig, BackendConfig
from setpoint.cluster.config import ConfigError
from setpoint.cluster.far_servers import NetworkServers
from setpoint.cluster.webhook_kubeconfig import webhook_endpoint
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.exposition import Family

log = logging.getLogger("setpoint.cluster")

_MEGABYTE = 1024 * 1024
_WEBHOOK_TIMEOUT = 30.0
_LAST_WORDS = 10.0
"""So long the end of the server waits for what is still in the buffers."""


def audit_log(config: AuditConfig, clock: Clock, ids: Ids) -> AuditLog | None:
    """None, and a warning, where the flags that are given come to nothing. Raises ConfigError."""
    if config.enabled:
        return AuditLog(config, clock, ids)
    if config.policy_file:
        _policy(config.policy_file)
        log.warning("there is an audit policy, but neither --audit-log-path nor --audit-webhook-config-file")
    for name, at in (("log", config.log_path), ("webhook", config.webhook_config_file)):
        if at:
            log.warning("No audit policy file provided, no events will be recorded for %s backend", name)
    return None


class AuditLog:
    """`auditor` is for the server; `run` must be running while it serves, and until all has been told."""

    def __init__(self, config: AuditConfig, clock: Clock, ids: Ids) -> None:
        """Raises ConfigError."""
        self._clock, self._ids = clock, ids
        self._failures = Failures()
        self._running: list[Callable[[], Awaitable[None]]] = []
        self._buffers: list[Buffered] = []
        self._close: list[Callable[[], object]] = []
        policy = _policy(config.policy_file)
        sinks = []
        if config.log_path:
            sinks.append(self._log(config))
        if config.webhook_config_file:
            sinks.append(self._webhook(config))
        self.auditor = Auditor(policy, sinks[0] if len(sinks) == 1 else Both(*sinks), clock, ids)

    def families(self) -> Iterable[Family]:
        yield from self.auditor.families()
        yield from self._failures.families()

    async def run(self) -> None:
        """Until cancelled; what is in the buffers then still gets some time to go out."""
        buffers = self._buffers
        tasks = [asyncio.ensure_future(run()) for run in (*self._running, *(buffer.run for buffer in buffers))]
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            for task in tasks:
                task.cancel()
            # Those that had not begun yet end without a word.
            tasks += [asyncio.ensure_future(buffer.finish()) for buffer in buffers]
            if tasks:
                _, late = await asyncio.wait(tasks, timeout=_LAST_WORDS)
                for task in late:
                    task.cancel()
            for close in self._close:
                close()

    # -- the backends -------------------------------------------------------------------------------------------------

    def _log(self, config: AuditConfig) -> Sink:
        sink = LogSink(self._lines(config), config.log_format == "legacy", self._failures)
        return self._truncated(config.log, self._in_mode(config.log, sink, concurrent=False))

    def _lines(self, config: AuditConfig) -> LogFile | RotatingFile:
        if config.log_path == "-":
            sys.stdout.flush()
            return LogFile(sys.stdout.fileno())
        try:
            file = RotatingFile(
                Path(config.log_path), self._clock,
                max_bytes=config.log_maxsize * _MEGABYTE,
                max_age=timedelta(days=config.log_maxage) if config.log_maxage else None,
                max_backups=config.log_maxbackup,
                compress=config.log_compress,
            )  # fmt: skip
        except OSError as error:
            raise ConfigError(f"ensureLogFile: open {config.log_path}: {(error.strerror or '').lower()}") from None
        self._close.append(file.close)
        if config.log_maxsize:
            self._running.append(lambda: _tidying(file))
        return file

    def _webhook(self, config: AuditConfig) -> Sink:
        post = _post(config.webhook_config_file, self._clock)
        sink = WebhookSink(post, config.webhook_initial_backoff, self._clock, self._ids, self._failures)
        return self._truncated(config.webhook, self._in_mode(config.webhook, sink, concurrent=True))

    def _in_mode(self, config: BackendConfig, sink: Sink, *, concurrent: bool) -> Sink:
        if config.mode == "blocking-strict":
            return sink
        if config.mode == "blocking":
            return IgnoringFailures(sink)
        options = BatchOptions(
            config.buffer_size, config.max_size, config.max_wait, config.throttle_enable, config.throttle_qps,
            config.throttle_burst, concurrent,
        )  # fmt: skip
        buffered = Buffered(sink, options, self._clock, self._failures)
        self._buffers.append(buffered)
        return buffered

    def _truncated(self, config: BackendConfig, sink: Sink) -> Sink:
        if not config.truncate_enabled:
            return sink
        return Truncating(sink, config.truncate_max_event_size, config.truncate_max_batch_size, self._failures)


def _post(path: str, clock: Clock) -> Post:
    """Raises ConfigError."""
    endpoint, servers = webhook_endpoint(path, "initializing audit webhook"), NetworkServers(clock)

    async def post(body: bytes) -> None:
        try:
            response = await endpoint.post(servers, body, _WEBHOOK_TIMEOUT)
        except FarServerProblem as problem:
            raise PostFailed(str(problem)) from None
        if not 200 <= response.status < 300:
            raise PostFailed(refusal_text(response))

    return post


async def _tidying(file: RotatingFile) -> None:
    """Once at the start and after each time that the file was moved aside."""
    due = asyncio.Event()
    due.set()
    file.on_rotated = due.set
    while True:
        await due.wait()
        due.clear()
        try:
            # To compress a hundred megabytes takes seconds.
            await asyncio.to_thread(file.tidy)
        except OSError as error:
            log.error("audit log: cannot tidy up old files: %s", error)


def _policy(path: str) -> Policy:
    try:
        return read_policy(Path(path).read_bytes())
    except OSError as error:
        why = (error.strerror or "").lower()
        raise ConfigError(f'loading audit policy file: failed to read file path "{path}": open {path}: {why}') from None
    except PolicyError as error:
        raise ConfigError(f"loading audit policy file: {error}: from file {path}") from None
