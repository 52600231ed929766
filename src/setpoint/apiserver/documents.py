"""What is outside of the API: discovery, health, the version, and whatever else has a path of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from setpoint.apiserver.call import Call
from setpoint.apiserver.discovery import AGGREGATED
from setpoint.apiserver.http.message import Answer, Response
from setpoint.apiserver.negotiate import JSON, Form, discovery_form, require_json
from setpoint.apiserver.refusals import NOT_ALLOWED, page_not_found
from setpoint.apiserver.rendering import respond
from setpoint.apiserver.version import VERSION
from setpoint.meta.errors import MethodNotAllowed, NotFound
from setpoint.meta.memoize import memoized

if TYPE_CHECKING:
    from setpoint.apiserver.server import ApiServer


class Documents:
    def __init__(self, api: ApiServer) -> None:
        self._api = api

    async def answer(self, call: Call) -> Answer:
        api = self._api
        path = call.target.path
        trimmed = path.removesuffix("/") or "/"
        root = trimmed.split("/")[1]
        if root in ("api", "apis"):
            parts = trimmed.split("/")
            if api.aggregation is not None and len(parts) == 4 and (parts[2], parts[3]) in api.aggregation.services:
                return await api.aggregation.proxy_document(call, (parts[2], parts[3]))
            return self._discovery(call, trimmed)
        healthy = api.health.answer(path, call.query)
        if healthy is not None:
            return healthy
        if trimmed == "/version":
            require_json(call.request.headers.get("accept", ""))
            return self._document(call, Form(), orjson.dumps(VERSION))
        if path == "/":
            paths = {"paths": listed_paths(api)}
            return Response(200, orjson.dumps(paths, option=orjson.OPT_INDENT_2), [("Content-Type", JSON)])
        handler = api.paths.get(trimmed if trimmed != "/metrics" else path) or api.unlisted.get(path)
        if handler is None:
            for prefix, candidate in api.paths.items():
                if prefix.endswith("/") and path.startswith(prefix):
                    handler = candidate
                    break
        if handler is not None:
            return await handler(call)
        return page_not_found()

    def _document(self, call: Call, form: Form, body: bytes) -> Response:
        if call.request.method != "GET":
            raise MethodNotAllowed(NOT_ALLOWED, details={})
        return respond(form, body)

    def _discovery(self, call: Call, path: str) -> Response:
        api = self._api
        accept = call.request.headers.get("accept", "")
        if path in ("/api", "/apis"):
            wanted = _discovery_form(accept)
            if wanted == "aggregated":
                body, etag = api.discovery.aggregated(path == "/api")
                headers = [
                    ("Content-Type", AGGREGATED),
                    ("Etag", etag),
                    ("Vary", "Accept"),
                    ("Cache-Control", "public"),
                ]
                if call.request.headers.get("if-none-match") == etag:
                    return Response(304, b"", headers)
                return Response(200, body, headers)
        document = api.discovery.document(path)
        if document is None:
            parts = path.strip("/").split("/")
            if len(parts) > 1 and (parts[0] == "api" or parts[1] in api.discovery.built_in_groups):
                raise NotFound.path()
            return page_not_found()
        routed = path == "/api" or path.startswith("/api/") or path.count("/") > 2  # the others have their own handlers
        form = discovery_form(accept, routed=routed)
        if routed:
            return self._document(call, form, document)
        return respond(form, document)


def listed_paths(api: ApiServer) -> list[str]:
    """Every path that the server names at `/`."""
    return sorted({*api.discovery.paths(), *api.health.paths(), "/version", *api.paths})


@memoized(maxsize=64)
def _discovery_form(accept: str) -> str:
    """`aggregated` or `legacy`, whichever comes first in what the client accepts."""
    for part in accept.split(","):
        pieces = [piece.strip() for piece in part.split(";")]
        params = dict(piece.split("=", 1) for piece in pieces[1:] if "=" in piece)
        if params.get("as") == "APIGroupDiscoveryList":
            if pieces[0] == JSON and params.get("g") == "apidiscovery.k8s.io" and params.get("v") == "v2":
                return "aggregated"
            continue
        if pieces[0] in ("", "*/*", JSON, "application/yaml", "application/vnd.kubernetes.protobuf"):
            break
    return "legacy"
