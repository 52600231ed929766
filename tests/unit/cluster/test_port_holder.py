"""Who holds a port, read from a /proc that is a test's, and from the machine's own."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from setpoint.cluster.port_holder import port_holder

TABLE = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def listening(port: int, inode: int, state: str = "0A") -> str:
    return f"   0: 0100007F:{port:04X} 00000000:0000 {state} 0:0 00:0 0     0        0 {inode} 1\n"


def process(proc: Path, number: int, inode: int, *words: str) -> None:
    (proc / str(number) / "fd").mkdir(parents=True)
    (proc / str(number) / "fd" / "3").symlink_to(f"socket:[{inode}]")
    (proc / str(number) / "cwd").symlink_to("/home/me/shop")
    (proc / str(number) / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "tcp").write_text(TABLE + listening(6443, 77) + listening(80, 78, state="01"))
    process(tmp_path, 7, 77, "/usr/bin/python3", "/srv/.venv/bin/setpoint", "up", "--detach")
    process(tmp_path, 8, 78, "curl")
    return tmp_path


def test_a_process_is_described_as_people_know_it(proc: Path) -> None:
    assert port_holder(6443, proc) == "setpoint up --detach (process 7, in /home/me/shop)"


def test_who_merely_uses_the_port_number_does_not_hold_it(proc: Path) -> None:
    assert port_holder(80, proc) == ""
    assert port_holder(1, proc) == ""


def test_somebody_elses_process_and_another_system(proc: Path, tmp_path: Path) -> None:
    (proc / "net" / "tcp").write_text(TABLE + listening(6443, 99))
    assert port_holder(6443, proc) == ""
    assert port_holder(6443, tmp_path / "no-proc") == ""


def test_a_command_line_cannot_write_on_the_terminal(proc: Path) -> None:
    (proc / "7" / "cmdline").write_bytes(b"evil\x1b[2J\0" + b"x" * 500)
    shown = port_holder(6443, proc)
    assert "\x1b" not in shown and len(shown) < 120


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_this_very_process() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert f"(process {os.getpid()}, in {os.getcwd()})" in port_holder(taken.getsockname()[1])
