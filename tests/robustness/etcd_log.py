"""The log of all commits, as `etcdctl watch` reports it: independent of the code under test."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from tests.robustness.history import Commit
from tests.robustness.network import dependent

from setpoint.meta.cause import decode
from setpoint.meta.lease_term import parse_term

_PREFIX = "/registry/"
_CAUSE = "~cause"
_RECORD = b"~"
"""The first byte of a value that is stored after the record of its transaction, whose length are the next three bytes."""
_NUMBER_LENGTH = 16
"""The length of the number in front of the cause in a record."""
_LINE_LIMIT = 64 * 1024 * 1024
_PAUSE = 0.3


def summary(key: str, obj: dict[str, Any]) -> str:
    """Return the part of an object that the checks compare; empty for kinds that they do not compare."""
    match key.split("/")[1]:
        case "configmaps":
            return str((obj.get("data") or {}).get("value") or "")
        case "services":
            return ",".join((obj.get("spec") or {}).get("clusterIPs") or ())
        case "leases":
            spec = obj.get("spec") or {}
            return f"{spec.get('leaseTransitions') or 0}/{spec.get('holderIdentity') or ''}"
    return ""


def commits(response: dict[str, Any]) -> list[Commit]:
    """Return the commits of one response of a watch. All changes of a revision have the cause of the revision."""
    found: list[tuple[int, str, bytes | None]] = []
    terms: dict[int, str] = {}
    for event in response.get("Events") or ():
        entry = event["kv"]
        key = base64.b64decode(entry["key"]).decode()
        if not key.startswith(_PREFIX):
            continue
        key, revision = key.removeprefix(_PREFIX), int(entry["mod_revision"])
        value = None if event.get("type") else base64.b64decode(entry.get("value") or "")
        record = b""
        if key == _CAUSE:
            record = value or b""
        else:
            if value and value.startswith(_RECORD):
                end = 4 + int.from_bytes(value[1:4], "big")
                record, value = value[4:end], value[end:]
            found.append((revision, key, value))
        if record:
            with suppress(ValueError):
                terms[revision] = _term(decode(record[_NUMBER_LENGTH:]).term)
    return [
        Commit(revision, key, None if value is None else _summary(key, value), terms.get(revision, ""))
        for revision, key, value in found
    ]


def _term(lease: str) -> str:
    """Return the term that a cause names, in the form in which `Commit` has it."""
    if not lease:
        return ""
    term = parse_term(lease)
    return f"{term.namespace}/{term.name}/{term.transitions}/{term.holder}"


def _summary(key: str, value: bytes) -> str:
    try:
        return summary(key, json.loads(value.partition(b":")[2]))
    except (ValueError, LookupError, AttributeError):
        return ""  # not an object, such as a reserved address


class EtcdLog:
    """Follows etcd's log on one member after the other, and passes on each commit exactly once."""

    def __init__(self, urls: Sequence[str], on_commit: Callable[[Commit], None]) -> None:
        self._urls = [*urls]
        self._on_commit = on_commit
        self._advanced = asyncio.Event()
        self.revision = 0
        """The revision up to which the log is complete."""
        self.latest: dict[str, str | None] = {}
        """The current value of every key."""
        self.problem = ""
        """Why the log is not complete; empty if it is."""

    async def follow(self) -> None:
        while True:
            url = self._urls.pop(0)
            self._urls.append(url)
            command = [
                "etcdctl",
                "--endpoints",
                url,
                "--dial-timeout=2s",
                "--keepalive-time=2s",
                "--keepalive-timeout=2s",
            ]
            command += ["--write-out=json", "watch", "--prefix", "--rev", str(self.revision + 1), ""]
            process = await asyncio.create_subprocess_exec(
                *dependent(command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=_LINE_LIMIT,
            )
            assert process.stdout is not None
            try:
                async for line in process.stdout:
                    with suppress(ValueError):  # messages between the responses
                        self._add(json.loads(line))
            finally:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            await asyncio.sleep(_PAUSE)

    def _add(self, response: dict[str, Any]) -> None:
        if response.get("CompactRevision"):
            self.problem = (
                f"etcd was compacted up to {response['CompactRevision']}, ahead of the log at {self.revision}"
            )
        reached = self.revision
        for commit in commits(response):
            if commit.revision <= self.revision:
                continue  # from before the last connection
            self._on_commit(commit)
            self.latest[commit.key] = commit.value
        for event in response.get("Events") or ():
            reached = max(reached, int(event["kv"]["mod_revision"]))
        if reached > self.revision:
            self.revision = reached
            self._advanced.set()

    async def reached(self, revision: int, timeout: float = 60.0) -> None:
        """Return when the log is complete up to a revision. Raises TimeoutError."""
        async with asyncio.timeout(timeout):
            while self.revision < revision:
                self._advanced.clear()
                await self._advanced.wait()
