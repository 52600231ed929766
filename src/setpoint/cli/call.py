"""What a command is given: its flags and arguments, the streams, and the way to the server."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn

from setpoint.cli import connection
from setpoint.cli.escaping import escaped
from setpoint.cli.failures import Failed
from setpoint.cli.flags import Line, UsageProblem
from setpoint.cli.which_cluster import which_cluster
from setpoint.client.cluster_choice import ADMIN, Choice, choose
from setpoint.client.kubeconfig import KubeconfigError

if TYPE_CHECKING:
    from setpoint.client import Client
    from setpoint.client.access import Access
    from setpoint.meta.clock import Clock


class Surroundings:
    """What a command line is run in. Tests make their own."""

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
    ) -> None:
        sys.stdout.flush()  # what others may have printed comes before what is written past them
        self.stdin = stdin if stdin is not None else sys.stdin.buffer
        self.stdout = stdout if stdout is not None else sys.stdout.buffer
        self.stderr = stderr if stderr is not None else sys.stderr.buffer
        self.environment = environment
        self.home = home or Path(environment.get("HOME") or "/")
        if clock is None:
            from setpoint.system import SystemClock

            clock = SystemClock()
        self.clock = clock
        self.connect = connect
        """To the server that the flags name, with a limit of seconds for an answer; None: over the network."""
        self._suffix = suffix

    def suffix(self) -> str:
        """Five letters by chance, for names that must differ."""
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

    @property
    def colour(self) -> bool:
        """Whether people look on who did not ask for plain text."""
        plain = self.environment.get("NO_COLOR") or self.environment.get("TERM") == "dumb"
        return self.out_is_terminal and not plain


class Call:
    """One command line on its way."""

    def __init__(self, around: Surroundings, line: Line, command: str, *, local: bool = False) -> None:
        self.around = around
        self.flags = line.values
        self.args = line.args
        self.dash = line.dash
        self.command = command
        """As it was typed, without arguments: `setpoint create deployment`."""
        self.local = local
        """Acts on the cluster of this directory only, unless another one is chosen explicitly."""
        self.warned = 0
        """How many warnings the server gave."""
        self._choice: Choice | None = None
        self._access: Access | None = None
        self._client: Client | None = None
        self._warnings: set[str] = set()

    # -- speaking ---------------------------------------------------------------------------------------------------

    def say(self, text: str, end: str = "\n") -> None:
        """To stdout, as one line unless `end` says otherwise. What is not Unicode stays as it came."""
        self.write((text + end).encode("utf-8", "surrogateescape"))

    def write(self, data: bytes) -> None:
        self.around.stdout.write(data)

    def flush(self) -> None:
        """What was said so far is to be seen now: for those who go on to wait."""
        self.around.stdout.flush()

    def tell(self, text: str) -> None:
        """A line on stderr: warnings, progress, questions."""
        self.around.stdout.flush()
        self.around.stderr.write((text + "\n").encode("utf-8", "surrogateescape"))
        self.around.stderr.flush()

    def usage(self, message: str) -> NoReturn:
        """As kubectl says it where a command's own rules, not the flags', are broken."""
        raise Failed(f"{message}\nSee '{self.command} -h' for help and examples")

    def no_arguments(self) -> None:
        if self.args:
            raise UsageProblem(f"unexpected arguments: {self.args}")

    # -- the server -------------------------------------------------------------------------------------------------

    @property
    def choice(self) -> Choice:
        """The cluster that this line is for. Raises KubeconfigError."""
        if self._choice is None:
            around = self.around
            found = choose(connection.wanted(self.flags), around.environment, around.home, Path.cwd())
            if self.local and found.directory is None and not found.explicit:
                raise KubeconfigError(
                    "there is no cluster in this directory: `setpoint up` starts one. "
                    "Say --context or --kubeconfig for another cluster."
                )
            self._choice = found
        return self._choice

    @property
    def access(self) -> Access:
        if self._access is None:
            self._access = connection.access(self.flags, self.choice, self.around.environment)
            if self.around.stderr.isatty() and (line := which_cluster(self.choice, self.around.home)):
                self.tell(line)
        return self._access

    def point_to(self, directory: Path) -> None:
        """Act on the cluster of this data directory, whatever the flags and the environment say."""
        self._choice = Choice("--data-dir", (directory / ADMIN,), directory.absolute())

    @property
    def namespace(self) -> str:
        """The one that is asked for, or the context's; `default` if nothing says which."""
        return self.access.namespace

    @property
    def namespace_given(self) -> bool:
        """On the command line: then objects may not say another one."""
        return bool(self.flags.namespace)

    @property
    def client(self) -> Client:
        """Closed when the command ends."""
        if self._client is None:
            connect = self.around.connect or self._connect
            self._client = connect(self.access, self._timeout())
            self._client.sender.on_warning = self._warning
            self._client.default_namespace = self.namespace
        return self._client

    def expired(self) -> str:
        """What is to be said of a client certificate whose time is over; empty: nothing. A server may just hang up."""
        if self._access is None or self._access.certificate is None:
            return ""
        # Here, because it is slow to load, and asked only when something went wrong.
        from cryptography.x509 import load_pem_x509_certificate

        try:
            end = load_pem_x509_certificate(self._access.certificate).not_valid_after_utc
        except ValueError:
            return ""
        over = end < self.around.clock.now()
        return f" (the client certificate of the kubeconfig expired at {end:%Y-%m-%d %H:%M:%S} UTC)" if over else ""

    def stopped(self) -> str:
        """Return the sentence for a cluster of this directory that does not run; empty if it does, or is not meant."""
        if self._choice is None or self._choice.directory is None:
            return ""
        # Here, because only those who reach nothing ask.
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
        from setpoint.cli.discovery_cache import kept_discovery
        from setpoint.client.connect import connect

        client = connect(access, self.around.clock, user_agent="setpoint", timeout=timeout)
        folder = Path(self.flags.cache_dir) if self.flags.cache_dir else self.around.home / ".kube" / "cache"
        client.discovery = kept_discovery(client, folder, access, self.around.clock)
        return client

    def _timeout(self) -> float:
        from setpoint.meta.times import parse_duration

        said = self.flags.request_timeout
        try:
            seconds = float(said) if said.isdigit() else parse_duration(said) / 1e9
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
            yellow = self.around.stderr.isatty() and self.around.colour
            text = escaped(text)
            self.tell(f"\x1b[33;1mWarning:\x1b[0m {text}" if yellow else f"Warning: {text}")
