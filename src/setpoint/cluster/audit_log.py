"""The audit log that the flags configure: policy, log file, webhook, and the buffers between them."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

from setpoint.apiserver.audit.auditor import Auditor, Sink
from setpoint.apiserver.audit.log_file import LogFile, RotatingFile
from setpoint.apiserver.audit.policy import Policy, PolicyError, read_policy
from setpoint.apiserver.audit.sinks import (
    AuditErrors,
    BatchOptions,
    BufferedSink,
    IgnoreErrorsSink,
    LogSink,
    Post,
    PostFailed,
    TruncatingSink,
    UnionSink,
    WebhookSink,
)
from setpoint.apiserver.remote_servers import RemoteServerError
from setpoint.apiserver.webhook_client import error_message
from setpoint.cluster.config import AuditConfig, BackendConfig, ConfigError
from setpoint.cluster.network_servers import NetworkServers
from setpoint.cluster.webhook_kubeconfig import webhook_endpoint
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.exposition import Family
from setpoint.tasks import TaskRegistry

log = logging.getLogger("setpoint.cluster")

_MEGABYTE = 1024 * 1024
_WEBHOOK_TIMEOUT = 30.0
_FLUSH_TIMEOUT = 10.0
"""Seconds that the server waits, when it stops, until buffered events are written."""


def audit_log(config: AuditConfig, clock: Clock, ids: Ids) -> AuditLog | None:
    """Return the configured audit log. Return None, with a warning, if the flags do not enable it. Raises
    ConfigError."""
    if config.enabled:
        return AuditLog(config, clock, ids)
    if config.policy_file:
        _policy(config.policy_file)
        log.warning(
            "--audit-policy-file has no effect: set --audit-log-path or --audit-webhook-config-file to record events"
        )
    for name, path in (("log", config.log_path), ("webhook", config.webhook_config_file)):
        if path:
            log.warning("No audit policy file provided, no events will be recorded for %s backend", name)
    return None


class AuditLog:
    """The audit log of a server: `auditor` records requests, and `run` must run until the last event is written."""

    def __init__(self, config: AuditConfig, clock: Clock, ids: Ids) -> None:
        """Raises ConfigError."""
        self._clock, self._ids = clock, ids
        self._failures = AuditErrors()
        self._running: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._buffers: list[BufferedSink] = []
        self._close: list[Callable[[], object]] = []
        policy = _policy(config.policy_file)
        sinks = []
        if config.log_path:
            sinks.append(self._log_backend(config))
        if config.webhook_config_file:
            sinks.append(self._webhook_backend(config))
        self.auditor = Auditor(policy, sinks[0] if len(sinks) == 1 else UnionSink(*sinks), clock, ids)

    def families(self) -> Iterable[Family]:
        yield from self.auditor.families()
        yield from self._failures.families()

    async def run(self) -> None:
        """Write buffered events until cancelled, then flush the buffers for a limited time."""
        tasks = TaskRegistry()
        for run in (*self._running, *(buffer.run for buffer in self._buffers)):
            tasks.start(run())
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            tasks.cancel()
            # A task that is cancelled before it has begun does not flush its buffer.
            for buffer in self._buffers:
                tasks.start(buffer.finish())
            await tasks.stop(_FLUSH_TIMEOUT)
            for close in self._close:
                close()

    # -- the backends -------------------------------------------------------------------------------------------------

    def _log_backend(self, config: AuditConfig) -> Sink:
        sink = LogSink(self._log_file(config), config.log_format == "legacy", self._failures)
        return self._truncated(config.log, self._in_mode(config.log, sink, concurrent=False))

    def _log_file(self, config: AuditConfig) -> LogFile | RotatingFile:
        if config.log_path == "-":
            sys.stdout.flush()
            return LogFile(sys.stdout.fileno())
        try:
            file = RotatingFile(
                Path(config.log_path),
                self._clock,
                max_bytes=config.log_maxsize * _MEGABYTE,
                max_age=timedelta(days=config.log_maxage) if config.log_maxage else None,
                max_backups=config.log_maxbackup,
                compress=config.log_compress,
            )
        except OSError as error:
            raise ConfigError(f"ensureLogFile: open {config.log_path}: {(error.strerror or '').lower()}") from None
        self._close.append(file.close)
        if config.log_maxsize:
            self._running.append(lambda: _remove_old_files(file))
        return file

    def _webhook_backend(self, config: AuditConfig) -> Sink:
        post = _post_function(config.webhook_config_file, self._clock)
        sink = WebhookSink(post, config.webhook_initial_backoff, self._clock, self._ids, self._failures)
        return self._truncated(config.webhook, self._in_mode(config.webhook, sink, concurrent=True))

    def _in_mode(self, config: BackendConfig, sink: Sink, *, concurrent: bool) -> Sink:
        if config.mode == "blocking-strict":
            return sink
        if config.mode == "blocking":
            return IgnoreErrorsSink(sink)
        options = BatchOptions(
            config.buffer_size,
            config.max_size,
            config.max_wait,
            config.throttle_enable,
            config.throttle_qps,
            config.throttle_burst,
            concurrent,
        )
        buffered = BufferedSink(sink, options, self._clock, self._failures)
        self._buffers.append(buffered)
        return buffered

    def _truncated(self, config: BackendConfig, sink: Sink) -> Sink:
        if not config.truncate_enabled:
            return sink
        return TruncatingSink(sink, config.truncate_max_event_size, config.truncate_max_batch_size, self._failures)


def _post_function(path: str, clock: Clock) -> Post:
    """Return the function that posts to the webhook of the kubeconfig at `path`. Raises ConfigError."""
    endpoint, servers = webhook_endpoint(path, "initializing audit webhook"), NetworkServers(clock)

    async def post(body: bytes) -> None:
        try:
            response = await endpoint.post(servers, body, _WEBHOOK_TIMEOUT)
        except RemoteServerError as problem:
            raise PostFailed(str(problem)) from None
        if not 200 <= response.status < 300:
            raise PostFailed(error_message(response))

    return post


async def _remove_old_files(file: RotatingFile) -> None:
    """Compress and remove old log files, at the start and after each rotation."""
    due = asyncio.Event()
    due.set()
    file.on_rotated = due.set
    while True:
        await due.wait()
        due.clear()
        try:
            # In a thread, because compressing a hundred megabytes takes seconds.
            await asyncio.to_thread(file.tidy)
        except OSError as error:
            log.error("audit log: cannot compress or remove old files: %s", error)


def _policy(path: str) -> Policy:
    try:
        return read_policy(Path(path).read_bytes())
    except OSError as error:
        why = (error.strerror or "").lower()
        raise ConfigError(f'loading audit policy file: failed to read file path "{path}": open {path}: {why}') from None
    except PolicyError as error:
        raise ConfigError(f"loading audit policy file: {error}: from file {path}") from None
