"""Makes the sandbox image: one static program of a few hundred bytes that holds the namespaces of a Pod.

The program blocks SIGINT, SIGTERM and SIGCHLD and waits for them. It exits with 0 after the first two, and reaps all
ended child processes after the third: with a shared process namespace, it is the parent of orphaned processes.
`Assembler` and the two functions after it produce the machine code; nothing is downloaded or compiled. The program for
arm64 has not been run on such a machine; only its encoding is tested."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
import tarfile
from typing import Final

PAUSE_VERSION: Final = "1"
PAUSE_IMAGE: Final = f"localhost/setpoint/pause:{PAUSE_VERSION}"
PINNED_LABEL: Final = "io.cri-containerd.pinned=pinned"
"""The label by which containerd reports an image as pinned, so that it is never removed to free space."""

_SIGINT, _SIGTERM, _SIGCHLD = 2, 15, 17
_SIGNALS = sum(1 << (number - 1) for number in (_SIGINT, _SIGTERM, _SIGCHLD))
_SIGSET_BYTES = 8
_WNOHANG = 1
_BASE = 0x400000
_HEADERS = 64 + 56
"""Bytes of the ELF header and of one program header, after which the code starts."""
_MACHINES = {"amd64": 62, "arm64": 183}
"""The ELF numbers of machines by architecture."""


class UnsupportedArchitecture(ValueError):
    """There is no program for this architecture."""


class Assembler:
    """Collects machine code with labels. References to labels are resolved when all code is there."""

    def __init__(self) -> None:
        self._code = bytearray()
        self._labels: dict[str, int] = {}
        self._references: list[tuple[int, str, str]] = []
        """Position, label and kind of each reference."""

    def label(self, name: str) -> None:
        self._labels[name] = len(self._code)

    def emit(self, code: bytes) -> None:
        self._code += code

    def word(self, value: int) -> None:
        self._code += struct.pack("<I", value)

    def refer(self, label: str, kind: str) -> None:
        """Mark the last four bytes as a reference: `rel32` of x86-64, or `adr`, `b` and `b.cond` of arm64."""
        self._references.append((len(self._code) - 4, label, kind))

    def code(self) -> bytes:
        for at, label, kind in self._references:
            (word,) = struct.unpack_from("<I", self._code, at)
            if kind == "rel32":  # relative to the end of the instruction
                word = (self._labels[label] - (at + 4)) & 0xFFFFFFFF
            else:
                offset = self._labels[label] - at
                if kind == "adr":
                    word |= (offset & 3) << 29 | ((offset >> 2) & 0x7FFFF) << 5
                elif kind == "b":
                    word |= (offset >> 2) & 0x3FFFFFF
                else:
                    word |= ((offset >> 2) & 0x7FFFF) << 5
            struct.pack_into("<I", self._code, at, word)
        return bytes(self._code)


def amd64_code() -> bytes:
    """Return the program for x86-64. System calls have their number in eax, and arguments in rdi, rsi, rdx, r10."""
    make = Assembler()

    def call(number: int) -> None:
        make.emit(b"\xb8" + struct.pack("<I", number))  # mov eax, number
        make.emit(b"\x0f\x05")  # syscall

    def signals(register: bytes) -> None:
        make.emit(register + b"\0\0\0\0")  # lea register, [rip + signals]
        make.refer("signals", "rel32")

    def jump(opcode: bytes, label: str) -> None:
        make.emit(opcode + b"\0\0\0\0")
        make.refer(label, "rel32")

    zero_rdi, zero_rsi, zero_rdx, zero_r10 = b"\x31\xff", b"\x31\xf6", b"\x31\xd2", b"\x45\x31\xd2"
    size_r10 = b"\x41\xba" + struct.pack("<I", _SIGSET_BYTES)  # mov r10d, 8
    jump_equal, jump_not_equal, jump_greater, jump_always = b"\x0f\x84", b"\x0f\x85", b"\x0f\x8f", b"\xe9"

    make.emit(zero_rdi)  # SIG_BLOCK
    signals(b"\x48\x8d\x35")  # rsi
    make.emit(zero_rdx + size_r10)
    call(14)  # rt_sigprocmask
    make.label("wait")
    signals(b"\x48\x8d\x3d")  # rdi
    make.emit(zero_rsi + zero_rdx + size_r10)
    call(128)  # rt_sigtimedwait
    for number, opcode, label in (
        (_SIGCHLD, jump_equal, "reap"),
        (_SIGINT, jump_equal, "end"),
        (_SIGTERM, jump_not_equal, "wait"),
    ):
        make.emit(b"\x83\xf8" + bytes([number]))  # cmp eax, number
        jump(opcode, label)
    make.label("end")
    make.emit(zero_rdi)
    call(231)  # exit_group
    make.label("reap")
    make.emit(b"\xbf\xff\xff\xff\xff")  # mov edi, -1
    make.emit(zero_rsi)
    make.emit(b"\xba" + struct.pack("<I", _WNOHANG))  # mov edx, WNOHANG
    make.emit(zero_r10)
    call(61)  # wait4
    make.emit(b"\x85\xc0")  # test eax, eax
    jump(jump_greater, "reap")
    jump(jump_always, "wait")
    make.label("signals")
    make.emit(struct.pack("<Q", _SIGNALS))
    return make.code()


def arm64_code() -> bytes:
    """Return the program for arm64. System calls have their number in x8, and arguments in x0 to x3."""
    make = Assembler()

    def move(register: int, value: int) -> None:
        make.word(0xD2800000 | value << 5 | register)  # movz

    def call(number: int) -> None:
        move(8, number)
        make.word(0xD4000001)  # svc #0

    def signals(register: int) -> None:
        make.word(0x10000000 | register)  # adr
        make.refer("signals", "adr")

    def compare(value: int) -> None:
        make.word(0x7100001F | value << 10)  # cmp w0, value

    def branch(condition: int, label: str) -> None:
        make.word(0x54000000 | condition)
        make.refer(label, "b.cond")

    equal, not_equal, greater = 0, 1, 12
    move(0, 0)  # SIG_BLOCK
    signals(1)
    move(2, 0)
    move(3, _SIGSET_BYTES)
    call(135)  # rt_sigprocmask
    make.label("wait")
    signals(0)
    move(1, 0)
    move(2, 0)
    move(3, _SIGSET_BYTES)
    call(137)  # rt_sigtimedwait
    for number, condition, label in ((_SIGCHLD, equal, "reap"), (_SIGINT, equal, "end"), (_SIGTERM, not_equal, "wait")):
        compare(number)
        branch(condition, label)
    make.label("end")
    move(0, 0)
    call(94)  # exit_group
    make.label("reap")
    make.word(0x92800000)  # movn x0, #0: -1
    move(1, 0)
    move(2, _WNOHANG)
    move(3, 0)
    call(260)  # wait4
    compare(0)
    branch(greater, "reap")
    make.word(0x14000000)  # b
    make.refer("wait", "b")
    make.label("signals")
    make.emit(struct.pack("<Q", _SIGNALS))
    return make.code()


def pause_program(architecture: str) -> bytes:
    """Return the program as an ELF file. Raise UnsupportedArchitecture."""
    if architecture not in _MACHINES:
        raise UnsupportedArchitecture(
            f"there is no sandbox image for {architecture}; name one with --pod-infra-container-image"
        )
    code = amd64_code() if architecture == "amd64" else arm64_code()
    size = _HEADERS + len(code)
    identification = b"\x7fELF" + bytes([2, 1, 1, 0]) + bytes(8)  # 64 bits, little endian, version 1, System V
    header = identification + struct.pack(
        "<HHIQQQIHHHHHH", 2, _MACHINES[architecture], 1, _BASE + _HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0
    )
    # One segment that is loaded, readable and executable. The alignment suits pages of up to 64 KiB.
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x10000)
    return header + segment + code


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def pause_archive(architecture: str, name: str = PAUSE_IMAGE) -> bytes:
    """Return the image as an OCI archive, with the same bytes each time."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        _add(archive, "pause", pause_program(architecture), 0o755)
    packed = gzip.compress(layer.getvalue(), mtime=0)
    config = _json(
        {
            "created": "1970-01-01T00:00:00Z",
            "architecture": architecture,
            "os": "linux",
            "config": {"User": "65535:65535", "Entrypoint": ["/pause"], "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer.getvalue())]},
            "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "setpoint"}],
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _descriptor("application/vnd.oci.image.config.v1+json", config),
            "layers": [_descriptor("application/vnd.oci.image.layer.v1.tar+gzip", packed)],
        }
    )
    described = _descriptor("application/vnd.oci.image.manifest.v1+json", manifest)
    described["platform"] = {"architecture": architecture, "os": "linux"}
    described["annotations"] = {
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
    }
    files = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json({"schemaVersion": 2, "manifests": [described]}),
        **{f"blobs/sha256/{hashlib.sha256(each).hexdigest()}": each for each in (config, manifest, packed)},
    }
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, content in files.items():
            _add(archive, path, content)
    return whole.getvalue()


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _descriptor(media_type: str, content: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}
