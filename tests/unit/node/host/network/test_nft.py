"""The owner of the node's table: transactions, failures, and changes by other programs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from setpoint.node.host.network.nft import NftError, NftTable
from setpoint.system import SystemClock
from setpoint.tasks import child_tasks

PROGRAM = """#!/bin/sh
cd "$(dirname "$0")"
if [ "$1" = -s ]; then cat listed; exit; fi
if [ "$1" = -j ]; then cat sets 2> /dev/null; exit; fi
cat > input
grep -q "bad" input && { echo "Error: bad rule" >&2; exit 1; }
echo x >> generations
{ cat input; echo ==; } >> inputs
"""


class Section:
    def __init__(self, text: str | None, commands: str | None = "") -> None:
        self.text, self.commands = text, commands

    def full(self) -> str | None:
        return self.text

    def changes(self) -> str | None:
        return self.commands


class Kernel:
    """A program in the place of nft, which records what it is given."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.program = directory / "nft"
        self.program.write_text(PROGRAM)
        self.program.chmod(0o755)
        (directory / "listed").write_text("")

    def table(self, *sections: Section) -> NftTable:
        table = NftTable("t", SystemClock(), program=str(self.program), generation=self.generation)
        for section in sections:
            table.add_section(section)
        return table

    def generation(self) -> int:
        path = self.directory / "generations"
        return path.read_text().count("x") if path.exists() else 0

    def change(self, listed: str) -> None:
        """Another program changes rules."""
        (self.directory / "listed").write_text(listed)
        with (self.directory / "generations").open("a") as file:
            file.write("x")

    def inputs(self) -> list[str]:
        path = self.directory / "inputs"
        return path.read_text().split("==\n")[:-1] if path.exists() else []


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


REPLACEMENT = "add table inet t\ndelete table inet t\ntable inet t {\n%s}\n"


async def test_the_table_is_written_when_all_sections_know_their_state(kernel: Kernel) -> None:
    first, second = Section("\tchain a {\n\t}\n"), Section(None)
    table = kernel.table(first, second)
    assert not await table.update(first)
    assert not table.in_force and kernel.inputs() == []
    second.text = "\tchain b {\n\t}\n"
    assert await table.update(second)
    assert kernel.inputs() == [REPLACEMENT % "\tchain a {\n\t}\n\tchain b {\n\t}\n"]


async def test_changes_are_incremental(kernel: Kernel) -> None:
    section = Section("")
    table = kernel.table(section)
    await table.update(section)
    await table.update(section)
    assert len(kernel.inputs()) == 1
    section.commands = "add chain inet t c\n"
    await table.update(section)
    assert kernel.inputs()[1:] == ["add chain inet t c\n"]
    section.commands = None
    await table.update(section)
    assert table.replacements == 2


async def test_a_change_that_fails_replaces_the_table(kernel: Kernel) -> None:
    section = Section("", "bad\n")
    table = kernel.table(section)
    await table.update(section)
    assert await table.update(section)
    assert kernel.inputs() == [REPLACEMENT % ""] * 2


async def test_a_change_that_is_cancelled_replaces_the_table(kernel: Kernel) -> None:
    section = Section("", "add chain inet t c\n")
    table = kernel.table(section)
    await table.update(section)
    async with child_tasks(table.update(section)):
        await asyncio.sleep(0)  # the change has begun
    assert not table.in_force
    assert await table.update(section)
    assert table.replacements == 2


async def test_a_table_that_cannot_be_written_is_tried_again(kernel: Kernel) -> None:
    section = Section("bad\n")
    table = kernel.table(section)
    with pytest.raises(NftError, match="Error: bad rule"):
        await table.update(section)
    assert not table.in_force
    section.text = "good\n"
    async with child_tasks(table.run()):
        async with asyncio.timeout(10):
            while not table.in_force:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def test_a_program_that_does_not_exist(kernel: Kernel) -> None:
    kernel.program.unlink()
    section = Section("")
    with pytest.raises(NftError, match=r"cannot run .*nft: No such file"):
        await kernel.table(section).update(section)


async def test_changes_by_other_programs(kernel: Kernel) -> None:
    section = Section("")
    table = kernel.table(section)
    await table.update(section)
    dynamic = "\n\tset d {\n\t\tflags dynamic,timeout\n\t\telements = { %s }\n\t}\n\tchain c {\n\t}"
    (kernel.directory / "listed").write_text("table inet t {" + dynamic % "10.0.0.1")
    await table.check()
    kernel.change("table inet t {" + dynamic % "10.0.0.2")
    await table.check()
    assert table.replacements == 1
    kernel.change("table inet t {")
    await table.check()
    assert table.replacements == 2


async def test_a_change_before_the_table_was_listed_replaces_it(kernel: Kernel) -> None:
    section = Section("")
    table = kernel.table(section)
    await table.update(section)
    kernel.change("")
    section.commands = "add chain inet t c\n"
    await table.update(section)
    await table.check()
    assert table.replacements == 2
    await table.check()
    assert table.replacements == 2


async def test_clients_of_session_affinity_survive_a_replacement(kernel: Kernel) -> None:
    section = Section("\tset known {\n\t}\n\tset empty {\n\t}\n")
    elements = [{"elem": {"val": "10.0.0.1", "expires": 7}}, "10.0.0.2", {"concat": []}, {"elem": {"val": "10.0.0.3"}}]
    sets = [
        {"metainfo": {}},
        {"set": {"name": "known", "timeout": 10, "elem": elements}},
        {"set": {"name": "unknown", "timeout": 10, "elem": elements}},
        {"set": {"name": "empty", "timeout": 10}},
    ]
    (kernel.directory / "sets").write_text(json.dumps({"nftables": sets}))
    await kernel.table(section).update(section)
    (written,) = kernel.inputs()
    assert written.endswith("}\nadd element inet t known { 10.0.0.1 timeout 10s expires 7s }\n")


async def test_the_table_is_deleted(kernel: Kernel) -> None:
    await kernel.table().delete()
    assert kernel.inputs() == ["add table inet t\ndelete table inet t\n"]


def test_names_of_tables() -> None:
    with pytest.raises(ValueError, match="invalid name"):
        NftTable("a b", SystemClock())
