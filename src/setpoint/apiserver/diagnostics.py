"""Endpoints for people who debug a server: `/statusz`, `/flagz` and `/setpoint/v1/causes`.

`/statusz` and `/flagz` are text or objects of config.k8s.io. `GET /setpoint/v1/causes?revisions=7,12` returns the
causes of these writes, which the store records with revisions. Revisions without a recorded cause and revisions that
were compacted are omitted. Requests are authorized like those of any other non-resource URL: administrators by
default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol, runtime_checkable

import orjson

from setpoint.apiserver.error_responses import METHOD_NOT_ALLOWED
from setpoint.apiserver.negotiate import JSON, YAML, Form, accepted
from setpoint.apiserver.rendering import respond
from setpoint.apiserver.request_context import RequestContext
from setpoint.apiserver.server import PathHandler
from setpoint.apiserver.version import VERSION
from setpoint.meta.cause import WriteCause, decode
from setpoint.meta.clock import Clock
from setpoint.meta.errors import BadRequest, MethodNotAllowed, NotAcceptable, NotFound
from setpoint.meta.times import format_time
from setpoint.store.interface import Cause, Compacted, Store
from setpoint.wire.message import Answer, Response

_COMPONENT = "kube-apiserver"
_GROUP, _VERSIONS = "config.k8s.io", ("v1alpha1", "v1beta1")
_DEPRECATED = "v1alpha1"
_TEXT = ("text/plain", "text/*", "*/*", "*")
_OFFERED = f"{JSON}, {YAML}, text/plain"
_DISCLAIMER = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is "
    "for debugging purposes only."
)
_API_ROOTS = frozenset({"/apis", "/api", "/openid", "/openapi", "/.well-known"})


class _StructuredForm(NamedTuple):
    """Media type and version of a structured response."""

    media_type: str
    version: str


class Statusz:
    """The version and uptime of the server."""

    def __init__(self, clock: Clock, paths: Callable[[], list[str]]) -> None:
        """`paths` returns the paths that the server lists at `/`."""
        self._clock = clock
        self._paths = paths
        self._started = clock.now()

    async def answer(self, ctx: RequestContext) -> Answer:
        now = self._clock.now()
        paths = sorted({f"/{path.split('/')[1]}" for path in self._paths()} - _API_ROOTS - {"/"})
        binary, emulated = VERSION["gitVersion"].removeprefix("v"), f"{VERSION['major']}.{VERSION['minor']}"
        seconds = max(0, int((now - self._started).total_seconds()))
        form = _negotiated(ctx, "Statusz")
        if form is not None:
            fields = {
                "startTime": format_time(self._started),
                "uptimeSeconds": seconds,
                "goVersion": VERSION["goVersion"],
                "binaryVersion": binary,
                "emulationVersion": emulated,
                "paths": paths,
            }
            return _structured(ctx, "Statusz", form, fields)
        up = f"{seconds // 3600} hr {seconds // 60 % 60:02d} min {seconds % 60:02d} sec"
        lines = [
            f"Started: {_unix_date(self._started)}",
            f"Up: {up}",
            f"Go version: {VERSION['goVersion']}",
            f"Binary version: {binary}",
            f"Emulation version: {emulated}",
            f"Paths: {' '.join(paths)}",
        ]
        return _text("statusz", ["", *lines])


class Flagz:
    """The flags of the server."""

    def __init__(self, flags: Mapping[str, str]) -> None:
        """`flags` are values by name, without dashes."""
        self._flags = dict(sorted(flags.items()))

    async def answer(self, ctx: RequestContext) -> Answer:
        form = _negotiated(ctx, "Flagz")
        if form is not None:
            return _structured(ctx, "Flagz", form, {"flags": self._flags})
        return _text("flagz", [f"{name}={value}" for name, value in self._flags.items()])


def _negotiated(ctx: RequestContext, kind: str) -> _StructuredForm | None:
    """Return the structured form, or None for text. Raises NotAcceptable."""
    header = ctx.request.headers.get("accept", "").strip()
    if not header:
        return None
    for media_type, params in accepted(header):
        if media_type in _TEXT and "as" not in params:
            return None
        if media_type in (JSON, YAML) and (params.get("g"), params.get("as")) == (_GROUP, kind):
            version = params.get("v", "")
            if version in _VERSIONS:
                return _StructuredForm(media_type, version)
    raise NotAcceptable(f"only the following media types are accepted: {_OFFERED}")


def _structured(ctx: RequestContext, kind: str, form: _StructuredForm, fields: Mapping[str, Any]) -> Response:
    if form.version == _DEPRECATED:
        ctx.warn(f"This version of the {kind.lower()} endpoint is deprecated. Please use a newer version.")
    body = {
        "kind": kind,
        "apiVersion": f"{_GROUP}/{form.version}",
        "metadata": {"name": _COMPONENT},
        **fields,
    }
    return respond(Form(form.media_type), orjson.dumps(body) + b"\n")


def _text(page: str, lines: list[str]) -> Response:
    text = "\n".join(["", f"{_COMPONENT} {page}", _DISCLAIMER, *lines, ""])
    return Response(200, text.encode(), [("Content-Type", "text/plain; charset=utf-8")])


def _unix_date(moment: datetime) -> str:
    """Format a time in the layout of Go's time.UnixDate."""
    return f"{moment:%a %b} {moment.day:2d} {moment:%H:%M:%S} UTC {moment.year}"


CAUSES_PATH = "/setpoint/v1/causes"
_MAX_REVISIONS = 500
"""Maximum number of revisions in one request."""
_MAX_LENGTH = _MAX_REVISIONS * 20


@runtime_checkable
class _RecordsCauses(Protocol):
    async def causes(self, after: int, limit: int = 0) -> Sequence[Cause]: ...


def serve_causes(store: Store) -> PathHandler:
    async def answer(ctx: RequestContext) -> Answer:
        if ctx.request.method != "GET":
            raise MethodNotAllowed(METHOD_NOT_ALLOWED, details={})
        if not isinstance(store, _RecordsCauses):
            raise NotFound("this store records no causes")
        found = []
        for revision in _revisions(ctx.option("revisions")):
            try:
                causes = await store.causes(revision - 1, 1)
            except Compacted:
                continue
            if causes and causes[0].revision == revision:
                found.append({"revision": revision, **_shown(decode(causes[0].cause))})
        return Response(200, orjson.dumps({"causes": found}), [("Content-Type", JSON)])

    return answer


def _shown(cause: WriteCause) -> dict[str, object]:
    """Return a cause with the names of its fields, without the empty ones except user, agent and verb."""
    claim = {name: value for name, value in cause.claim._asdict().items() if value}
    others = {"at": cause.at, **claim, "trace": cause.trace, "lease": cause.term, "address": cause.address}
    shown = {name: value for name, value in others.items() if value}
    return {"user": cause.user, "agent": cause.agent, "verb": cause.verb, **shown}


def _revisions(text: str) -> list[int]:
    """Parse the parameter `revisions`. Raises BadRequest."""
    words = text.split(",", _MAX_REVISIONS) if len(text) <= _MAX_LENGTH else []
    if not 0 < len(words) <= _MAX_REVISIONS or not all(
        word.isascii() and word.isdigit() and word != "0" for word in words
    ):
        raise BadRequest(f"revisions must be 1 to {_MAX_REVISIONS} positive numbers, separated by commas")
    return [int(word) for word in words]
