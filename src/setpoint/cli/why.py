"""`why`: explain why an object is as it is, or why something does not happen, from the recorded causes of writes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from setpoint.cli.command import Command
from setpoint.cli.escaping import escaped
from setpoint.cli.failures import Failed
from setpoint.cli.flags import number, switch, text
from setpoint.cli.invocation import CommandIO, Invocation
from setpoint.cli.resources import Target, choose
from setpoint.client.resources import builtin
from setpoint.meta.errors import ApiError, Expired, NotFound

if TYPE_CHECKING:
    from setpoint.view.why.answer import Answer

PATH = "/setpoint/v1/why"
_FORMATS = ("text", "json", "dot", "otlp")
_TRACES_PATH = "/v1/traces"
"""The path of OTLP/HTTP, for a URL without one."""
_EXPORT_SECONDS = 10.0
_PAUSE = 1.0
"""Seconds between two questions of `--watch`, if nothing changes."""
_NOT_SETPOINT = (
    "the server has no record of causes: {} is not a Setpoint API server, or an older one. "
    "`setpoint describe` and `setpoint events` show what any cluster knows"
)


async def run(invocation: Invocation) -> None:
    flags = invocation.flags
    if flags.output not in _FORMATS:
        raise Failed(f"--output must be one of {', '.join(_FORMATS)}")
    if flags.otlp and flags.watch:
        raise Failed("--otlp and --watch cannot be combined")
    words = list(invocation.args)
    negative = getattr(flags, "not")
    if words[:1] == ["not"]:
        del words[0]
        negative = True
    target, field = await _target(invocation, words)
    query = {
        "group": target.resource.storage[0] if not target.resource.is_custom else target.resource.group,
        "resource": target.resource.plural,
        "namespace": target.namespace,
        "name": target.name,
        "field": field,
        "at": flags.at,
        "since": flags.since,
        "depth": str(flags.depth) if flags.depth else "",
        "all": "true" if flags.all or flags.otlp or flags.output == "otlp" else "",
        "not": "true" if negative else "",
        "conflicts": "true" if flags.conflicts else "",
    }
    asked = urlencode({name: value for name, value in query.items() if value})
    if not flags.watch:
        body = await _ask(invocation, target, asked)
        if flags.otlp:
            await _export(invocation, flags.otlp, body)
        else:
            _print(invocation, body)
        return
    await _watch(invocation, target, asked)


async def _target(invocation: Invocation, words: list[str]) -> tuple[Target, str]:
    """Return the object and the field that the arguments name."""
    if name := invocation.flags.event:
        if words:
            raise Failed("--event names the object itself: it takes no further arguments")
        return Target(builtin("events"), invocation.namespace, name), ""
    named = 1 if words and "/" in words[0] else 2
    if len(words) < named:
        name = invocation.command
        raise Failed(f"name an object: `{name} deployment/web`, or `{name} deployment web`")
    if len(words) > named + 1:
        raise Failed("name one object and at most one field or condition")
    chosen = await choose(invocation, words[:named])
    if not chosen.targets:
        raise Failed("name one object")
    return chosen.targets[0], words[named] if len(words) > named else ""


async def _ask(invocation: Invocation, target: Target, query: str) -> bytes:
    try:
        return (await invocation.client.sender.request("GET", PATH, query)).body
    except NotFound as error:
        if (error.details or {}).get("name") or "there is no resource" in error.message:
            if at := invocation.flags.at:
                raise Failed(f"no version of {target.shown} from {at} or before is known") from None
            raise Failed(
                f"no version of {target.shown} is known, and none was deleted in the retained history"
            ) from None
        raise Failed(_NOT_SETPOINT.format(invocation.access.server)) from None
    except Expired:
        raise
    except ApiError as error:
        if error.code == 405:
            raise Failed(_NOT_SETPOINT.format(invocation.access.server)) from None
        raise


def _print(invocation: Invocation, body: bytes) -> None:
    output = invocation.flags.output
    if output == "json":
        invocation.print(json.dumps(json.loads(body), indent=2, ensure_ascii=False))
        return
    # Imported here because it is only needed after the answer has come.
    from setpoint.view.why import wording

    answer = _decoded(body)
    if output == "otlp":
        invocation.print(json.dumps(_trace(answer), indent=2, ensure_ascii=False))
        return
    if output == "dot":
        invocation.print(wording.dot(answer), end="")
        return
    shown = wording.text(answer, None, ascii_only=not invocation.io.out_is_terminal)
    invocation.print("\n".join(escaped(line) for line in shown.split("\n")), end="")


def _trace(answer: Answer) -> dict[str, Any]:
    from setpoint.view.why.otlp import otlp

    return otlp(answer)


async def _export(invocation: Invocation, url: str, body: bytes) -> None:
    """Send the answer to an OpenTelemetry collector."""
    # Imported here because only this flag needs another connection.
    from setpoint.client.https import HttpsTransport
    from setpoint.client.kubeconfig import Access

    parts = urlsplit(url)
    if parts.query or parts.fragment:
        raise Failed("--otlp must be a URL without a query, such as http://127.0.0.1:4318")
    request = _trace(_decoded(body))
    count = sum(len(scope["spans"]) for each in request["resourceSpans"] for scope in each["scopeSpans"])
    if not count:
        raise Failed("there is nothing to export: the answer names no write")
    try:
        server = Access(f"{parts.scheme}://{parts.netloc}")
        transport = HttpsTransport(
            server, invocation.io.clock, timeout=_EXPORT_SECONDS, connect_timeout=_EXPORT_SECONDS
        )
    except ValueError:
        raise Failed(f"--otlp must be a URL such as http://127.0.0.1:4318, not {url!r}") from None
    headers = [("content-type", "application/json"), ("user-agent", "setpoint")]
    path = parts.path if parts.path.strip("/") else _TRACES_PATH
    try:
        reply = await transport.request("POST", path, "", headers, json.dumps(request).encode())
    except (OSError, TimeoutError) as error:
        raise Failed(f"the collector at {url} cannot be reached: {error}") from None
    finally:
        await transport.close()
    if reply.status >= 300:
        raise Failed(f"the collector at {url} refused the trace with status {reply.status}")
    trace = request["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"]
    invocation.print(f"{count} {'span' if count == 1 else 'spans'} of trace {trace} exported")


def _decoded(body: bytes) -> Answer:
    from setpoint.view.why.answer import Answer

    try:
        return Answer.from_json(json.loads(body))
    except (ValueError, TypeError) as error:
        raise Failed(f"the answer of the server cannot be read: {error}") from None


async def _watch(invocation: Invocation, target: Target, query: str) -> None:
    """Print the answer, and again whenever it names other writes or findings, until interrupted."""
    before: object = None
    while True:
        body = await _ask(invocation, target, query)
        answer = _decoded(body)
        now = ([step.revision for step in answer.chain], [(each.rule, each.evidence) for each in answer.findings])
        if now != before:
            if before is not None and invocation.flags.output == "text":
                invocation.print("---")
            _print(invocation, body)
            invocation.flush()
            before = now
        await invocation.io.clock.sleep(_PAUSE)


def kubectl_plugin(words: Sequence[str] | None = None) -> None:
    """Run the console script `kubectl-why`, which kubectl calls for `kubectl why`.

    It acts on the cluster that kubectl uses, also where a directory has a cluster of its own."""
    from setpoint.cli.main import run as run_line

    environment = dict(os.environ)
    if not environment.get("KUBECONFIG"):
        environment["KUBECONFIG"] = str(Path(environment.get("HOME", "~")).expanduser() / ".kube" / "config")
    arguments = sys.argv[1:] if words is None else words
    sys.exit(run_line(["why", *arguments], CommandIO(environment=environment), "kubectl"))


COMMAND = Command(
    "Explain why an object is as it is, or why something does not happen",
    run,
    (
        text("event", help="Explain this Event: what the controller that emitted it was reconciling."),
        switch("not", help="Explain why something does not happen, also if the object seems to be as desired."),
        switch("conflicts", help="Find clients that revert each other's changes of the object or field."),
        text("at", help="Explain the state at this moment: a revision, a time, an interval such as -5m, a mark."),
        text("since", help="Consider only changes since a time, or in the last interval, such as 1h."),
        switch("all", help="Show every trigger and every earlier value, not only the most informative ones."),
        text("output", "o", "text", help="Output format: text, json, dot or otlp (a trace for OpenTelemetry)."),
        text("otlp", help="Send the answer as a trace to this OTLP/HTTP collector, such as http://127.0.0.1:4318."),
        number("depth", help="The maximum number of steps from effect to origin. The default is 12."),
        switch("watch", "w", help="After printing the answer, print it again whenever it changes."),
    ),
    usage="[not] (TYPE/NAME | TYPE NAME) [FIELD | CONDITION] [flags]",
    about="""
    The server records with every write who made it, and what triggered the reconcile that made it. This command follows
    these records from effect to origin, newest first. A reconcile is triggered by changes and acts on the state that it
    finds. Where a client records no trigger, the most likely one is shown and marked with ~ and "probably".

    Without a field, the question is about the object: why it was deleted, why it is not ready, or what changed it last.
    """,
    examples="""
    # Why was this Pod deleted? Why is it not running?
    setpoint why pod/web-6cf4-b2

    # Who set the number of replicas, and why?
    setpoint why deployment/web spec.replicas

    # Why is the condition Progressing as it is?
    setpoint why deployment/web Progressing

    # Why does nothing happen?
    setpoint why not cronjob/report

    # Do two clients revert each other's changes?
    setpoint why configmap/settings data.level --conflicts
    """,
)
