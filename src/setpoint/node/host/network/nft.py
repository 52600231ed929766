"""The nftables table of a node, written by `nft` in transactions.

The table consists of sections, one for each part of the network. A section renders its complete state, and the
commands that change the state it rendered last. When an incremental change fails, or another program changes the table,
the whole table is replaced in one transaction, so that no packet finds half of the rules.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import struct
from collections.abc import Callable
from hashlib import sha256
from typing import Final, Protocol

from setpoint.meta.clock import Clock
from setpoint.node.host.programs import ProgramError, run_program
from setpoint.tasks import within

log = logging.getLogger("setpoint.node.network")

_TIMEOUT: Final = 30.0
"""Seconds after which a run of nft is killed."""
_CHECK_PERIOD: Final = 30.0
_INITIAL_BACKOFF: Final = 1.0
_MAX_MESSAGE: Final = 1000
_MAX_TIMED_ELEMENTS: Final = 65535
_ADDRESS = re.compile(r"[0-9a-fA-F:.]{2,45}")
_BLOCK = re.compile(r"\n\t(?=(?:set|map|chain) )")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,30}")


class NftError(Exception):
    """A run of nft failed; the text is the message of nft."""


class NftSection(Protocol):
    """A part of the table. Both methods are called while no other change is in progress, and what they return counts as
    the state of the table from then on; after a failure, `full` is called next.

    Sections choose names for their chains, sets and maps that begin with a prefix of their own.
    """

    def full(self) -> str | None:
        """Return the definitions of all sets, maps and chains, as between the braces of a table; None while the desired
        state is not known yet. The table is written when all sections know their state."""
        ...

    def changes(self) -> str | None:
        """Return commands that lead from the state rendered last to the desired one; empty if there is no difference,
        None if the table has to be replaced."""
        ...


class NftTable:
    """One table of family `inet`. After `update` succeeds, the table has the desired state of all sections."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        program: str = "nft",
        generation: Callable[[], int | None] | None = None,
    ) -> None:
        """Create the owner of a table; nothing is written before `update`. `generation` returns the number of the last
        change to any table in the network namespace, or None if it cannot be read."""
        if not _NAME.fullmatch(name):
            raise ValueError(f"invalid name of a table: {name!r}")
        self.name = name
        self.reference = f"inet {name}"
        """Family and name, as commands name the table."""
        self.replacements = 0
        """The number of times the whole table was written."""
        self._clock = clock
        self._program = program
        self._read_generation = generation or read_generation
        self._sections: list[NftSection] = []
        self._lock = asyncio.Lock()
        self._in_force = False
        """Whether the table has what the sections rendered last."""
        self._generation: int | None = None
        """The generation of the rules after the last change by this object; None if another program changed rules
        meanwhile."""
        self._fingerprint: str | None = None
        """A digest of the table as it was listed after the last change; None until it is needed."""
        self._failed = asyncio.Event()

    def add_section(self, section: NftSection) -> None:
        """Add a section; call this before the first `update`."""
        self._sections.append(section)

    @property
    def in_force(self) -> bool:
        """Whether the last state that the sections rendered was written."""
        return self._in_force

    async def update(self, section: NftSection) -> bool:
        """Bring a section of the table to its desired state. Return whether the table is in force: it is not while a
        section does not know its state. Raise NftError; then `run` tries again."""
        async with self._lock:
            if self._in_force:
                commands = section.changes()
                if commands == "":
                    return True
                # Until the end of the change, also if it is cancelled, nothing is known about the table.
                self._in_force = False
                if commands is not None:
                    try:
                        await self._commit(commands, replaces=False)
                        self._in_force = True
                        return True
                    except NftError as error:
                        log.warning("replacing the nftables table because a change failed: %s", error)
            return await self._replace()

    async def replace(self) -> bool:
        """Write the whole table in one transaction. Return whether it is in force. Raise NftError."""
        async with self._lock:
            self._in_force = False
            return await self._replace()

    async def delete(self) -> None:
        """Delete the table with all its rules; succeeds if it does not exist. Raise NftError."""
        async with self._lock:
            self._in_force = False
            await self._run("-f", "-", text=f"add table {self.reference}\ndelete table {self.reference}\n")

    async def run(self) -> None:
        """Check the table periodically, and repair it after failures and after changes by other programs. Runs until
        cancelled."""
        backoff = _INITIAL_BACKOFF
        while True:
            if self._failed.is_set():
                self._failed.clear()
                await self._clock.sleep(backoff)
                backoff = min(backoff * 2, _CHECK_PERIOD)
            else:
                try:
                    await within(self._clock, _CHECK_PERIOD, self._failed.wait())
                    continue
                except TimeoutError:
                    backoff = _INITIAL_BACKOFF
            try:
                await self.check()
            except NftError as error:
                log.error("the nftables table %s cannot be written: %s", self.name, error)

    async def check(self) -> None:
        """Compare the table with what was written last, and replace it if it differs. Raise NftError."""
        async with self._lock:
            if not self._in_force:
                await self._replace()
                return
            generation = self._read_generation()
            if generation is not None and generation == self._generation:
                if self._fingerprint is None:
                    found = await self._list()
                    self._fingerprint = found if self._read_generation() == generation else None
                return
            found = await self._list()
            if found is not None and found == self._fingerprint:
                self._generation = generation
                return
            if found is None or self._generation is not None or self._fingerprint is not None:
                log.warning("the nftables table %s was changed by another program; replacing it", self.name)
            self._in_force = False
            await self._replace()

    async def _replace(self) -> bool:
        bodies = []
        for section in self._sections:
            body = section.full()
            if body is None:
                return False
            bodies.append(body)
        name, body = self.reference, "".join(bodies)
        text = f"add table {name}\ndelete table {name}\ntable {name} {{\n{body}}}\n"
        for container, elements in (await self._timed_elements()).items():
            if f"\tset {container} {{" in body:
                text += f"add element {name} {container} {{ {', '.join(elements)} }}\n"
        try:
            await self._commit(text, replaces=True)
        except NftError:
            self._failed.set()
            raise
        self._in_force = True
        self.replacements += 1
        return True

    async def _commit(self, text: str, *, replaces: bool) -> None:
        before, self._fingerprint = self._read_generation(), None
        await self._run("-f", "-", text=text)
        after = self._read_generation()
        # One transaction adds one to the generation: any other difference is a change by another program.
        alone = before is not None and after == before + 1 and (replaces or before == self._generation)
        self._generation = after if alone else None

    async def _timed_elements(self) -> dict[str, list[str]]:
        """Return the addresses that packets have added to sets with a timeout, such as those for session affinity, with
        the remaining time. They survive when the table is replaced."""
        try:
            sets = json.loads(await self._run("-j", "list", "sets", "table", "inet", self.name))["nftables"]
        except (NftError, ValueError, KeyError):
            return {}  # There is no table yet.
        found: dict[str, list[str]] = {}
        for each in (item["set"] for item in sets if "set" in item):
            elements = [item["elem"] for item in each.get("elem") or () if isinstance(item, dict) and "elem" in item]
            texts = [
                f"{element['val']} timeout {each['timeout']}s expires {element['expires']}s"
                for element in elements[:_MAX_TIMED_ELEMENTS]
                if each.get("timeout") and element.get("expires") and _ADDRESS.fullmatch(str(element["val"]))
            ]
            if texts:
                found[each["name"]] = texts
        return found

    async def _list(self) -> str | None:
        """Return a digest of the table without what packets change, or None if there is no table."""
        try:
            text = await self._run("-s", "list", "table", "inet", self.name)
        except NftError as error:
            if "No such file or directory" in str(error):
                return None
            raise
        return _digest(text)

    async def _run(self, *arguments: str, text: str = "") -> str:
        try:
            result = await run_program(self._clock, _TIMEOUT, self._program, *arguments, content=text)
        except ProgramError as error:
            raise NftError(str(error)) from None
        if result.code:
            message = result.errors.strip()[:_MAX_MESSAGE]
            raise NftError(message or f"{self._program} exited with code {result.code}")
        return result.output


