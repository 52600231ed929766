"""The execution context of a command: its flags and arguments, its streams, and the connection to the server."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn

from setpoint.cli import connection
from setpoint.cli.connection import which_cluster
from setpoint.cli.escaping import escaped
from setpoint.cli.failures import Failed
from setpoint.cli.files import CommandFiles, HostFiles
from setpoint.cli.flags import Line, UsageProblem
from setpoint.cli.virtual_terminal import VirtualTerminal
from setpoint.client.cluster_choice import ADMIN, Choice, choose
from setpoint.client.kubeconfig import KubeconfigError

if TYPE_CHECKING:
    from setpoint.client import Client
    from setpoint.client.kubeconfig import Access
    from setpoint.meta.clock import Clock
    from setpoint.wire.time_limits import TimeLimits


class CommandIO:
    """The streams, environment, files, clock and connection of a command. Tests create their own, and so does the
    terminal of the page."""

    def __init__(
        self,
        *,
        stdin: BinaryIO | None = None,
        stdout: BinaryIO | None = None,
        stderr: BinaryIO | None = None,
        environment: Mapping[str, str] = os.environ,
        home: Path | None = None,
        clock: Clock | None = None,
        connect: Callable[[Access, float], Client] | None = None,
        suffix: Callable[[], str] | None = None,
        files: CommandFiles | None = None,
        access: Access | None = None,
        editor: Callable[[str], Awaitable[bool]] | None = None,
        on_host: bool = True,
    ) -> None:
        if stdout is None:
            sys.stdout.flush()  # flush what was printed before, because the buffer is written directly
        self.stdin = stdin if stdin is not None else sys.stdin.buffer
        self.stdout = stdout if stdout is not None else sys.stdout.buffer
        self.stderr = stderr if stderr is not None else sys.stderr.buffer
        self.environment = environment
        self.home = home or Path(environment.get("HOME") or "/")
        self.may_block = clock is None and connect is None
        """Whether a command may run without an event loop: its clock and its connection are those of the machine."""
        if clock is None:
            from setpoint.system import SystemClock

            clock = SystemClock()
        self.clock = clock
        self.limits: TimeLimits | None = None
        """The time limits of blocking calls if the command runs without an event loop; None on an event loop."""
        self.connect = connect
        """Connects to the server of the flags, with a timeout in seconds for a response; None connects over the
        network."""
        self.files: CommandFiles = files or HostFiles()
        self.access = access
        """The server and the user of all commands; None means those of the kubeconfig files."""
        self.editor = editor
        """Lets the user edit a file, and returns whether that succeeded; None starts the program of the
        environment."""
        self.on_host = on_host
        """Whether commands may use the machine that they run on: its files, its programs and its network. If not,
        `files`, `access` and `connect` are given."""
        self._suffix = suffix

    def blocking(self) -> CommandIO:
        """Return the same for a command that waits in blocking calls, without an event loop."""
        from setpoint.system import BlockingClock

        same = CommandIO.__new__(CommandIO)
        same.__dict__.update(self.__dict__)
        same.clock = clock = BlockingClock()
        same.limits = clock.limits
        return same

    def suffix(self) -> str:
        """Return five random characters, for unique names."""
        if self._suffix is None:
            from setpoint.system import RandomIds

            self._suffix = RandomIds().suffix
        return self._suffix()

    @property
    def out_is_terminal(self) -> bool:
        return self.stdout.isatty()

    @property
    def in_is_terminal(self) -> bool:
        return self.stdin.isatty()

    async def read_line(self) -> bytes:
        """Return the next line of the input, with its end; empty at the end of the input."""
        if isinstance(self.stdin, VirtualTerminal):
            return await self.stdin.line()
        return self.stdin.readline()

    @property
    def colour(self) -> bool:
        """Whether to colour the output: it is a terminal, and the user did not ask for plain text."""
        plain = self.environment.get("NO_COLOR") or self.environment.get("TERM") == "dumb"
        return self.out_is_terminal and not plain


class Invocation:
    """One execution of a command."""

    def __init__(self, io: CommandIO, line: Line, command: str, *, local: bool = False) -> None:
        self.io = io
        self.flags = line.values
        self.args = line.args
        self.dash = line.dash
        self.command = command
        """The command as it was typed, without arguments: `setpoint create deployment`."""
        self.local = local
        """Whether the command acts only on the cluster of this directory, unless another one is chosen explicitly."""
        self.warned = 0
        """The number of warnings that the server sent."""
        self._choice: Choice | None = None
        self._access: Access | None = None
        self._client: Client | None = None
        self._warnings: set[str] = set()

    # -- output --------------------------------------------------------------------------------------------------------

    def print(self, text: str, end: str = "\n") -> None:
        """Write a line to stdout, or a text with another `end`. Bytes that are not valid Unicode are preserved."""
        self.write((text + end).encode("utf-8", "surrogateescape"))

    def write(self, data: bytes) -> None:
        self.io.stdout.write(data)

    def flush(self) -> None:
        """Flush stdout, for commands that wait afterwards."""
        self.io.stdout.flush()

    def print_err(self, text: str) -> None:
        """Write a line to stderr: a warning, progress or a question."""
        self.io.stdout.flush()
        self.io.stderr.write((text + "\n").encode("utf-8", "surrogateescape"))
        self.io.stderr.flush()

    def usage(self, message: str) -> NoReturn:
        """Raise Failed with kubectl's text for a violated rule of the command itself, not of its flags."""
        raise Failed(f"{message}\nSee '{self.command} -h' for help and examples")

    def require_host(self) -> None:
        """Raise Failed where commands must not use the machine that they run on."""
        if not self.io.on_host:
            raise Failed(
                f"`{self.command}` cannot be used in this terminal: it uses files, programs or the network of the "
                "machine that serves the page. Use a terminal of that machine"
            )

    def no_arguments(self) -> None:
        if self.args:
            raise UsageProblem(f"unexpected arguments: {self.args}")

    # -- the server -------------------------------------------------------------------------------------------------

    @property
    def choice(self) -> Choice:
        """The cluster that this command acts on. Raise KubeconfigError."""
        if self._choice is None:
            io = self.io
            found = choose(connection.wanted(self.flags), io.environment, io.home, Path.cwd())
            if self.local and found.directory is None and not found.explicit:
                raise KubeconfigError(
                    "there is no cluster in this directory: `setpoint up` starts one. "
                    "Say --context or --kubeconfig for another cluster."
                )
            self._choice = found
        return self._choice

    @property
    def access(self) -> Access:
        if self._access is None and self.io.access is not None:
            self._access = connection.adjusted(self.io.access, self.flags)
        elif self._access is None:
            self._access = connection.access(self.flags, self.choice, self.io.environment)
            if self.io.stderr.isatty() and (line := which_cluster(self.choice, self.io.home)):
                self.print_err(line)
        return self._access

    def point_to(self, directory: Path) -> None:
        """Act on the cluster of this data directory, whatever the flags and the environment say."""
        self._choice = Choice("--data-dir", (directory / ADMIN,), directory.absolute())

    @property
    def namespace(self) -> str:
        """The namespace of the flags or of the context; by default `default`."""
        return self.access.namespace

    @property
    def namespace_given(self) -> bool:
        """Whether the namespace is set on the command line: objects must then not have another one."""
        return bool(self.flags.namespace)

    @property
    def client(self) -> Client:
        """The client, which is closed when the command ends."""
        if self._client is None:
            connect = self.io.connect or self._connect
            self._client = connect(self.access, self._timeout())
            self._client.sender.on_warning = self._warning
            self._client.default_namespace = self.namespace
        return self._client

    def use(self, client: Client) -> None:
        """Send the following requests with another client, on the same connections."""
        self._client = client

    def expired(self) -> str:
        """Return a hint that the client certificate has expired; empty if it has not. A server may only close the
        connection."""
        if self._access is None or self._access.certificate is None:
            return ""
        # Imported here because it is slow to load and only needed after a failure.
        from cryptography.x509 import load_pem_x509_certificate

        try:
            end = load_pem_x509_certificate(self._access.certificate).not_valid_after_utc
        except ValueError:
            return ""
        over = end < self.io.clock.now()
        return f" (the client certificate of the kubeconfig expired at {end:%Y-%m-%d %H:%M:%S} UTC)" if over else ""

    def stopped(self) -> str:
        """Return the message for a cluster of this directory that is not running; empty if it runs, or another one is
        chosen."""
        if self._choice is None or self._choice.directory is None:
            return ""
        # Imported here because it is only needed after a failed connection.
        from setpoint.cli.running import find_running
        from setpoint.client.cluster_choice import display_path

        directory = self._choice.directory
        if find_running(directory) is not None:
            return ""
        another = "" if self._choice.explicit else "; say --context or --kubeconfig for another cluster"
        path = display_path(directory)
        return f"the cluster of this directory ({path}) is not running: `setpoint up` starts it{another}"

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    def _connect(self, access: Access, timeout: float) -> Client:
        from setpoint.cli.discovery_cache import cached_discovery

        if self.io.limits is not None:
            from setpoint.client import blocking  # each way to connect is imported only if it is used

            client = blocking.connect(access, self.io.clock, self.io.limits, user_agent="setpoint", timeout=timeout)
        else:
            from setpoint.client import https

            client = https.connect(access, self.io.clock, user_agent="setpoint", timeout=timeout)
        folder = Path(self.flags.cache_dir) if self.flags.cache_dir else self.io.home / ".kube" / "cache"
        client.discovery = cached_discovery(client, folder, access, self.io.clock)
        return client

    def _timeout(self) -> float:
        given = self.flags.request_timeout
        if given.isdigit():
            return float(given) or 1e6
        from setpoint.meta.times import parse_duration  # few command lines have a timeout with a unit

        try:
            seconds = parse_duration(given) / 1e9
        except ValueError:
            raise Failed(
                "Invalid timeout value. Timeout must be a single integer in seconds, or an integer followed by a "
                "corresponding time unit (e.g. 1s | 2m | 3h)"
            ) from None
        return seconds or 1e6

    def _warning(self, text: str) -> None:
        if text not in self._warnings:
            self._warnings.add(text)
            self.warned += 1
            yellow = self.io.stderr.isatty() and self.io.colour
            text = escaped(text)
            self.print_err(f"\x1b[33;1mWarning:\x1b[0m {text}" if yellow else f"Warning: {text}")
