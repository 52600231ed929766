"""The process that listens on a port, from a /proc of the test and from the real one."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from setpoint.cluster.procfs import listening_process

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


def test_a_process_is_described_by_its_command_line(proc: Path) -> None:
    assert listening_process(6443, proc) == "setpoint up --detach (process 7, in /home/me/shop)"


def test_a_client_connection_does_not_count_as_listening(proc: Path) -> None:
    assert listening_process(80, proc) == ""
    assert listening_process(1, proc) == ""


def test_an_unreadable_process_and_a_missing_proc_are_unknown(proc: Path, tmp_path: Path) -> None:
    (proc / "net" / "tcp").write_text(TABLE + listening(6443, 99))
    assert listening_process(6443, proc) == ""
    assert listening_process(6443, tmp_path / "no-proc") == ""


def test_control_characters_of_a_command_line_are_replaced(proc: Path) -> None:
    (proc / "7" / "cmdline").write_bytes(b"evil\x1b[2J\0" + b"x" * 500)
    shown = listening_process(6443, proc)
    assert "\x1b" not in shown and len(shown) < 120


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_the_current_process_is_found() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert f"(process {os.getpid()}, in {os.getcwd()})" in listening_process(taken.getsockname()[1])