def _digest(text: str) -> str:
    """Return a digest of a listed table; elements of dynamic sets come and go with packets and are left out."""
    blocks = (
        block.split("elements =")[0] if re.search(r"flags [a-z,]*dynamic", block) else block
        for block in _BLOCK.split(text)
    )
    return sha256("\n".join(blocks).encode()).hexdigest()


# The message that asks for the generation, from linux/netfilter/nf_tables.h.
_NETLINK_NETFILTER: Final = 12
_NFT_MSG_GETGEN: Final = 10 << 8 | 16
_NLM_F_REQUEST: Final = 1
_NLMSG_ERROR: Final = 2
_NFTA_GEN_ID: Final = 1
_HEADERS: Final = 20
"""The length of the headers of netlink and nfnetlink."""


def read_generation() -> int | None:
    """Return the generation of the rules in the network namespace, which every transaction increases; None if the
    kernel does not answer."""
    request = struct.pack("=IHHII", _HEADERS, _NFT_MSG_GETGEN, _NLM_F_REQUEST, 1, 0) + bytes(4)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as channel:
            channel.settimeout(1.0)
            channel.sendto(request, (0, 0))
            answer = channel.recv(4096)
    except OSError:
        return None
    length, kind = struct.unpack_from("=IH", answer)
    if kind == _NLMSG_ERROR:
        return None
    position = _HEADERS
    while position + 4 <= min(length, len(answer)):
        size, attribute = struct.unpack_from("=HH", answer, position)
        if attribute == _NFTA_GEN_ID:
            return int(struct.unpack_from(">I", answer, position + 4)[0])
        position += (max(size, 4) + 3) & ~3
    return None
