"""The record of the real node beside a cluster of `setpoint up --real`: in the cluster's data directory, so that
`status`, `down` and `reset` know of it.
"""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from setpoint.cli.failures import Failed

_RECORD = "real-node.json"


class RealNode(NamedTuple):
    pid: int
    """The process that runs the cluster and the agent; 0 if the agent does not run."""
    name: str
    """The name of the node."""
    root: str
    """The directory of the node's files, which outlive the process."""

    @property
    def runs(self) -> bool:
        return self.pid > 0 and Path(f"/proc/{self.pid}").exists()

    @property
    def has_files(self) -> bool:
        """Whether the node has, or may have, files on this machine."""
        try:
            return Path(self.root).exists()
        except PermissionError:
            return True


def read_real_node(directory: Path) -> RealNode | None:
    """Return the record of the node beside the cluster of this data directory; None if there is none."""
    try:
        found = json.loads((directory / _RECORD).read_bytes())
        return RealNode(int(found["pid"]), str(found["name"]), str(found["root"]))
    except (OSError, ValueError, LookupError, TypeError):
        return None


def write_real_node(directory: Path, node: RealNode) -> None:
    """Raises OSError."""
    path = directory / _RECORD
    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(json.dumps(node._asdict()) + "\n")
    temporary.replace(path)


def forget_real_node(directory: Path) -> None:
    with suppress(OSError):
        (directory / _RECORD).unlink()


# -- the user of the server -------------------------------------------------------------------------------------------


class Account(NamedTuple):
    """The user as whom the server runs beside an agent that runs as root."""

    name: str
    uid: int
    gid: int
    home: str

    @property
    def is_root(self) -> bool:
        return self.uid == 0

    def environment(self, current: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a process of this user."""
        dropped = ("SUDO_", "XDG_")
        kept = {key: value for key, value in current.items() if not key.startswith(dropped)}
        return {**kept, "HOME": self.home, "USER": self.name, "LOGNAME": self.name}

    def groups(self) -> list[int]:
        return os.getgrouplist(self.name, self.gid)


def account_of(user: str, environment: Mapping[str, str]) -> Account:
    """Return the named user, or else the caller of sudo, or else root. Raise Failed."""
    try:
        if user:
            found = pwd.getpwnam(user)
        elif environment.get("SUDO_UID", "").isdigit():
            found = pwd.getpwuid(int(environment["SUDO_UID"]))
        else:
            found = pwd.getpwuid(0)
    except KeyError:
        who = f"--user {user}" if user else f"SUDO_UID {environment['SUDO_UID']}"
        raise Failed(f"{who}: there is no such user on this machine") from None
    return Account(found.pw_name, found.pw_uid, found.pw_gid, found.pw_dir)


@contextmanager
def acting_as(account: Account) -> Iterator[None]:
    """Create and write files with the rights of a user. A process of root must not follow links that a user made."""
    if account.is_root or os.geteuid() != 0:
        yield
        return
    os.setegid(account.gid)
    os.seteuid(account.uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
