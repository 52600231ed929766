"""The page of a cluster that `setpoint up` runs: its flags, its link, and where the link is shown.

The link lets a browser in with the rights of an administrator. It is printed to a terminal, or else written to a file
that only the owner may read; it is never written to a log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from setpoint.cli.failures import Failed
from setpoint.cli.flags import Flag, Values, about, array, number, switch, text
from setpoint.cli.invocation import Invocation

if TYPE_CHECKING:
    from setpoint.cluster.allinone import RunningCluster
    from setpoint.cluster.page import PageConfig
    from setpoint.web.server import PageExtensions

_LINK_FILE: Final = "page"
"""The file in the data directory with the link of a cluster that has no terminal."""
_PORT: Final = 6444

LISTENING_FLAGS: Final[tuple[Flag, ...]] = (
    number("page-port", default=_PORT, least=0, most=65535, help="Port of the page; 0 picks a free one."),
    text("page-address", help="Address of the page for other machines, which needs TLS; by default loopback only."),
    array("page-host", help="Further host name under which browsers reach the page; repeat it for several."),
    text("page-tls-cert-file", help="Certificate of the page, for --page-address."),
    text("page-tls-private-key-file", help="Its private key."),
    text(
        "lessons", help="Directory with lessons of your own, which is read again when it changes (`setpoint lesson`)."
    ),
    text("page-files", help="Directory with a built page, instead of that of the package.", hidden=True),
)
"""The flags of every command that serves the page."""
PAGE_FLAGS: Final[tuple[Flag, ...]] = about(
    "Page",
    switch("page", default=True, help="Serve the page: the cluster in a browser, from this machine only."),
    *LISTENING_FLAGS,
    text("page-user", help="User as whom the page acts; by default the administrator."),
    array("page-group", help="Group of --page-user; repeat it for several."),
)


def _extensions(lessons: Path | None, directory: Path | None) -> PageExtensions:
    from setpoint.cli.page_extensions import page_extensions  # no browser may ever come

    return page_extensions(lessons, directory)


def page_config(flags: Values, directory: Path | None = None) -> PageConfig:
    """Return the settings of the page. `directory` is the data directory, which keeps the progress in lessons and the
    files of terminals; None means that they are in memory. Raises Failed."""
    from setpoint.cluster.config import ConfigError
    from setpoint.cluster.page import PageConfig

    lessons = Path(flags.lessons) if flags.lessons else None
    if lessons is not None and not lessons.is_dir():
        raise Failed(f"--lessons {flags.lessons} is not a directory")
    config = PageConfig(
        port=flags.page_port,
        may_use_other_port=not flags.given("page-port"),
        address=flags.page_address,
        hosts=flags.page_host,
        tls_cert_file=flags.page_tls_cert_file,
        tls_private_key_file=flags.page_tls_private_key_file,
        files=Path(flags.page_files) if flags.page_files else None,
        extensions=partial(_extensions, lessons, directory),
    )
    try:
        config.check()
    except ConfigError as error:
        raise Failed(str(error)) from None
    return config


def page_of_up(flags: Values, directory: Path) -> PageConfig | None:
    """Return the settings of the page of a cluster with this data directory; None if it has none. Raises Failed."""
    if not flags.page:
        return None
    config = page_config(flags, directory)
    if flags.page_group and not flags.page_user:
        raise Failed("--page-group needs --page-user")
    if flags.page_user:
        from dataclasses import replace

        from setpoint.web.sessions import PageUser

        config = replace(config, user=PageUser(flags.page_user, tuple(flags.page_group)))
    return config


@asynccontextmanager
async def served_page(
    invocation: Invocation, config: PageConfig | None, running: RunningCluster, directory: Path
) -> AsyncIterator[str]:
    """Serve the page, if there is one, while the block runs. Yield the link if this process prints it; otherwise it is
    in a file, and the link is empty. Raises ConfigError."""
    if config is None:
        yield ""
        return
    from setpoint.cluster.page import cluster_page

    file = directory / _LINK_FILE
    async with cluster_page(config, running, directory) as page:
        link = page.new_link()
        prints = invocation.io.out_is_terminal and not invocation.flags.beside_node
        if not prints:
            from setpoint.cli.private_file import write_privately

            write_privately(file, f"{link}\n".encode())
        try:
            yield link if prints else ""
        finally:
            if not prints:
                with suppress(OSError):
                    file.unlink()


def written_link(invocation: Invocation, directory: Path) -> str:
    """Return the link that a background process has written, for a terminal; empty if there is none."""
    if invocation.io.out_is_terminal and invocation.flags.page:
        with suppress(OSError, ValueError):
            return (directory / _LINK_FILE).read_text(encoding="ascii").strip()
    return ""


def about_the_page(invocation: Invocation, setpoint: str, where: str, link: str) -> list[str]:
    """Return the lines of the summary about the page. `setpoint` is the name of this program, and `where` its flags for
    the data directory."""
    flags = invocation.flags
    if not flags.page:
        return []
    command = f"`{setpoint} page{where}`"
    if not link:
        return [f"See it work in a browser: {command} prints the link."]
    lines = [f"See it work:  {link}", f"(The link lets one browser in; {command} prints another.)"]
    port = urlsplit(link).port
    if flags.page_port and port != flags.page_port:
        lines.append(f"(Another program uses port {flags.page_port}, so the page is on port {port}.)")
    return lines
