"""`/statusz` and `/flagz`: pages for people who debug a server, as text or as an object of config.k8s.io."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from setpoint.apiserver.call import Call
from setpoint.apiserver.http.message import Answer, Response
from setpoint.apiserver.negotiate import JSON, YAML, Form, accepted
from setpoint.apiserver.rendering import respond
from setpoint.apiserver.version import VERSION
from setpoint.meta.clock import Clock
from setpoint.meta.errors import NotAcceptable
from setpoint.meta.times import format_time

_COMPONENT = "kube-apiserver"
_GROUP, _VERSIONS = "config.k8s.io", ("v1alpha1", "v1beta1")
_DEPRECATED = "v1alpha1"
_TEXT = ("text/plain", "text/*", "*/*", "*")
_OFFERED = f"{JSON}, {YAML}, text/plain"
_NO_PROMISE = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is "
    "for debugging purposes only."
)
_OF_THE_API = frozenset({"/apis", "/api", "/openid", "/openapi", "/.well-known"})


class _Wanted(NamedTuple):
    """The form of a structured answer."""

    media_type: str
    version: str


class Statusz:
    """What runs here and since when."""

    def __init__(self, clock: Clock, paths: Callable[[], list[str]]) -> None:
        """`paths` are those that the server lists at `/`."""
        self._clock = clock
        self._paths = paths
        self._started = clock.now()

    async def answer(self, call: Call) -> Answer:
        now = self._clock.now()
        paths = sorted({f"/{path.split('/')[1]}" for path in self._paths()} - _OF_THE_API - {"/"})
        binary, emulated = VERSION["gitVersion"].removeprefix("v"), f"{VERSION['major']}.{VERSION['minor']}"
        seconds = max(0, int((now - self._started).total_seconds()))
        wanted = _negotiated(call, "Statusz")
        if wanted is not None:
            fields = {
                "startTime": format_time(self._started), "uptimeSeconds": seconds, "goVersion": VERSION["goVersion"],
                "binaryVersion": binary, "emulationVersion": emulated, "paths": paths,
            }  # fmt: skip
            return _structured(call, "Statusz", wanted, fields)
        up = f"{seconds // 3600} hr {seconds // 60 % 60:02d} min {seconds % 60:02d} sec"
        lines = [
            f"Started: {_unix_date(self._started)}", f"Up: {up}", f"Go version: {VERSION['goVersion']}",
            f"Binary version: {binary}", f"Emulation version: {emulated}", f"Paths: {' '.join(paths)}",
        ]  # fmt: skip
        return _text("statusz", ["", *lines])


class Flagz:
    """With which flags the server was started."""

    def __init__(self, flags: Mapping[str, str]) -> None:
        """Values by name, without the dashes."""
        self._flags = dict(sorted(flags.items()))

    async def answer(self, call: Call) -> Answer:
        wanted = _negotiated(call, "Flagz")
        if wanted is not None:
            return _structured(call, "Flagz", wanted, {"flags": self._flags})
        return _text("flagz", [f"{name}={value}" for name, value in self._flags.items()])


def _negotiated(call: Call, kind: str) -> _Wanted | None:
    """None: as text. Raises NotAcceptable."""
    header = call.request.headers.get("accept", "").strip()
    if not header:
        return None
    for media_type, params in accepted(header):
        if media_type in _TEXT and "as" not in params:
            return None
        if media_type in (JSON, YAML) and (params.get("g"), params.get("as")) == (_GROUP, kind):
            version = params.get("v", "")
            if version in _VERSIONS:
                return _Wanted(media_type, version)
    raise NotAcceptable(f"only the following media types are accepted: {_OFFERED}")


def _structured(call: Call, kind: str, wanted: _Wanted, fields: Mapping[str, Any]) -> Response:
    if wanted.version == _DEPRECATED:
        call.warn(f"This version of the {kind.lower()} endpoint is deprecated. Please use a newer version.")
    body = {
        "kind": kind, "apiVersion": f"{_GROUP}/{wanted.version}", "metadata": {"name": _COMPONENT}, **fields,
    }  # fmt: skip
    return respond(Form(wanted.media_type), orjson.dumps(body) + b"\n")


def _text(page: str, lines: list[str]) -> Response:
    text = "\n".join(["", f"{_COMPONENT} {page}", _NO_PROMISE, *lines, ""])
    return Response(200, text.encode(), [("Content-Type", "text/plain; charset=utf-8")])


def _unix_date(moment: datetime) -> str:
    """Format a time in the layout of Go's time.UnixDate."""
    return f"{moment:%a %b} {moment.day:2d} {moment:%H:%M:%S} UTC {moment.year}"
