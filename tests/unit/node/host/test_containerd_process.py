"""The life of the agent's own containerd, with a program that only listens."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from setpoint.node.host import containerd_process
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.containerd_config import ContainerdSettings
from setpoint.node.host.containerd_process import ContainerdError, ContainerdProcess, ProcessIdentity, process_start
from setpoint.node.host.directories import NodeDirectories
from setpoint.system import SystemClock

PROGRAM = """#!{python} -IS
import os, signal, socket, sys
if "--version" in sys.argv:
    print("containerd test {version}")
    sys.exit()
print("started", os.getpid(), flush=True)
if {broken}:
    sys.exit(1)
text = open(sys.argv[sys.argv.index("--config") + 1]).read()
path = text.split('address = "')[1].split('"')[0]
if os.path.exists(path):
    os.unlink(path)
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
signal.pause()
"""


class QuickClock(SystemClock):
    """Waits for a tenth of the time."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 10)


class Fixture:
    def __init__(self, base: Path) -> None:
        self.program = base / "containerd"
        self.directories = NodeDirectories(base / "root", base / "logs", base / "run")
        self.pool = BlockingPool(2)
        self.write_program()

    def write_program(self, version: str = "1.7.0", broken: bool = False) -> None:
        text = PROGRAM.format(python=sys.executable, version=version, broken=broken)
        temporary = self.program.with_suffix(".new")
        temporary.write_text(text)
        temporary.chmod(0o755)
        temporary.replace(self.program)

    def process(self, image: str = "pause:1") -> ContainerdProcess:
        settings = ContainerdSettings(image, registry_mirrors={"docker.io": ["http://127.0.0.1:5000"]})
        return ContainerdProcess(self.directories, self.pool, QuickClock(), settings, program=str(self.program))


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Fixture]:
    fixture = Fixture(tmp_path)
    yield fixture
    await fixture.process().stop()
    fixture.pool.close()


async def test_it_is_started_and_adopted_and_stopped(made: Fixture) -> None:
    first = made.process()
    await first.start()
    assert first.version == (1, 7, 0) and first.pid is not None
    assert os.getsid(first.pid) == first.pid
    assert first.endpoint == f"unix://{made.directories.run}/containerd.sock"
    assert (made.directories.containerd / "certs.d/docker.io/hosts.toml").exists()
    assert "started" in first.log_file.read_text()

    second = made.process()
    await second.start()
    assert second.pid == first.pid
    await second.stop()
    assert process_start(first.pid) is None
    assert not (made.directories.run / "containerd.pid").exists()
    assert not second.socket.exists()


async def test_a_changed_configuration_or_version_restarts_it(made: Fixture) -> None:
    first = made.process()
    await first.start()
    second = made.process("other:2")
    await second.start()
    assert second.pid != first.pid and first.pid is not None and process_start(first.pid) is None
    made.write_program("1.7.1")
    third = made.process("other:2")
    await third.start()
    assert third.pid != second.pid and second.pid is not None and process_start(second.pid) is None


async def test_a_process_of_the_same_id_is_not_touched(made: Fixture) -> None:
    """A recorded id that belongs to another process now, such as after a reboot, is neither adopted nor signalled."""
    made.directories.run.mkdir(parents=True)
    record = {"pid": os.getpid(), "started": 1, "config": ""}
    (made.directories.run / "containerd.pid").write_text(json.dumps(record))
    process = made.process()
    await process.stop()
    await process.start()
    assert process.pid != os.getpid()


async def test_one_that_ended_while_no_agent_ran_is_started_again(made: Fixture) -> None:
    first = made.process()
    await first.start()
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    await asyncio.to_thread(os.waitpid, first.pid, 0)
    second = made.process()
    await second.start()
    assert second.pid not in (None, first.pid)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x"}'])
async def test_a_damaged_record_is_ignored(made: Fixture, content: str) -> None:
    """A process that is not recorded is found by its command line, because two of them must not share a directory."""
    first = made.process()
    await first.start()
    (made.directories.run / "containerd.pid").write_text(content)
    second = made.process()
    await second.start()
    assert first.pid is not None and process_start(first.pid) is None
    assert second.pid is not None


async def test_it_is_restarted_when_it_ends(made: Fixture) -> None:
    process = made.process()
    restarted = asyncio.Event()
    await process.start()
    first = process.pid
    assert first is not None
    process.on_restart = restarted.set
    task = asyncio.ensure_future(process.run())
    os.kill(first, signal.SIGKILL)
    async with asyncio.timeout(20):
        await restarted.wait()
    assert process.pid not in (None, first)
    await process.stop()
    async with asyncio.timeout(20):
        await task


async def test_it_is_ready_when_the_runtime_answers(made: Fixture) -> None:
    calls = 0

    async def ping() -> None:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise RuntimeError("server is not initialized yet")

    settings = ContainerdSettings("pause:1")
    process = ContainerdProcess(
        made.directories, made.pool, QuickClock(), settings, program=str(made.program), ping=ping
    )
    await process.start()
    assert calls == 3


async def test_one_that_cannot_start(made: Fixture) -> None:
    made.write_program(broken=True)
    with pytest.raises(ContainerdError, match=r"ended while it started; see .*containerd\.log"):
        await made.process().start()
    made.program.unlink()
    with pytest.raises(ContainerdError, match="cannot run"):
        await made.process().start()
    made.write_program(version="1.6.14")
    with pytest.raises(ContainerdError, match=r"containerd 1\.6\.14 is too old; 1\.6\.15 or later is required"):
        await made.process().start()


async def test_the_log_is_bounded(made: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containerd_process, "_MAX_LOG_BYTES", 100)
    process = made.process()
    await process.start()
    with process.log_file.open("a") as file:
        file.write("x" * 200)
    process._rotate_log()
    assert process.log_file.stat().st_size == 0
    assert process.log_file.with_name("containerd.log.1").read_text().endswith("x" * 200)


def test_the_identity_of_a_process() -> None:
    started = process_start(os.getpid())
    assert started is not None
    assert ProcessIdentity(os.getpid(), started).alive()
    assert not ProcessIdentity(os.getpid(), started + 1).alive()
