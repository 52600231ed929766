"""The documents are true where a machine can tell: links lead somewhere, commands parse, files they name exist."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from setpoint.cli.catalog import GROUPS
from setpoint.cli.catalog import ROOT as ROOT_COMMAND
from setpoint.cli.command import Command, loaded
from setpoint.cli.flags import Flag, shown_default
from setpoint.cli.main import find_command, flags_of

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "setpoint"
EXAMPLES = sorted((ROOT / "examples").rglob("*.md"))
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *EXAMPLES])
WITH_COMMANDS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "docs" / "backup-and-restore.md",
    ROOT / "docs" / "plan.md",
    ROOT / "docs" / "snapshots.md",
    ROOT / "docs" / "how-to" / "separate-processes.md",
    ROOT / "docs" / "how-to" / "several-cores.md",
    ROOT / "docs" / "high-availability.md",
    ROOT / "docs" / "history.md",
    ROOT / "docs" / "page.md",
    ROOT / "docs" / "classroom.md",
    ROOT / "docs" / "lessons.md",
    ROOT / "docs" / "why.md",
    *sorted((ROOT / "docs" / "tutorials").glob("*.md")),
    *(page for page in EXAMPLES if page.parent.parent != ROOT),
]
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
COMMANDS = (
    "up",
    "down",
    "status",
    "list",
    "page",
    "class",
    "watch",
    "loops",
    "fault",
    "demo",
    "lesson",
    "backup",
    "restore",
    "store",
    "reset",
    "kubeconfig",
    "token",
    "member",
    "apiserver",
    "controller-manager",
    "node",
    "nodes",
    "scheduler",
)

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
FLAG = re.compile(r"`(--[\w-]+)`")
A_PATH = re.compile(r"[\w.][\w.-]*(/[\w.-]+)*/?")
"""`meta/errors.py`, `kinds/data/`: not `/healthz`, nor what has a placeholder in it."""
OF_THE_REPOSITORY = re.compile(r"(src|tests|docs|tools|bench|examples)/|[\w./-]+\.(py|md|txt|jsonl?|toml)$")


def prose(text: str) -> str:
    return FENCE.sub("", text)


def title(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(path: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", prose(path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def command_lines(path: Path) -> list[str]:
    blocks = [re.sub(r"\$\([^)]*\)", "NAME", block) for block in FENCE.findall(path.read_text())]
    lines = [part.strip() for block in blocks for line in block.splitlines() for part in line.split("&&")]
    return [line.removeprefix(".venv/bin/") for line in lines if re.match(r"(\.venv/bin/)?setpoint\b", line)]


def command_named(name: str) -> Command:
    found = ROOT_COMMAND.child(name)
    assert found is not None, f"there is no `setpoint {name}`"
    return loaded(found)


def flags(commands: tuple[str, ...] = COMMANDS) -> dict[str, list[Flag]]:
    """All flags of these commands, by their names."""
    known: dict[str, list[Flag]] = {}
    for command in commands:
        for flag in command_named(command).flags:
            for name in (flag.name, *flag.alias):
                known.setdefault(f"--{name}", []).append(flag)
    return known


def flag_rows() -> Iterator[tuple[list[str], str]]:
    """Yield the rows of the table of server flags: names, and the default as the page states it."""
    for line in (ROOT / "docs" / "reference" / "server-flags.md").read_text().splitlines():
        if line.startswith("| `--"):
            names, default, _ = (cell.strip() for cell in line.strip("|").split("|", 2))
            yield FLAG.findall(names), default


@pytest.mark.parametrize("document", DOCUMENTS, ids=title)
def test_links_lead_somewhere(document: Path) -> None:
    broken = []
    for link in LINK.findall(prose(document.read_text())):
        if link.startswith(("https://", "http://")):
            continue
        target, _, anchor = link.partition("#")
        path = (document.parent / target).resolve() if target else document
        if not path.exists() or (anchor and anchor not in anchors(path)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("document", WITH_COMMANDS, ids=title)
def test_commands_parse(document: Path) -> None:
    lines = command_lines(document)
    assert lines, "there should be something to try"
    for line in lines:
        path = ["setpoint"]
        _, *words = shlex.split(line, comments=True)
        command, words = find_command(words, path)
        assert command is not ROOT_COMMAND, f"there is no `{line}`"
        flags_of(command).parse(words, interspersed=command.interspersed)  # and runs nothing


def test_flags_of_the_table_exist() -> None:
    known = flags()
    listed = [flag for names, _ in flag_rows() for flag in names]
    assert len(listed) > 10
    assert [flag for flag in listed if flag not in known] == []


def test_defaults_of_the_table_are_right() -> None:
    """It is a table of the flags of servers."""
    known = flags(("up", "apiserver"))
    for names, told in flag_rows():
        for name in names:
            for default in {shown_default(flag).strip("'[]") for flag in known[name]} - {""}:
                assert default in told, f"{name} has the default {default}, the page says {told!r}"


def test_commands_are_mentioned() -> None:
    servers = {*GROUPS["A cluster"], *GROUPS["Its parts, each in a process of its own"]}
    assert servers == set(COMMANDS), "describe the new command in the documents, and add it here"


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_make_knows_its_targets(document: str) -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    used: set[str] = set()
    for block in FENCE.findall((ROOT / document).read_text()):
        used |= set(re.findall(r"^make (?:\w+=\S+ )?(\w+)", block, re.MULTILINE))
    assert used
    assert used <= targets


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_up_passes_options_on() -> None:
    # This may itself run under make, whose flags are inherited and change what is printed.
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "-n", "up", "ARGS=--port 7443 --nodes 1"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ".venv/bin/setpoint up --port 7443 --nodes 1"


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "docs/reference/modules.md"])
def test_paths_of_modules_exist(document: str) -> None:
    """Paths in these documents are below the package or below the repository."""
    missing = []
    for word in CODE.findall(prose((ROOT / document).read_text())):
        if "/" in word and A_PATH.fullmatch(word) and not ((SOURCE / word).exists() or (ROOT / word).exists()):
            missing.append(word)
    assert missing == []


def test_every_package_is_described() -> None:
    packages = {path.name for path in SOURCE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    named = set(re.findall(r"`(\w+)/`", (ROOT / "ARCHITECTURE.md").read_text()))
    assert packages <= named


def test_every_decision_is_linked() -> None:
    links = set(LINK.findall((ROOT / "ARCHITECTURE.md").read_text()))
    assert DECISIONS
    assert [title(page) for page in DECISIONS if title(page) not in links] == []


@pytest.mark.parametrize("page", DECISIONS, ids=title)
def test_decisions_say_why_and_why_not(page: Path) -> None:
    text = page.read_text()
    assert [part for part in ("Context", "Decision", "Consequences", "Rejected") if f"**{part}.**" not in text] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=title)
def test_files_that_are_named_exist(document: Path) -> None:
    words = CODE.findall(prose(document.read_text()))
    for block in FENCE.findall(document.read_text()):
        words += re.findall(r"(?<!\S)(?:src|tests|docs|tools|bench|examples)/[\w./-]+", block)
    named = [word for word in words if A_PATH.fullmatch(word) and OF_THE_REPOSITORY.match(word)]
    assert [word for word in named if not ((ROOT / word).exists() or (SOURCE / word).exists())] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=title)
def test_lines_can_be_read(document: Path) -> None:
    """Long lines only where they cannot be broken: in tables and in commands."""
    lines = prose(document.read_text()).splitlines()
    assert [line for line in lines if len(line) > 120 and not line.startswith("|")] == []
