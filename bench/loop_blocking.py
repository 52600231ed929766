"""How long one request can block the loop: `python bench/loop_blocking.py [--only TEXT] [--limit 20] [--rounds 1]`.

Starts a server of its own (TLS, RBAC, a durable store) and sends it one request of each vector: the largest or most
expensive input of its kind that a client can send. A probe inside the server's process schedules itself every
millisecond and records the largest amount of CPU time that the process used between two of its runs. That is how long
the loop served nobody else; CPU time is used so that other processes on the machine do not count. The time of the
worker thread counts while it runs beside the loop, so the figure is an upper bound. On a busy machine the loop's thread
also waits for a processor while the worker thread runs on; the last column, the CPU time of the loop's own thread, does
not depend on that.

CPU time of the same work varies by a factor of two or three with the load of the machine. With `--rounds`, every round
uses a new server, and the smallest figure of each vector counts.

Exits with 1 if a vector held the loop for longer than `--limit` milliseconds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from loop_blocking_vectors import ADMIN, JSON, LIMITED, Vector, anonymous, fill, known

TOKENS = f"{ADMIN},admin,1,system:masters\n{LIMITED},limited,2,readers\n"

# -- the probe, inside the server's process ---------------------------------------------------------------------------


class Probe:
    """Records the largest CPU time, in seconds, between two iterations of the event loop: that of the process and that
    of the loop's thread."""

    def __init__(self) -> None:
        self.longest = self.longest_own = 0.0
        self._last = self._last_own = 0.0

    def start(self, loop: Any) -> None:
        self._loop = loop
        self._last, self._last_own = time.process_time(), time.thread_time()
        loop.call_soon(self._beat)

    def _beat(self) -> None:
        now, own = time.process_time(), time.thread_time()
        self.longest = max(self.longest, now - self._last)
        self.longest_own = max(self.longest_own, own - self._last_own)
        self._last, self._last_own = now, own
        self._loop.call_later(0.001, self._beat)

    def answer(self) -> None:
        """Print, for each line on standard input, the longest hold since the previous line."""
        for _ in sys.stdin:
            longest, own = self.longest, self.longest_own
            self.longest = self.longest_own = 0.0
            print(f"hold {longest * 1000:.1f} {own * 1000:.1f}", flush=True)


def serve(arguments: list[str]) -> None:
    import uvloop

    from setpoint.cli.main import main

    probe, make = Probe(), uvloop.new_event_loop

    def with_probe() -> Any:
        loop = make()
        probe.start(loop)
        return loop

    uvloop.new_event_loop = with_probe
    threading.Thread(target=probe.answer, daemon=True).start()
    main(arguments)


# -- the client -------------------------------------------------------------------------------------------------------


class Server:
    def __init__(self, directory: Path, log: Any) -> None:
        (directory / "tokens.csv").write_text(TOKENS)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen(
            [
                sys.executable,
                __file__,
                "--serve",
                "apiserver",
                "--port",
                str(self.port),
                "--data-dir",
                str(directory / "data"),
                "--token-auth-file",
                str(directory / "tokens.csv"),
                "--authorization-mode",
                "RBAC",
                "--disable-admission-plugins",
                "ServiceAccount",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.tls.check_hostname = False
        self.tls.verify_mode = ssl.CERT_NONE

    def ready(self) -> None:
        for _ in range(200):
            with contextlib.suppress(OSError):
                if self.send("GET", "/readyz", token=ADMIN)[0] == 200:
                    return
            time.sleep(0.1)
        raise SystemExit("the server does not become ready")

    def hold(self) -> tuple[float, float]:
        """Return the longest hold since the last call, and that of the loop's own thread, in milliseconds."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("hold "):
                _, longest, own = line.split()
                return float(longest), float(own)
        raise SystemExit("the server has ended")

    def send(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        content_type: str = JSON,
        token: str = "",
        headers: list[tuple[str, str]] | None = None,
    ) -> tuple[int, bytes]:
        lines = [f"{method} {path} HTTP/1.1", "Host: bench", "Connection: close"]
        if token:
            lines.append(f"Authorization: Bearer {token}")
        lines += [f"{name}: {value}" for name, value in headers or ()]
        if body:
            lines += [f"Content-Type: {content_type}", f"Content-Length: {len(body)}"]
        data = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=300)
        answer = bytearray()
        with plain, self.tls.wrap_socket(plain) as connection, contextlib.suppress(OSError):
            # A request that is refused early is not taken whole.
            with contextlib.suppress(OSError):
                connection.sendall(data)
            while piece := connection.recv(1 << 16):
                answer += piece
        return (int(answer[9:12]) if answer[:5] == b"HTTP/" else 0), bytes(answer.partition(b"\r\n\r\n")[2])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="vectors whose name has this text")
    parser.add_argument("--limit", type=float, default=20.0, help="milliseconds")
    parser.add_argument("--show", action="store_true", help="the beginning of each answer")
    parser.add_argument(
        "--rounds", type=int, default=1, help="how often all vectors are sent, to a new server each time"
    )
    options = parser.parse_args()
    vectors = [vector for vector in anonymous() + known() if options.only in vector.name]
    found: dict[str, Measured] = {}
    for number in range(options.rounds):
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
        for vector, measured in measure(vectors, options.show):
            before = found.get(vector.name, measured)
            found[vector.name] = Measured(
                measured.status,
                min(before.held, measured.held),
                min(before.held_by_loop, measured.held_by_loop),
                min(before.took, measured.took),
            )
    print("| vector | sent by | answer | all of it, ms | longest hold of the loop, ms | by its own thread, ms |")
    print("|---|---|---|---|---|---|")
    for vector in vectors:
        status, held, held_by_loop, took = found[vector.name]
        print(f"| {vector.name} | {vector.who} | {status} | {took:,.0f} | {held:.1f} | {held_by_loop:.1f} |")
    return 1 if any(measured.held > options.limit for measured in found.values()) else 0


class Measured(NamedTuple):
    status: int
    held: float
    """Milliseconds for which the loop was held."""
    held_by_loop: float
    """CPU milliseconds of the loop's own thread while it is blocked for longest."""
    took: float
    """Milliseconds from the request to the end of the response."""


def measure(vectors: list[Vector], show: bool) -> Iterator[tuple[Vector, Measured]]:
    """Send one request of each vector to a new server."""
    with tempfile.TemporaryDirectory() as directory, open(Path(directory) / "log", "w") as log:
        server = Server(Path(directory), log)
        try:
            server.ready()
            fill(server)
            for vector in vectors:
                time.sleep(0.1)
                server.hold()
                began = time.perf_counter()
                status, body = vector.send(server)
                took = (time.perf_counter() - began) * 1000
                time.sleep(0.05)
                measured = Measured(status, *server.hold(), took)
                held = f"{measured.held:.1f} ms, {measured.held_by_loop:.1f} ms by its own thread"
                print(f"{vector.name}: {status}, {held}", file=sys.stderr, flush=True)
                if show:
                    print("   ", body[:300], file=sys.stderr)
                yield vector, measured
        finally:
            server.process.terminate()
            server.process.wait()
            os.sync()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2:])
    else:
        sys.exit(main())
