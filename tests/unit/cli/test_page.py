"""`setpoint page`: links, and the browser that opens them, with an API server in this process."""

from __future__ import annotations

import json
import stat
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson
import pytest
from local_server import LocalServer

from setpoint.apiserver.request_context import RequestContext
from setpoint.cli.invocation import CommandIO
from setpoint.cli.main import run_within
from setpoint.wire.message import Answer, Response

LINK = "http://127.0.0.1:6444/#abcdefghijklmnopqrstuvwxyz"


class Page:
    """A cluster of a data directory, whose page the test plays."""

    def __init__(self, server: LocalServer, directory: Path) -> None:
        self.server = server
        self.directory = directory
        self.requests: list[str] = []
        kubeconfig = {
            "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        (directory / "admin.kubeconfig").write_text(json.dumps(kubeconfig))

    def serve(self) -> None:
        self.server.api.serve_path("/setpoint/v1/page/codes", self._answer)
        self.server.api.serve_path("/setpoint/v1/page/sessions", self._answer)

    async def _answer(self, ctx: RequestContext) -> Answer:
        self.requests.append(f"{ctx.request.method} {ctx.target.path}")
        return Response(200, orjson.dumps({"link": LINK, "ended": 1}), [("Content-Type", "application/json")])

    async def run(self, *words: str, **environment: str) -> tuple[int, str, str]:
        out, err = BytesIO(), BytesIO()
        io = CommandIO(
            stdin=BytesIO(),
            stdout=out,
            stderr=err,
            environment={"HOME": str(self.directory), **environment},
            clock=_NoWait(),
            connect=lambda access, timeout: self.server.client.named("setpoint"),
        )
        code = await run_within(["page", "--data-dir", str(self.directory), *words], io)
        return code, out.getvalue().decode(), err.getvalue().decode()


class _NoWait:
    """A clock whose sleeps end at once."""

    def now(self) -> Any:
        raise AssertionError

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None: ...


@pytest.fixture
def page(local_server: LocalServer, tmp_path: Path) -> Page:
    return Page(local_server, tmp_path)


async def test_a_new_link_is_printed(page: Page) -> None:
    page.serve()
    assert await page.run() == (0, f"{LINK}\n", "")
    assert page.requests == ["POST /setpoint/v1/page/codes"]


async def test_sessions_are_revoked(page: Page) -> None:
    page.serve()
    assert await page.run("--revoke") == (0, "1 session ended; links that were not used are void.\n", "")
    assert page.requests == ["DELETE /setpoint/v1/page/sessions"]


async def test_a_cluster_without_a_page_has_no_sessions(page: Page) -> None:
    code, out, err = await page.run("--revoke")
    assert (code, out) == (1, "") and "serves no page" in err


async def test_a_browser_gets_the_link_through_a_private_file(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """The arguments of its process are visible to all users of the machine."""
    opened: list[tuple[str, str, int]] = []

    def open_browser(address: str) -> bool:
        path = Path(unquote(urlsplit(address).path))
        opened.append((address, path.read_text(), stat.S_IMODE(path.stat().st_mode)))
        return True

    monkeypatch.setattr("webbrowser.open", open_browser)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    page.serve()
    assert (await page.run("--open"))[0] == 0
    ((address, content, mode),) = opened
    assert address.startswith("file:///") and LINK.partition("#")[2] not in address
    assert f"url={LINK}" in content and mode == 0o600
    assert not (page.directory / "page.html").exists(), "it is removed when the browser has read it"


async def test_a_machine_without_a_browser_says_so(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    page.serve()
    code, out, err = await page.run("--open")
    assert (code, out) == (0, f"{LINK}\n") and "No browser was found" in err


@pytest.mark.parametrize(
    ("user", "environment", "message"),
    [
        (0, {}, "No browser is started as root."),
        (1000, {"SSH_CONNECTION": "a 1 10.0.0.9 22", "USER": "ada"}, "ssh -L 6444:127.0.0.1:6444 ada@10.0.0.9"),
        (1000, {"SSH_TTY": "/dev/pts/1"}, "ssh -L 6444:127.0.0.1:6444 USER@HOST"),
    ],
)
async def test_no_browser_is_started_as_root_or_over_ssh(
    page: Page, monkeypatch: pytest.MonkeyPatch, user: int, environment: dict[str, str], message: str
) -> None:
    monkeypatch.setattr("webbrowser.open", lambda address: pytest.fail("a browser was started"))
    monkeypatch.setattr("os.geteuid", lambda: user)
    page.serve()
    code, out, err = await page.run("--open", **environment)
    assert (code, out) == (0, f"{LINK}\n") and message in err
