"""The sandbox image: its program runs here, and its archive is complete."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import struct
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from setpoint.node.host.pause_image import (
    PAUSE_IMAGE,
    UnsupportedArchitecture,
    arm64_code,
    pause_archive,
    pause_program,
)

on_amd64 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="runs a program for amd64")


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "pause"
    path.write_bytes(pause_program("amd64"))
    path.chmod(0o755)
    return str(path)


@on_amd64
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_program_ends_with_0_after_a_signal(program: str, number: int) -> None:
    process = subprocess.Popen([program])
    wait_until_asleep(process.pid)
    os.kill(process.pid, signal.SIGCHLD)
    wait_until_asleep(process.pid)
    assert process.poll() is None
    process.send_signal(number)
    assert process.wait(10) == 0


@on_amd64
def test_the_program_reaps_children(program: str) -> None:
    """The shell becomes the program, which has its child then."""
    process = subprocess.Popen(["sh", "-c", f"sleep 0.2 & exec {program}"])
    deadline = time.monotonic() + 10
    seen = False
    while time.monotonic() < deadline:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        seen = seen or bool(children)
        if seen and not children:
            break
        time.sleep(0.01)
    assert seen and not children
    process.terminate()
    assert process.wait(10) == 0


def wait_until_asleep(pid: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if Path(f"/proc/{pid}/comm").read_text().strip() == "pause":
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S":
                return
        time.sleep(0.005)
    raise AssertionError("the program does not wait")


def test_the_code_for_arm64() -> None:
    """Each word was taken from the tables of the architecture's manual, not from the program."""
    words = [
        0xD2800000,  # mov x0, #0
        0x100003A1,  # adr x1, signals (116 bytes ahead)
        0xD2800002,  # mov x2, #0
        0xD2800103,  # mov x3, #8
        0xD28010E8,  # mov x8, #135
        0xD4000001,  # svc #0
        0x10000300,  # adr x0, signals (96 bytes ahead)
        0xD2800001,  # mov x1, #0
        0xD2800002,  # mov x2, #0
        0xD2800103,  # mov x3, #8
        0xD2801128,  # mov x8, #137
        0xD4000001,  # svc #0
        0x7100441F,  # cmp w0, #17
        0x54000100,  # b.eq 8 instructions ahead
        0x7100081F,  # cmp w0, #2
        0x54000060,  # b.eq 3 instructions ahead
        0x71003C1F,  # cmp w0, #15
        0x54FFFEA1,  # b.ne 11 instructions back
        0xD2800000,  # mov x0, #0
        0xD2800BC8,  # mov x8, #94
        0xD4000001,  # svc #0
        0x92800000,  # mov x0, #-1
        0xD2800001,  # mov x1, #0
        0xD2800022,  # mov x2, #1
        0xD2800003,  # mov x3, #0
        0xD2802088,  # mov x8, #260
        0xD4000001,  # svc #0
        0x7100001F,  # cmp w0, #0
        0x54FFFF2C,  # b.gt 7 instructions back
        0x17FFFFE9,  # b 23 instructions back
    ]
    code = arm64_code()
    found = struct.unpack(f"<{len(words)}I", code[: 4 * len(words)])
    assert [hex(word) for word in found] == [hex(word) for word in words]
    assert code[4 * len(words) :] == struct.pack("<Q", 1 << 1 | 1 << 14 | 1 << 16)


@pytest.mark.parametrize(("architecture", "machine"), [("amd64", 62), ("arm64", 183)])
def test_the_elf_header(architecture: str, machine: int) -> None:
    program = pause_program(architecture)
    assert program[:6] == b"\x7fELF\x02\x01"
    kind, number, _, entry, headers = struct.unpack_from("<HHIQQ", program, 16)
    assert (kind, number, entry, headers) == (2, machine, 0x400000 + 120, 64)
    segment, flags, offset, address, _, in_file, in_memory, _ = struct.unpack_from("<IIQQQQQQ", program, 64)
    assert (segment, flags, offset, address) == (1, 5, 0, 0x400000)
    assert in_file == in_memory == len(program)


def test_other_architectures() -> None:
    with pytest.raises(UnsupportedArchitecture, match=r"no sandbox image for s390x.*--pod-infra-container-image"):
        pause_program("s390x")


def test_the_archive() -> None:
    content = pause_archive("amd64")
    assert content == pause_archive("amd64")
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        files = {entry.name: archive.extractfile(entry).read() for entry in archive}  # type: ignore[union-attr]

    def blob(descriptor: Any) -> bytes:
        algorithm, _, digest = descriptor["digest"].partition(":")
        found = files[f"blobs/{algorithm}/{digest}"]
        assert (hashlib.sha256(found).hexdigest(), len(found)) == (digest, descriptor["size"])
        return found

    (described,) = json.loads(files["index.json"])["manifests"]
    assert described["annotations"]["io.containerd.image.name"] == PAUSE_IMAGE
    manifest = json.loads(blob(described))
    config = json.loads(blob(manifest["config"]))
    assert config["config"]["Entrypoint"] == ["/pause"] and config["architecture"] == "amd64"
    with tarfile.open(fileobj=io.BytesIO(blob(manifest["layers"][0]))) as layer:
        entry = layer.getmember("pause")
        assert entry.mode == 0o755 and entry.mtime == 0
        assert layer.extractfile(entry).read() == pause_program("amd64")  # type: ignore[union-attr]
