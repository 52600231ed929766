"""`setpoint page`: print a link to the page of the running cluster, or serve the page for any cluster."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from html import escape
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import switch
from setpoint.cli.invocation import Invocation
from setpoint.cli.private_file import write_privately
from setpoint.cli.running import DATA_DIR, directory_of
from setpoint.cli.up_page import LISTENING_FLAGS, page_config
from setpoint.client import Client
from setpoint.meta.errors import ApiError, Forbidden, MethodNotAllowed, NotFound

if TYPE_CHECKING:
    from setpoint.cluster.page import RunningPage

_CODES, _SESSIONS = "/setpoint/v1/page/codes", "/setpoint/v1/page/sessions"
_REVIEWS: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_REDIRECT: Final = "page.html"
"""The file that sends the browser to the link: the arguments of a program are visible to all users of a machine."""
_CHOICES: Final = ("kubeconfig", "context", "cluster", "server")
"""Flags that choose a cluster, for which the page is then served from here."""


async def run(invocation: Invocation) -> None:
    invocation.no_arguments()
    flags = invocation.flags
    if flags.given("data-dir"):
        invocation.point_to(directory_of(invocation))
    elif any(flags.given(name) for name in _CHOICES):
        await _serve(invocation)
        return
    if flags.revoke:
        await _revoke(invocation)
    elif link := await _link(invocation):
        await _show(invocation, link, _directory(invocation))
    else:
        await _serve(invocation)


def _directory(invocation: Invocation) -> Path | None:
    return invocation.choice.directory


async def _link(invocation: Invocation) -> str:
    """Return a new link of the cluster's own page; empty if it has none, or none that a browser here can reach."""
    if _directory(invocation) is None and not _is_loopback(invocation.access.server):
        return ""
    try:
        found = await invocation.client.sender.json("POST", _CODES)
    except (NotFound, Forbidden, MethodNotAllowed):
        return ""
    return str(found["link"])


async def _revoke(invocation: Invocation) -> None:
    try:
        found = await invocation.client.sender.json("DELETE", _SESSIONS)
    except NotFound:
        raise Failed("this cluster serves no page, so it has no sessions") from None
    ended = int(found["ended"])
    sessions = "session" if ended == 1 else "sessions"
    invocation.print(f"{ended} {sessions} ended; links that were not used are void.")


# -- serving it from here ----------------------------------------------------------------------------------------------


async def _serve(invocation: Invocation) -> None:
    """Serve the page for a cluster from the side of its client, until Ctrl-C."""
    from setpoint.cluster.config import ConfigError
    from setpoint.cluster.signals import stop_on_signals

    if invocation.flags.revoke:
        raise Failed("--revoke ends the sessions of a running cluster: it cannot be combined with another one")
    stop = stop_on_signals()
    try:
        async with _page(invocation) as page:
            server = invocation.access.server
            invocation.print(f"The page shows the cluster at {server} as {page.user.name}. Ctrl-C stops it.")
            with _private_directory() as folder:
                await _show(invocation, page.new_link(), folder)
                await stop.wait()
    except ConfigError as error:
        raise Failed(str(error)) from None


@asynccontextmanager
async def _page(invocation: Invocation) -> AsyncIterator[RunningPage]:
    from dataclasses import replace

    from setpoint.cluster.page import page
    from setpoint.web.sessions import PageUser

    client = invocation.client
    client.sender.on_warning = None  # the page shows the warnings of its requests itself
    user = PageUser(await _user_name(client))
    config = replace(page_config(invocation.flags), user=user)
    async with page(config, invocation.io.clock, lambda _: client) as served:
        yield served


async def _user_name(client: Client) -> str:
    """Return the name of the user as the server knows it. Raises Unreachable if there is no server."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        found = await client.sender.json("POST", _REVIEWS, body=review)
        return str(found["status"]["userInfo"]["username"])
    except (ApiError, LookupError, TypeError):
        return "the user of the kubeconfig"


# -- showing it --------------------------------------------------------------------------------------------------------


async def _show(invocation: Invocation, link: str, folder: Path | None) -> None:
    """Print a link, and open it in a browser if that is wanted and possible. `folder` is a private directory."""
    invocation.print(link)
    invocation.flush()
    if not invocation.flags.open:
        return
    if reason := _no_browser_because(invocation, link):
        invocation.print_err(reason)
        return
    import asyncio
    import webbrowser

    path = (folder or Path.cwd()) / _REDIRECT
    text = f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(link)}"><title>Setpoint</title>\n'
    write_privately(path, text.encode())
    try:
        if not await asyncio.to_thread(webbrowser.open, path.absolute().as_uri()):
            invocation.print_err("No browser was found. Open the link in one.")
            return
        await invocation.io.clock.sleep(_OPENING)
    finally:
        with suppress(OSError):
            path.unlink()


_OPENING: Final = 5.0
"""Seconds that a browser has to read the file that sends it to the link."""


def _no_browser_because(invocation: Invocation, link: str) -> str:
    """Return why no browser is started, and what to do instead; empty if one can be started."""
    environment = invocation.io.environment
    if environment.get("SSH_CONNECTION") or environment.get("SSH_TTY"):
        port = urlsplit(link).port
        host = (environment.get("SSH_CONNECTION", "").split() or [""] * 3)[2:3]
        target = f"{environment.get('USER') or 'USER'}@{host[0] if host and host[0] else 'HOST'}"
        return (
            "This is an SSH session, so no browser is started. On your own machine run\n"
            f"  ssh -L {port}:127.0.0.1:{port} {target}\nand open the link there."
        )
    if os.geteuid() == 0:
        return "No browser is started as root. Open the link in a browser of your own user."
    return ""


def _is_loopback(server: str) -> bool:
    host = urlsplit(server).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


@contextmanager
def _private_directory() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="setpoint-page-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


COMMAND = Command(
    "See a cluster work in a browser: print a link to the page, or serve the page for any cluster",
    run,
    (
        DATA_DIR,
        switch("open", help="Open the link in a browser; not as root and not over SSH."),
        switch("revoke", help="End all sessions of the page, and void all links."),
        *LISTENING_FLAGS,
    ),
    about="""
    Without flags, a new link to the page of the cluster of this directory is printed. A link lets one browser in, once,
    within ten minutes. With --kubeconfig or --context, the page is served for that cluster until Ctrl-C, with the
    rights of its kubeconfig; what only a Setpoint server can do is then missing.
    """,
    examples="""
    # A link to the cluster of this directory
    setpoint page

    # In the browser, at once
    setpoint page --open

    # Put all browsers out
    setpoint page --revoke

    # For any Kubernetes cluster
    setpoint page --context production
    """,
)
