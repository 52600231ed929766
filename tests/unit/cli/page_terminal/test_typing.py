"""What is typed while a line runs: it is read in its order or belongs to the next line, whatever crosses what.

The tab of the last tests is the code of the page, which node runs.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from random import Random

import pytest
from effort import tries
from page_terminal import TypedTerminal, page_terminal
from terminal_tab import TerminalTab, terminal_tab

from setpoint.cli.page_terminal.keyboard import WINDOW
from setpoint.testing import VirtualCluster, virtual


@virtual(nodes=0, controllers=[])
async def test_the_prompt_says_how_much_of_the_input_was_read(cluster: VirtualCluster) -> None:
    async with page_terminal(cluster.client, cluster.clock) as terminal:
        at = terminal.start("read x; sleep 5; echo got $x")
        terminal.conversation.say({"input": "one\ntwo\n"})
        prompt = await terminal.until(at, "prompt")
        assert terminal.shown_since(at) == "got one\n" and prompt["read"] == len("one\n")
        # Nothing of it is kept for the next line: the tab has it.
        at = terminal.start("read x; echo got $x")
        terminal.conversation.say({"input": "three\n"})
        prompt = await terminal.until(at, "prompt")
        assert terminal.shown_since(at) == "got three\n" and prompt["read"] == len("three\n")


@virtual(nodes=0, controllers=[])
async def test_input_that_crosses_the_prompt_is_left_to_the_tab(cluster: VirtualCluster) -> None:
    async with page_terminal(cluster.client, cluster.clock) as terminal:
        at = terminal.start("true")
        await terminal.until(at, "prompt")
        at = len(terminal.sent)
        terminal.conversation.say({"input": "late\n"})
        terminal.conversation.say({"line": "read x; echo got $x"})
        terminal.conversation.say({"input": "😀 in time\n"})
        prompt = await terminal.until(at, "prompt")
        assert terminal.shown_since(at) == "got 😀 in time\n"
        assert prompt["read"] == len("😀 in time\n")  # characters, not the units of JavaScript


@virtual(nodes=0, controllers=[])
async def test_ctrl_c_drops_what_was_not_read_and_ctrl_d_ends_the_input_of_the_line(cluster: VirtualCluster) -> None:
    async with page_terminal(cluster.client, cluster.clock) as terminal:
        at = terminal.start("read x; sleep 5")
        terminal.conversation.say({"input": "one\ntwo\n"})
        terminal.conversation.say({"input": "\x03three\n"})
        terminal.conversation.say({"input": "four\n"})
        prompt = await terminal.until(at, "prompt")
        assert prompt == {"prompt": "~", "status": 130, "read": len("one\ntwo\n\x03")}

        at = terminal.start("cat; cat")
        terminal.conversation.say({"input": "one\n\x04two\n"})
        terminal.conversation.say({"input": "three\n"})
        prompt = await terminal.until(at, "prompt")
        assert terminal.shown_since(at) == "one\n" and prompt["read"] == len("one\n")

        at = terminal.start("sleep 1000")
        terminal.conversation.say({"input": "\x04"})
        terminal.conversation.say({"input": "more\x03"})
        assert (await terminal.until(at, "prompt"))["read"] == len("\x04more\x03")


@virtual(nodes=1)
async def test_keys_of_a_tab_that_does_not_know_yet_that_the_program_has_ended(cluster: VirtualCluster) -> None:
    """While keys are read raw, the tab sends Ctrl-C and Enter as they are."""
    async with page_terminal(cluster.client, cluster.clock) as terminal:
        await terminal("kubectl run sh --image=busybox --command -- sleep 1d")
        await terminal("kubectl wait --for=condition=Ready pod/sh")
        at = terminal.start("kubectl exec -it sh -- sh; read x; echo got $x; sleep 1000")
        await terminal.until(at, "raw")
        terminal.conversation.say({"input": "echo $((40 + 2)\x7f))\r"})
        await terminal.until_shown(at, "42")
        terminal.conversation.say({"input": "exit\r"})
        await terminal.conversation.until(lambda: {"raw": False} in terminal.sent[at:])
        terminal.conversation.say({"input": "late\r"})
        await terminal.until_shown(at, "got late\n")
        terminal.conversation.say({"input": "\x03echo next\r"})
        prompt = await terminal.until(at, "prompt")
        sent = "echo $((40 + 2)\x7f))\rexit\rlate\r\x03"
        assert prompt["status"] == 130 and prompt["read"] == len(sent)


@virtual(nodes=0, controllers=[])
async def test_a_tab_may_send_a_window_ahead_of_what_is_read(cluster: VirtualCluster) -> None:
    async with page_terminal(cluster.client, cluster.clock) as terminal:
        half = "x" * (WINDOW // 2 - 1) + "\n"
        at = terminal.start("sleep 5; read x; sleep 5; cat > rest")
        for _ in range(2):
            terminal.conversation.say({"input": half})
        assert await terminal.until(at, "read") == {"read": WINDOW // 2}
        terminal.conversation.say({"input": half})
        await terminal.conversation.until(lambda: {"read": 3 * len(half)} in terminal.sent)
        terminal.conversation.say({"input": "\x04"})
        prompt = await terminal.until(at, "prompt")
        assert terminal.workspace.file_texts()["rest"] == half * 2 and prompt["read"] == 3 * len(half)
    with pytest.raises(Exception, match="characters ahead"):
        async with page_terminal(cluster.client, cluster.clock) as terminal:
            terminal.start("sleep 5")
            terminal.conversation.say({"input": "x" * (WINDOW + 1)})
            await cluster.sleep(1)


# -- with the code of the page -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TerminalTab]:
    with terminal_tab(tmp_path_factory.mktemp("tab")) as tab:
        yield tab


class Crossing:
    """A terminal and its tab, between which messages wait until the test delivers them."""

    def __init__(self, tab: TerminalTab, terminal: TypedTerminal, cluster: VirtualCluster) -> None:
        self.tab = tab
        self.terminal = terminal
        self._cluster = cluster
        self._received = self._lines = 0
        tab.begin()

    async def to_server(self, most: int = 10**6) -> bool:
        """Deliver messages of the tab; return whether there were any."""
        delivered, self.tab.said[:most] = self.tab.said[:most], []
        for message in delivered:
            self.terminal.conversation.say(message)
            self._lines += "line" in message
        await self.run()
        return bool(delivered)

    def to_tab(self, most: int = 10**6) -> bool:
        """Deliver messages of the server; return whether there were any."""
        delivered = self.terminal.sent[self._received : self._received + most]
        for message in delivered:
            self.tab.receive(message)
        self._received += len(delivered)
        return bool(delivered)

    async def run(self, steps: int = 20) -> None:
        """Let the server run without letting time pass."""
        for _ in range(steps):
            await asyncio.sleep(0)

    async def settle(self) -> None:
        """Deliver everything until nothing happens any more."""
        idle = 0
        while idle < 2:
            moved = await self.to_server()
            await self._cluster.sleep(10)
            moved = self.to_tab() or moved
            self.tab.draw()
            idle = 0 if moved or self.tab.said else idle + 1

    @property
    def is_idle(self) -> bool:
        """Whether every line was run: none is incomplete, none waits for input."""
        answers = [each for each in self.terminal.sent if "prompt" in each or "more" in each]
        return len(answers) == self._lines + 1 and "prompt" in answers[-1]

    @property
    def ran(self) -> list[str]:
        """The lines that the shell has run."""
        return [line for each in self.terminal.workspace.typed for line in each.text.split("\n")]

    @property
    def shown(self) -> str:
        return self.terminal.shown_since(0)


@virtual(nodes=0, controllers=[])
async def test_a_line_that_is_typed_while_the_prompt_returns_is_not_mixed_with_the_next(
    tab: TerminalTab, cluster: VirtualCluster
) -> None:
    async with page_terminal(cluster.client, cluster.clock) as terminal:
        crossing = Crossing(tab, terminal, cluster)
        await crossing.settle()
        tab.press("sleep 5\r")
        await crossing.to_server()
        tab.press("echo typed\r")  # on its way when the line ends
        await cluster.sleep(6)
        assert terminal.sent[-1]["read"] == 0
        crossing.to_tab()
        tab.press("for i in")
        tab.draw()  # the prompt is shown
        tab.press(" 1 2; do echo $i; done\r")
        await crossing.settle()
        assert crossing.ran == ["sleep 5", "echo typed", "for i in 1 2; do echo $i; done"]
        assert crossing.shown == "typed\n1\n2\n"


@virtual(nodes=0, controllers=[])
async def test_what_is_typed_while_the_server_finds_a_line_incomplete_is_not_lost(
    tab: TerminalTab, cluster: VirtualCluster
) -> None:
    async with page_terminal(cluster.client, cluster.clock) as terminal:
        crossing = Crossing(tab, terminal, cluster)
        await crossing.settle()
        tab.press("cat > file <<EOF\rone\rtwo\rEOF\recho do")
        await crossing.to_server()
        crossing.to_tab()
        tab.press("ne\r")
        await crossing.settle()
        assert terminal.workspace.file_texts()["file"] == "one\ntwo\n" and crossing.shown == "done\n"


@virtual(nodes=0, controllers=[])
async def test_a_long_paste_is_read_as_a_whole(tab: TerminalTab, cluster: VirtualCluster) -> None:
    async with page_terminal(cluster.client, cluster.clock) as terminal:
        crossing = Crossing(tab, terminal, cluster)
        await crossing.settle()
        lines = "".join(f"line {number} 😀\n" for number in range(10_000))
        tab.press("sleep 1; cat > pasted\r")
        await crossing.to_server()
        tab.press(lines.replace("\n", "\r"))
        tab.press("\x04echo after\r")
        assert len(tab.said) == 1 and len(tab.said[0]["input"]) == WINDOW
        await crossing.settle()
        assert terminal.workspace.file_texts()["pasted"] == lines
        assert crossing.ran[-1] == "echo after" and crossing.shown == "after\n"


_KINDS = (
    "echo ran {0}",
    "echo ran {0}; sleep 3",
    "echo ran {0}; head -1",
    "echo ran {0}; sleep 2; head -2; sleep 2",
    "echo ran {0} &&",
)
_CONSUMED = re.compile(r"^(?:echo )?ran (\d+)", re.MULTILINE)
"""Shows the number of a line that was run, or that `head` has read."""


@virtual(nodes=0, controllers=[])
async def test_each_line_is_run_or_read_once_and_in_order(tab: TerminalTab, cluster: VirtualCluster) -> None:
    """Random lines, some of which read others, are typed in random pieces with Ctrl-C and Ctrl-D between, while the
    messages in both directions, the screen and the programs advance at random."""
    for seed in range(tries(40, 3_000)):
        random = Random(seed)
        async with page_terminal(cluster.client, cluster.clock) as terminal:
            crossing = Crossing(tab, terminal, cluster)
            keys = _random_keys(random, "\x03" if seed % 2 else "")
            await _play(random, keys, crossing, cluster)
            await crossing.settle()
            number = 1_000
            while not crossing.is_idle:  # a program waits for input, or the line is not complete
                keys += f"echo ran {number}\r"
                tab.press(f"echo ran {number}\r")
                number += 1
                assert number < 1_010, f"seed {seed}: {keys!r}"
                await crossing.settle()
            _check(keys, crossing, seed)


def _random_keys(random: Random, interrupt: str) -> str:
    keys = ""
    for number in range(random.randrange(3, 9)):
        keys += random.choice(_KINDS).format(number) + "\r"
        if random.random() < 0.1:
            keys += "\x04"
    keys += "echo ran 999\r"
    if interrupt:
        at = random.randrange(len(keys))
        if keys[at:].partition("\r")[0].endswith("&&"):  # the rest of this line would decide whether the next one runs
            at = keys.rfind("\r", 0, at) + 1
        keys = keys[:at] + interrupt + keys[at:]
    return keys


async def _play(random: Random, keys: str, crossing: Crossing, cluster: VirtualCluster) -> None:
    at = 0
    while at < len(keys):
        match random.randrange(6):
            case 0 | 1:
                size = random.choice((1, 2, 5, 20))
                crossing.tab.press(keys[at : at + size])
                at += size
            case 2:
                await crossing.to_server(random.randrange(1, 3))
            case 3:
                crossing.to_tab(random.randrange(1, 3))
            case 4:
                crossing.tab.draw()
            case 5:
                await cluster.sleep(random.choice((0.5, 1, 3)))


def _check(keys: str, crossing: Crossing, seed: int) -> None:
    _, _, after = keys.rpartition("\x03")
    typed = [line for part in keys.replace("\x04", "").split("\x03") for line in part.split("\r")[:-1]]
    about = f"seed {seed}: {keys!r}\n{crossing.shown}"
    # No line that is run is a mixture of others, and none is run twice or before an earlier one.
    numbers = [typed.index(line) for line in crossing.ran]
    assert numbers == sorted(set(numbers)), about
    consumed = [int(number) for number in _CONSUMED.findall(crossing.shown)]
    assert consumed == sorted(set(consumed)), about
    # Ctrl-C drops what was typed before it, and nothing else is lost.
    expected = [int(number) for number in re.findall(r"(?:^|\r|\x04)echo ran (\d+)", after)]
    assert consumed[len(consumed) - len(expected) :] == expected, about
