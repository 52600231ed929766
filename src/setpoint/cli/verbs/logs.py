"""`logs`: print the logs of containers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from setpoint.cli.command import Command
from setpoint.cli.failures import EXPECTED, Failed
from setpoint.cli.flags import duration, number, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.pod_choice import PODS, container_names, container_of, named, pod_running_timeout, pods_behind
from setpoint.cli.resources import SELECTORS
from setpoint.client.failures import failure
from setpoint.client.resources import path_of, query_of
from setpoint.client.transport import Reply
from setpoint.meta.errors import ApiError

_USAGE = (
    "expected 'logs [-f] [-p] (POD | TYPE/NAME) [-c CONTAINER]'.\n"
    "POD or TYPE/NAME is a required argument for the logs command"
)
_BY_SELECTOR = 10
_POLL_INTERVAL = 1.0


class _Log(NamedTuple):
    pod: str
    namespace: str
    container: str


async def run(invocation: Invocation) -> None:
    flags = invocation.flags
    container = flags.container
    if len(invocation.args) > 2 or not (invocation.args or flags.selector):
        invocation.usage(_USAGE)
    if len(invocation.args) == 1 and flags.selector:
        invocation.usage("only a selector (-l) or a POD name is allowed")
    if len(invocation.args) == 2:
        if container:
            raise Failed("only one of -c or an inline [CONTAINER] arg is allowed")
        container = invocation.args[1]
    query = _query(invocation)
    if flags.all_containers and container:
        raise Failed(f"--all-containers=true should not be specified with container name {container}")
    logs = await _logs(invocation, container)
    if flags.follow and len(logs) > 1:
        if len(logs) > flags.max_log_requests:
            raise Failed(
                f"you are attempting to follow {len(logs)} log streams, but maximum allowed concurrency is "
                f"{flags.max_log_requests}, use --max-log-requests to increase the limit"
            )
        import asyncio  # only several logs at once need it

        async with asyncio.TaskGroup() as tasks:
            for log in logs:
                tasks.create_task(_print_log(invocation, log, query))
        return
    for log in logs:
        await _print_log(invocation, log, query)


def _query(invocation: Invocation) -> dict[str, Any]:
    flags = invocation.flags
    if flags.since_time and flags.since:
        raise Failed("at most one of `sinceTime` or `sinceSeconds` may be specified")
    if flags.limit_bytes < 0:
        raise Failed("--limit-bytes must be greater than 0")
    if flags.since < 0:
        raise Failed("--since must be greater than 0")
    tail: int | None = flags.tail if flags.tail != -1 else None
    if tail is None and flags.selector and not flags.given("tail"):
        tail = _BY_SELECTOR
    if tail is not None and tail < -1:
        raise Failed("--tail must be greater than or equal to -1")
    since_time = ""
    if flags.since_time:
        from setpoint.meta.times import TimeError, canonical_time  # few command lines have a time

        try:
            since_time = canonical_time(flags.since_time) or ""
        except TimeError as error:
            raise Failed(str(error)) from None
        if not since_time:
            raise Failed(f'parsing time "{flags.since_time}" as "2006-01-02T15:04:05Z07:00": cannot parse it')
    return {
        "follow": flags.follow,
        "previous": flags.previous,
        "timestamps": flags.timestamps,
        "insecureSkipTLSVerifyBackend": flags.insecure_skip_tls_verify_backend,
        "limitBytes": flags.limit_bytes or None,
        "sinceSeconds": round(flags.since) or None,
        "sinceTime": since_time,
        "tailLines": tail,
    }


async def _logs(invocation: Invocation, container: str) -> list[_Log]:
    """Return the logs to print, in order."""
    flags = invocation.flags
    if flags.selector:
        pods = (await invocation.client.list(PODS, invocation.namespace, label_selector=flags.selector)).items
        if not pods:
            invocation.print_err(f"No resources found in {invocation.namespace} namespace.")
    else:
        target = await named(invocation, invocation.args[0])
        pods = await pods_behind(invocation, target, "get the logs from", flags.pod_running_timeout)
        if len(pods) > 1 and not flags.all_pods:
            invocation.print_err(f"Found {len(pods)} pods, using pod/{pods[0]['metadata']['name']}")
            pods = pods[:1]
    found: list[_Log] = []
    for pod in pods:
        quiet = flags.all_pods
        names = (
            container_names(pod) if flags.all_containers else [container_of(invocation, pod, container, quiet=quiet)]
        )
        found += [_Log(pod["metadata"]["name"], pod["metadata"]["namespace"], name) for name in names]
    return found


async def _print_log(invocation: Invocation, log: _Log, query: dict[str, Any]) -> None:
    """Print a log to its end. With --follow, retry for a while if there is no log yet."""
    flags, clock = invocation.flags, invocation.io.clock
    until = clock.monotonic() + flags.pod_running_timeout
    while True:
        try:
            await _copy(invocation, log, query)
            return
        except EXPECTED as error:
            if flags.ignore_errors:
                invocation.print(f"error: {error}")
                return
            if not flags.follow or not isinstance(error, ApiError):
                raise
            if clock.monotonic() > until:
                raise Failed("timed out waiting for the condition") from None
            invocation.print_err(str(error))
            await clock.sleep(_POLL_INTERVAL)


async def _copy(invocation: Invocation, log: _Log, query: dict[str, Any]) -> None:
    path = path_of(PODS, log.namespace, log.pod, "log")
    stream = await invocation.client.sender.stream(
        "GET", path, query_of({"container": log.container, **query}), accept="*/*"
    )
    try:
        if stream.status >= 400:
            body = b"".join([piece async for piece in stream])
            raise failure(Reply(stream.status, stream.headers, body))
        prefixed = invocation.flags.prefix or invocation.flags.all_pods
        prefix = f"[pod/{log.pod}/{log.container}] ".encode() if prefixed else b""
        async for piece in _lines(stream, prefix) if prefix else stream:
            invocation.write(piece)
            if invocation.flags.follow:
                invocation.flush()
    finally:
        stream.close()


async def _lines(stream: AsyncIterator[bytes], prefix: bytes) -> AsyncIterator[bytes]:
    """Prefix every line of a stream; only complete lines are yielded."""
    rest = b""
    async for piece in stream:
        *whole, rest = (rest + piece).split(b"\n")
        if whole:
            yield b"".join(prefix + line + b"\n" for line in whole)
    if rest:
        yield prefix + rest


COMMAND = Command(
    "Print the logs for a container in a pod",
    run,
    (
        text("container", "c", help="Print the logs of this container"),
        switch("follow", "f", help="Specify if the logs should be streamed."),
        switch("previous", "p", help="Print the logs of the previous instance of the container, if there was one."),
        switch("timestamps", help="Include timestamps on each line in the log output"),
        switch("all-containers", help="Get all containers' logs in the pod(s)."),
        switch("all-pods", help="Get logs from all pod(s). Sets prefix to true."),
        switch("prefix", help="Prefix each log line with the log source (pod name and container name)"),
        *SELECTORS[:1],
        number("tail", default=-1, help="Lines of recent log file to display; all, or 10 with a selector."),
        duration("since", help="Only return logs newer than a relative duration like 5s, 2m, or 3h."),
        text("since-time", help="Only return logs after a specific date (RFC3339)."),
        number("limit-bytes", help="Maximum bytes of logs to return. Defaults to no limit."),
        number("max-log-requests", default=5, help="Specify maximum number of concurrent logs to follow."),
        switch("ignore-errors", help="If watching / following pod logs, allow for any errors to be non-fatal"),
        switch("insecure-skip-tls-verify-backend", help="Skip verifying the identity of the kubelet."),
        *pod_running_timeout(20.0),
    ),
    usage="[-f] [-p] (POD | TYPE/NAME) [-c CONTAINER]",
    examples="""
    # What a Pod says, and goes on to say
    setpoint logs web
    setpoint logs -f web

    # Of all Pods with a label, with their names
    setpoint logs -l app=web --prefix

    # The last words of the container that crashed
    setpoint logs web --previous
    """,
)
