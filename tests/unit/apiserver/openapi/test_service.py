"""The handlers of OpenAPI documents: forms, hashes, caches, and changes of custom kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from server_harness import ServerHarness

from setpoint.apiserver.openapi.service import OpenApi
from setpoint.apiserver.request_context import RequestContext, parse_path, parse_query, verb_of
from setpoint.apiserver.worker import Worker
from setpoint.kinds.catalog import Resource
from setpoint.kinds.strategy import UserInfo
from setpoint.wire.message import Peer, Request, Response

_NOW = datetime(2030, 1, 1, tzinfo=UTC)
_WIDGET = Resource("things.example.com", "v1", "Widget", "widgets")
_PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


async def ask(openapi: OpenApi, url: str, worker: Worker | None = None, **headers: str) -> Response:
    path, _, query = url.partition("?")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = Request("GET", path, query, named, b"", Peer())
    target, options = parse_path(path), parse_query(query)
    ctx = RequestContext(request, target, options, verb_of("GET", target, options), UserInfo(), _NOW)
    ctx.worker = worker or ctx.worker
    paths: dict[str, object] = {}
    openapi.install(paths)  # type: ignore[arg-type]
    handler = paths.get(path) or paths["/openapi/v3/"]
    answer = await handler(ctx)  # type: ignore[operator]
    assert isinstance(answer, Response)
    return answer


def header(answer: Response, name: str) -> str:
    return next((value for key, value in answer.headers if key == name), "")


async def index(openapi: OpenApi) -> dict[str, str]:
    answer = await ask(openapi, "/openapi/v3")
    assert isinstance(answer.body, bytes)
    return {path: row["serverRelativeURL"] for path, row in orjson.loads(answer.body)["paths"].items()}


async def test_the_index_lists_every_document_and_builds_none() -> None:
    openapi = OpenApi()
    urls = await index(openapi)
    assert {"api", "api/v1", "apis", "apis/apps", "apis/apps/v1", "version", "openid/v1/jwks"} <= set(urls)
    assert urls["apis/apps/v1"].startswith("/openapi/v3/apis/apps/v1?hash=")
    assert not openapi._built
    assert header(await ask(openapi, "/openapi/v3"), "Content-Type") == "text/plain; charset=utf-8"


async def test_a_document_with_its_hash_is_immutable() -> None:
    openapi = OpenApi()
    url = (await index(openapi))["apis/apps/v1"]
    answer = await ask(openapi, url)
    assert answer.status == 200
    assert header(answer, "Cache-Control") == "public, immutable"
    assert header(answer, "Expires") == "Wed, 01 Jan 2031 00:00:00 GMT"
    assert header(answer, "Etag") == f'"{url.partition("=")[2]}"'


async def test_a_wrong_hash_is_redirected() -> None:
    openapi = OpenApi()
    answer = await ask(openapi, "/openapi/v3/apis/apps/v1?hash=ABC")
    assert answer.status == 301
    assert header(answer, "Location") == (await index(openapi))["apis/apps/v1"]


@pytest.mark.parametrize("url", ["/openapi/v2", "/openapi/v3/api/v1"])
async def test_if_none_match(url: str) -> None:
    openapi = OpenApi()
    etag = header(await ask(openapi, url), "Etag")
    again = await ask(openapi, url, if_none_match=f'"other", W/{etag}')
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("application/json", "application/json"),
        (_PROTOBUF_V2, _PROTOBUF_V2),
        ("application/com.github.proto-openapi.spec.v2@v1.0+protobuf", _PROTOBUF_V2),
        (f"application/json;q=0.5, {_PROTOBUF_V2}", _PROTOBUF_V2),
        ("text/plain, application/*;q=0.1", "application/json"),
    ],
)
async def test_forms(accept: str, form: str) -> None:
    answer = await ask(OpenApi(), "/openapi/v2", accept=accept)
    assert answer.status == 200
    assert header(answer, "Content-Type") == form


@pytest.mark.parametrize("url", ["/openapi/v2", "/openapi/v3/api/v1"])
async def test_unsupported_forms_are_refused(url: str) -> None:
    answer = await ask(OpenApi(), url, accept="text/plain")
    assert (answer.status, answer.body) == (406, b"")


async def test_unknown_documents_are_not_found() -> None:
    for path in ("apis/nope/v1", "apis/apps/v1/", "apis/apps/v9", ""):
        assert (await ask(OpenApi(), f"/openapi/v3/{path}")).status == 404


async def test_hashes_are_the_same_in_every_process_and_differ_between_documents() -> None:
    first, second = await index(OpenApi()), await index(OpenApi())
    assert first == second
    hashes = [url.partition("=")[2] for url in first.values()]
    assert len(hashes) == len(set(hashes))


async def test_a_custom_kind_changes_only_the_documents_that_contain_it() -> None:
    openapi = OpenApi()
    before = await index(openapi)
    v2 = header(await ask(openapi, "/openapi/v2"), "Etag")
    openapi.add(_WIDGET, {"type": "object", "properties": {"size": {"type": "integer"}}})
    shown = await index(openapi)
    added = shown.pop("apis/things.example.com/v1")
    assert shown == before
    assert b"com.example.things.v1.Widget" in (await ask(openapi, added)).body
    changed = header(await ask(openapi, "/openapi/v2"), "Etag")
    assert changed != v2
    openapi.add(_WIDGET, {"type": "object", "properties": {"size": {"type": "string"}}})
    assert (await index(openapi))["apis/things.example.com/v1"] != added
    openapi.remove("things.example.com", "v1", "Widget")
    assert await index(openapi) == before
    assert header(await ask(openapi, "/openapi/v2"), "Etag") == v2


async def test_immutable_documents_keep_their_cache_control(harness: ServerHarness) -> None:
    urls = (await harness.get("/openapi/v3")).json["paths"]
    answer = await harness.get(urls["api/v1"]["serverRelativeURL"])
    assert answer.status == 200
    assert answer.header("Cache-Control") == "public, immutable"
    assert (await harness.get("/openapi/v2")).header("Cache-Control") == "no-cache, private"
    assert (await harness.get("/openapi/v2/")).status == 404
    assert (await harness.get("/openapi/v3/")).status == 404


class Interrupted(Worker):
    """A worker during whose first call something else happens, as it may while a thread writes a document."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        super().__init__()
        self._meanwhile: Callable[[], None] | None = meanwhile

    async def run(self, size: int, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if function.__name__ == "_write" and self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile()
        return result


@pytest.mark.parametrize("url", ["/openapi/v2", "/openapi/v3/apis/things.example.com/v1"])
async def test_a_kind_added_while_a_document_is_written(url: str) -> None:
    openapi = OpenApi()
    openapi.add(_WIDGET, None)
    gadget = Resource("things.example.com", "v1", "Gadget", "gadgets")
    first = await ask(openapi, url, Interrupted(lambda: openapi.add(gadget, None)))
    assert b"gadgets" in first.whole_body
    again = await ask(openapi, url)
    assert again.whole_body == first.whole_body
    assert header(again, "Etag") == header(first, "Etag")


async def test_concurrent_requests_build_a_document_once() -> None:
    written: list[tuple[Any, ...]] = []

    class Slow(Worker):
        async def run(self, size: int, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
            if function.__name__ == "_write":
                written.append(args)
            await asyncio.sleep(0)
            return function(*args, **kwargs)

    openapi, worker = OpenApi(), Slow()
    answers = await asyncio.gather(*(ask(openapi, "/openapi/v2", worker) for _ in range(5)))
    assert written == [("v2", "json")]
    assert len({answer.whole_body for answer in answers}) == 1
