"""Requests to non-resource URLs: discovery, health checks, the version, and handlers of single paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import orjson

from setpoint.apiserver.discovery import AGGREGATED
from setpoint.apiserver.error_responses import METHOD_NOT_ALLOWED, page_not_found
from setpoint.apiserver.negotiate import JSON, Form, discovery_form, require_json
from setpoint.apiserver.rendering import respond
from setpoint.apiserver.request_context import RequestContext
from setpoint.apiserver.version import VERSION
from setpoint.meta.caching import memoized
from setpoint.meta.errors import MethodNotAllowed, NotFound
from setpoint.wire.message import Answer, Response

if TYPE_CHECKING:
    from setpoint.apiserver.api_resources import ApiResources
    from setpoint.apiserver.health import Health
    from setpoint.apiserver.server import PathHandler, ServerParts


class NonResourceUrls:
    def __init__(self, resources: ApiResources, parts: ServerParts) -> None:
        self._resources = resources
        self._parts = parts

    async def answer(self, ctx: RequestContext) -> Answer:
        parts, path = self._parts, ctx.target.path
        trimmed = path.removesuffix("/") or "/"
        root = trimmed.split("/")[1]
        if root in ("api", "apis"):
            segments, aggregation = trimmed.split("/"), parts.aggregation
            if aggregation is not None and len(segments) == 4 and (segments[2], segments[3]) in aggregation.services:
                return await aggregation.proxy_document(ctx, (segments[2], segments[3]))
            return self._discovery(ctx, trimmed)
        healthy = parts.health.answer(path, ctx.query)
        if healthy is not None:
            return healthy
        if trimmed == "/version":
            require_json(ctx.request.headers.get("accept", ""))
            return self._document(ctx, Form(), orjson.dumps(VERSION))
        if path == "/":
            paths = {"paths": listed_paths(self._resources, parts.health, parts.paths)}
            return Response(200, orjson.dumps(paths, option=orjson.OPT_INDENT_2), [("Content-Type", JSON)])
        handler = parts.paths.get(trimmed if trimmed != "/metrics" else path) or parts.unlisted_paths.get(path)
        if handler is None:
            for prefix, candidate in (*parts.paths.items(), *parts.unlisted_paths.items()):
                if prefix.endswith("/") and path.startswith(prefix):
                    handler = candidate
                    break
        if handler is not None:
            return await handler(ctx)
        return page_not_found()

    def _document(self, ctx: RequestContext, form: Form, body: bytes) -> Response:
        if ctx.request.method != "GET":
            raise MethodNotAllowed(METHOD_NOT_ALLOWED, details={})
        return respond(form, body)

    def _discovery(self, ctx: RequestContext, path: str) -> Response:
        discovery = self._resources.discovery
        accept = ctx.request.headers.get("accept", "")
        if path in ("/api", "/apis"):
            wanted = _discovery_form(accept)
            if wanted == "aggregated":
                body, etag = discovery.aggregated(path == "/api")
                headers = [
                    ("Content-Type", AGGREGATED),
                    ("Etag", etag),
                    ("Vary", "Accept"),
                    ("Cache-Control", "public"),
                ]
                if ctx.request.headers.get("if-none-match") == etag:
                    return Response(304, b"", headers)
                return Response(200, body, headers)
        document = discovery.document(path)
        if document is None:
            parts = path.strip("/").split("/")
            if len(parts) > 1 and (parts[0] == "api" or parts[1] in discovery.built_in_groups):
                raise NotFound.path()
            return page_not_found()
        routed = path == "/api" or path.startswith("/api/") or path.count("/") > 2
        form = discovery_form(accept, routed=routed)
        if routed:
            return self._document(ctx, form, document)
        return respond(form, document)


def listed_paths(resources: ApiResources, health: Health, paths: Mapping[str, PathHandler]) -> list[str]:
    """Return every path that the index at `/` lists."""
    return sorted({*resources.discovery.paths(), *health.paths(), "/version", *paths})


@memoized(maxsize=64)
def _discovery_form(accept: str) -> str:
    """Return `aggregated` or `legacy`, whichever comes first in the Accept header."""
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
