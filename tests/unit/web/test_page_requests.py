"""Requests of browsers to the page server: Host, Origin, files, headers, and the exchange of a code for a key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from page_harness import ADMIN, HOST, ORIGIN, PageHarness

from setpoint.web.request_checks import content_security_policy
from setpoint.wire.message import Peer, Request, Response, UpgradeResponse

PATHS = ("/", "/index.html", "/assets/app-12ab.js", "/page/v1/session", "/page/v1/socket", "/nothing")
WRONG_HOSTS = (
    "evil.example",
    "127.0.0.1.evil.example",
    "127.0.0.1.evil.example:6444",
    "127.0.0.1",
    "127.0.0.1:6445",
    "127.0.0.1:06444",
    "127.0.0.1:6444.",
    "127.1:6444",
    "2130706433:6444",
    "localhost.:6444",
    "LOCALHOST:6444",
    "Localhost:6444",
    "[::ffff:127.0.0.1]:6444",
    "[0:0:0:0:0:0:0:1]:6444",
    "0.0.0.0:6444",
    "user@127.0.0.1:6444",
    "127.0.0.1:6444, evil.example",
    " 127.0.0.1:6444",
    "",
)
WRONG_ORIGINS = (
    "http://evil.example",
    "http://127.0.0.1",
    "http://127.0.0.1:6445",
    "https://127.0.0.1:6444",
    "http://localhost:6444",
    "http://127.0.0.1:6444/",
    "HTTP://127.0.0.1:6444",
    "null",
    "",
)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text('<!doctype html><style nonce="__CSP_NONCE__"></style>')
    (folder / "assets" / "app-12ab.js").write_text("let x")
    (folder / "assets" / "app-12ab.js.gz").write_bytes(b"gzipped")
    (folder / "assets" / "app-12ab.js.br").write_bytes(b"brotli")
    (folder / "manifest.json").write_text("{}")
    (folder / ".hidden").write_text("secret")
    (tmp_path / "outside.txt").write_text("secret")
    (folder / "link.txt").symlink_to(tmp_path / "outside.txt")
    return folder


@pytest.fixture
def harness(files: Path) -> PageHarness:
    return PageHarness(files=files)


def headers_of(answer: Response) -> dict[str, str]:
    found = dict(answer.headers)
    assert len(found) == len(answer.headers), "a header was sent twice"
    return found


@pytest.mark.parametrize("host", WRONG_HOSTS)
async def test_another_host_gets_nothing(harness: PageHarness, host: str) -> None:
    key = await harness.enter()
    for path in PATHS:
        for method in ("GET", "HEAD", "POST", "OPTIONS"):
            answer = await harness.request(
                method,
                path,
                {"host": host, "origin": ORIGIN, "authorization": f"Bearer {key}", "x-forwarded-host": HOST},
            )
            assert (answer.status, answer.whole_body) == (421, b""), (method, path)
    assert (await harness.upgrade(key, host=host)).status == 421  # type: ignore[union-attr]


async def test_a_request_with_no_host_or_two_gets_nothing(harness: PageHarness) -> None:
    for headers, repeated in (({}, {}), ({"host": f"{HOST}, {HOST}"}, {"host": [HOST, HOST]})):
        answer = await harness.page.handle(Request("GET", "/", "", dict(headers), b"", Peer(), dict(repeated)))
        assert isinstance(answer, Response) and (answer.status, answer.body) == (421, b"")


@pytest.mark.parametrize("host", [HOST, "localhost:6444", "[::1]:6444"])
async def test_the_page_is_there_under_its_own_names(harness: PageHarness, host: str) -> None:
    assert (await harness.request("GET", "/", {"host": host})).status == 200


@pytest.mark.parametrize("origin", WRONG_ORIGINS)
async def test_another_origin_changes_nothing(harness: PageHarness, origin: str) -> None:
    key, code = await harness.enter(), harness.sessions.new_code(ADMIN)
    body = json.dumps({"code": code}).encode()
    for method in ("POST", "DELETE", "PUT", "OPTIONS"):
        answer = await harness.request(
            method, "/page/v1/session", {"origin": origin, "authorization": f"Bearer {key}"}, body
        )
        assert answer.status == 403
    refused = await harness.upgrade(key, origin=origin)
    assert isinstance(refused, Response) and refused.status == 403
    assert harness.sessions.find(key) is not None
    harness.sessions.redeem(code)


async def test_a_missing_origin_is_refused(harness: PageHarness) -> None:
    body = json.dumps({"code": harness.sessions.new_code(ADMIN)}).encode()
    assert (await harness.request("POST", "/page/v1/session", {}, body)).status == 403
    assert (await harness.request("GET", "/page/v1/socket", {"upgrade": "websocket"})).status == 403


async def test_the_origin_must_be_that_of_the_host(harness: PageHarness) -> None:
    """`localhost` may lead to another program that uses the same port of another address."""
    code = harness.sessions.new_code(ADMIN)
    body = json.dumps({"code": code}).encode()
    sent = {"host": "localhost:6444", "origin": ORIGIN}
    assert (await harness.request("POST", "/page/v1/session", sent, body)).status == 403
    sent = {"host": "localhost:6444", "origin": "http://localhost:6444"}
    assert (await harness.request("POST", "/page/v1/session", sent, body)).status == 201


@pytest.mark.parametrize("site", ["cross-site", "same-site", "anything"])
async def test_another_site_is_refused_where_the_browser_names_it(harness: PageHarness, site: str) -> None:
    key = await harness.enter()
    fetch = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"}
    assert (await harness.request("GET", "/assets/app-12ab.js", fetch)).status == 403
    assert (await harness.request("GET", "/", {**fetch, "sec-fetch-dest": "iframe"})).status == 403
    own = {"origin": ORIGIN, "sec-fetch-site": site, "authorization": f"Bearer {key}"}
    for method in ("GET", "POST", "DELETE"):
        assert (await harness.request(method, "/page/v1/session", own, b'{"code":"x"}')).status == 403
    refused = await harness.upgrade(key, **{"sec-fetch-site": site})
    assert isinstance(refused, Response) and refused.status == 403
    link = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert (await harness.request("GET", "/", link)).status == 200, "a person may follow a link"


async def test_every_answer_has_the_security_headers(harness: PageHarness) -> None:
    for method, path, status in (
        ("GET", "/", 200),
        ("GET", "/assets/app-12ab.js", 200),
        ("GET", "/missing.js", 404),
        ("POST", "/", 405),
        ("GET", "/page/v1/session", 401),
        ("POST", "/page/v1/session", 403),
        ("GET", "/page/v1/socket", 403),
    ):
        answer = await harness.request(method, path)
        found = headers_of(answer)
        assert answer.status == status
        assert found["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert found["X-Content-Type-Options"] == "nosniff"
        assert found["Referrer-Policy"] == "no-referrer"
        assert found["Cross-Origin-Opener-Policy"] == found["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "camera=()" in found["Permissions-Policy"] and "=(self)" not in found["Permissions-Policy"]
        assert ("immutable" in found["Cache-Control"]) == (path == "/assets/app-12ab.js")
        assert not any(name.lower().startswith(("access-control", "set-cookie")) for name in found)


def test_the_policy_is_strict() -> None:
    assert content_security_policy("abc") == (
        "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-abc'; connect-src 'self'; img-src 'self' data:; "
        "font-src 'none'; worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


async def test_the_document_has_a_new_nonce_each_time(harness: PageHarness) -> None:
    seen = set()
    for _ in range(3):
        answer = await harness.request("GET", "/")
        policy, body = headers_of(answer)["Content-Security-Policy"], answer.whole_body.decode()
        nonce = body.partition('nonce="')[2].partition('"')[0]
        assert f"'nonce-{nonce}'" in policy and len(nonce) >= 22
        seen.add(nonce)
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("offered", "body", "encoding"),
    [("gzip, br", b"brotli", "br"), ("gzip", b"gzipped", "gzip"), ("deflate", b"let x", None), ("", b"let x", None)],
)
async def test_compressed_files_are_used(harness: PageHarness, offered: str, body: bytes, encoding: str | None) -> None:
    answer = await harness.request("GET", "/assets/app-12ab.js", {"accept-encoding": offered})
    found = headers_of(answer)
    assert (answer.whole_body, found.get("Content-Encoding")) == (body, encoding)
    assert found["Content-Type"] == "text/javascript; charset=utf-8" and found["Vary"] == "Accept-Encoding"


@pytest.mark.parametrize(
    "path",
    [
        "/../outside.txt",
        "/assets/../../outside.txt",
        "/%2e%2e/outside.txt",
        "/assets/%2e%2e%2f%2e%2e%2foutside.txt",
        "//etc/passwd",
        "/.hidden",
        "/link.txt",
        "/assets/app-12ab.js.gz",
        "/assets",
        "/assets/",
        "/a/b/c/d/e/f.js",
        "/" + "x" * 500,
        "/index.html\x00.js",
    ],
)
async def test_only_files_of_the_page_are_served(harness: PageHarness, path: str) -> None:
    answer = await harness.request("GET", path)
    assert answer.status == 404 and b"secret" not in answer.whole_body


async def test_a_page_that_is_not_built_says_so(tmp_path: Path) -> None:
    answer = await PageHarness(files=tmp_path).request("GET", "/")
    assert answer.status == 503 and b"not built" in answer.whole_body


async def test_a_code_is_traded_once(harness: PageHarness) -> None:
    body = json.dumps({"code": harness.sessions.new_code(ADMIN)}).encode()
    first = await harness.request("POST", "/page/v1/session", {"origin": ORIGIN}, body)
    found = json.loads(first.whole_body)
    assert (first.status, found["user"]) == (201, "kubernetes-admin")
    second = await harness.request("POST", "/page/v1/session", {"origin": ORIGIN}, body)
    assert second.status == 401 and "used already" in json.loads(second.whole_body)["message"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"code":1}', b'{"code":"' + b"x" * 200 + b'"}'])
async def test_a_malformed_exchange_is_refused(harness: PageHarness, body: bytes) -> None:
    assert (await harness.request("POST", "/page/v1/session", {"origin": ORIGIN}, body)).status == 400


async def test_guessing_is_slowed_down(harness: PageHarness) -> None:
    for _ in range(20):
        await harness.request("POST", "/page/v1/session", {"origin": ORIGIN}, b'{"code":"x"}')
    answer = await harness.request("POST", "/page/v1/session", {"origin": ORIGIN}, b'{"code":"x"}')
    assert answer.status == 429 and headers_of(answer)["Retry-After"] == "61"


async def test_a_session_can_be_read_and_ended_with_its_key(harness: PageHarness) -> None:
    key = await harness.enter()
    own = {"authorization": f"Bearer {key}"}
    answer = await harness.request("GET", "/page/v1/session", own)
    assert json.loads(answer.whole_body)["user"] == "kubernetes-admin"
    assert (await harness.request("GET", "/page/v1/session", {"authorization": "Bearer x"})).status == 401
    assert (await harness.request("GET", "/page/v1/session", {"authorization": f"Basic {key}"})).status == 401
    assert (await harness.request("DELETE", "/page/v1/session", {**own, "origin": ORIGIN})).status == 204
    assert (await harness.request("GET", "/page/v1/session", own)).status == 401


async def test_a_socket_needs_the_key_of_a_session(harness: PageHarness) -> None:
    key = await harness.enter()
    assert isinstance(await harness.upgrade(key), UpgradeResponse)
    for protocols in ("setpoint.page.v1", "setpoint.page.v1, key.wrong", f"setpoint.page.v1, key.{key}, key.{key}", ""):
        refused = await harness.upgrade("", **{"sec-websocket-protocol": protocols})
        assert isinstance(refused, Response) and refused.status == 401, protocols
    refused = await harness.upgrade(key, **{"sec-websocket-protocol": f"other, key.{key}"})
    assert isinstance(refused, Response) and refused.status == 400


async def test_with_tls_browsers_must_keep_to_it(files: Path) -> None:
    harness = PageHarness(files=files, hosts=("class.example:8443",), tls=True)
    answer = await harness.request("GET", "/", {"host": "class.example:8443"})
    assert headers_of(answer)["Strict-Transport-Security"] == "max-age=31536000"
    own = {"host": "class.example:8443", "origin": "https://class.example:8443"}
    body = json.dumps({"code": harness.sessions.new_code(ADMIN)}).encode()
    assert (await harness.request("POST", "/page/v1/session", own, body)).status == 201
