"""`setpoint class`: a class of learners, each with clusters and a page of their own."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import array, number, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.serving import print_line, ready, serve, server

if TYPE_CHECKING:
    from setpoint.cluster.page import PageConfig

_PORT: Final = 8443
_LINE_SECONDS: Final = 600.0
"""Seconds after which a line in the terminal of a seat is stopped, such as a watch that was left open."""


@server
def run(invocation: Invocation) -> int | None:
    """Serve a class until Ctrl-C."""
    from setpoint.cluster.classroom.classroom import ClassConfig, classroom
    from setpoint.cluster.signals import stop_on_signals
    from setpoint.system import SystemClock

    invocation.no_arguments()
    flags = invocation.flags
    lessons = str(Path(flags.lessons).absolute()) if flags.lessons else ""
    if lessons and not Path(lessons).is_dir():
        raise Failed(f"--lessons {flags.lessons} is not a directory")
    workers = flags.workers or max((os.cpu_count() or 1) - 1, 1)
    config = ClassConfig(
        seats=flags.seats,
        page=_page(invocation),
        workers=min(workers, flags.seats),
        lessons=lessons,
        sleep_after=flags.sleep_after,
    )

    async def main() -> None:
        stop = stop_on_signals()
        async with classroom(config, SystemClock()) as running:
            lines = [
                f"A class with {flags.seats} seats is ready.",
                f"For learners:     {running.join_link}",
                f"For the teacher:  {running.new_teacher_link()}   (lets one browser in, within ten minutes)",
                "Learners open their link and type a name. Ctrl-C ends the class; nothing of it is kept.",
            ]
            ready(invocation, "\n".join(lines))
            await stop.wait()
            print_line(invocation, "Stopping.")

    serve(main)
    return None


def _page(invocation: Invocation) -> PageConfig:
    """Return address, names and certificate of the class's page. Raises Failed."""
    from setpoint.cluster.page import PageConfig, PageTerms

    flags = invocation.flags
    host, _, port = flags.listen.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise Failed(f"--listen must be HOST:PORT, not {flags.listen!r}")
    certificate, key = flags.tls_cert_file, flags.tls_private_key_file
    if flags.self_signed:
        if certificate or key:
            raise Failed("--self-signed cannot be combined with --tls-cert-file and --tls-private-key-file")
        certificate, key = _self_signed(invocation, [host.strip("[]"), *flags.host])
    host = host.strip("[]")
    loopback = host in ("", "127.0.0.1", "localhost", "::1")
    if not loopback and not (certificate and key):
        raise Failed(
            f"a class on {host} can be reached from other machines, so it needs TLS: set --tls-cert-file and "
            "--tls-private-key-file, or --self-signed"
        )
    return PageConfig(
        port=int(port),
        address="" if loopback else host,
        hosts=flags.host,
        tls_cert_file=certificate,
        tls_private_key_file=key,
        terms=PageTerms(
            "the class", "--tls-cert-file", "--tls-private-key-file", f"--listen {flags.listen.rpartition(':')[0]}:0"
        ),
        files=Path(flags.page_files) if flags.page_files else None,
    )


def _self_signed(invocation: Invocation, names: list[str]) -> tuple[str, str]:
    """Return the files of a certificate by an authority of this class's own."""
    from setpoint.cluster.certificates import ensure_certificates

    folder = invocation.io.home / ".setpoint" / "class-pki"
    shown = [name for name in names if name and name not in ("0.0.0.0", "::")]
    files = ensure_certificates(folder, invocation.io.clock.now(), extra_names=shown)
    invocation.print_err(
        f"The certificate is signed by an authority of its own: browsers warn until they trust {files.ca}."
    )
    return str(files.certificate), str(files.key)


def run_worker(invocation: Invocation) -> int | None:
    """Serve the seats of one worker until standard input ends."""
    return _run_worker(invocation)


@server
def _run_worker(invocation: Invocation) -> int | None:
    import json

    settings: dict[str, Any] = json.loads(sys.stdin.buffer.readline())

    async def main() -> None:
        import asyncio

        from setpoint.cli.page_extensions import page_extensions
        from setpoint.cli.page_terminal.shell import ShellLimits
        from setpoint.cluster.classroom.sandbox import confine
        from setpoint.cluster.classroom.seats import SeatLimits
        from setpoint.cluster.classroom.worker import WorkerConfig, worker
        from setpoint.cluster.signals import stop_on_signals
        from setpoint.system import RandomIds, SystemClock
        from setpoint.tasks import first_completed

        config = WorkerConfig(
            socket=Path(settings["socket"]),
            seats=settings["seats"],
            hosts=tuple(settings["hosts"]),
            tls=settings["tls"],
            limits=SeatLimits(idle=settings["sleepAfter"]),
        )
        stop = stop_on_signals()
        confine()

        async def parent_ended() -> None:
            reader = asyncio.StreamReader()
            await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer
            )
            await reader.read()

        async def stopped() -> None:
            await stop.wait()

        lessons = Path(settings["lessons"]) if settings["lessons"] else None
        extensions = partial(
            page_extensions,
            lessons,
            limits=ShellLimits(seconds=_LINE_SECONDS),
            workspaces=config.seats * (1 + config.limits.lessons),
        )
        async with worker(config, SystemClock(), RandomIds(), extensions):
            ready(invocation, "")
            await first_completed(parent_ended(), stopped())

    serve(main)
    return None


COMMAND = Command(
    "Teach a class: every learner gets clusters and a page of their own, the teacher a board",
    run,
    (
        number("seats", default=30, least=1, most=1000, help="Number of learners."),
        text("listen", default=f"127.0.0.1:{_PORT}", help="Address and port; other machines need TLS."),
        array("host", help="Host name under which browsers reach the class; repeat it for several."),
        text("tls-cert-file", help="Certificate of the class."),
        text("tls-private-key-file", help="Its private key."),
        switch("self-signed", help="Use a certificate of this class's own authority, which browsers do not know."),
        number("workers", default=0, least=0, most=64, help="Processes for the seats; by default one less than cores."),
        text("lessons", help="Directory with lessons of your own."),
        number("sleep-after", default=300, least=1, most=86_400, help="Seconds without use until a cluster sleeps."),
        text("page-files", help="Directory with a built page, instead of that of the package.", hidden=True),
    ),
    connects=False,
    about="""
    Prints a link for the learners and one for the teacher. Each seat has a cluster of its own, in memory, whose nodes
    are simulated; it sleeps while nobody uses it, and has limits: objects, memory, requests. The teacher sees who is
    where, looks at a learner's cluster without changing it, sends everyone to a lesson, and injects a fault
    everywhere.
    """,
    examples="""
    # For a class on this machine
    setpoint class --seats 12

    # For learners in the same network
    setpoint class --seats 60 --listen 0.0.0.0:8443 --host class.example.com --self-signed
    """,
)
WORKER = Command("Serve the seats of a class, as a part of `setpoint class`", run_worker, connects=False, hidden=True)
