"""What `setpoint class` refuses, in the terms of its own flags."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

CLASS = (sys.executable, "-m", "setpoint", "class", "--seats", "1")


def refusal(folder: Path, *flags: str) -> str:
    found = subprocess.run([*CLASS, *flags], cwd=folder, capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stdout) == (1, "")
    assert "page" not in found.stderr, "a class has no flags of the page"
    return found.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--listen foo", "--listen must be HOST:PORT, not 'foo'"),
        ("--listen 0.0.0.0:8443", "needs TLS: set --tls-cert-file and --tls-private-key-file, or --self-signed"),
        ("--self-signed --tls-cert-file x", "--self-signed cannot be combined"),
        (
            "--listen 0.0.0.0:0 --tls-cert-file nowhere --tls-private-key-file nothing",
            "cannot use --tls-cert-file nowhere and --tls-private-key-file nothing: No such file or directory",
        ),
        ("--lessons nowhere", "--lessons nowhere is not a directory"),
    ],
)
def test_flags_that_are_refused(tmp_path: Path, flags: str, message: str) -> None:
    assert message in refusal(tmp_path, *flags.split())


def test_a_port_that_is_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        shown = refusal(tmp_path, "--listen", f"127.0.0.1:{port}")
    assert re.search(f"port {port}, because another program does; .*: --listen 127.0.0.1:0 picks a free one", shown)
