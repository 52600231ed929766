"""A real `setpoint apiserver` in a process of its own: TLS, certificates, a data directory."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOKENS = "admin-token,admin,admin-uid,system:masters\nlimited-token,limited,limited-uid,limited\n"


@dataclass(frozen=True, slots=True)
class ServerProcess:
    url: str
    kubeconfig: Path
    """The administrator's, with a client certificate."""
    directory: Path

    @property
    def ca_file(self) -> Path:
        return self.directory / "data" / "pki" / "ca.crt"

    def kubeconfig_with_token(self, token: str) -> Path:
        config = json.loads(self.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token}
        path = self.directory / f"{token}.kubeconfig"
        path.write_text(json.dumps(config))
        return path


@contextlib.contextmanager
def server_process(directory: Path, *flags: str) -> Iterator[ServerProcess]:
    """Pods need no service account here: nobody runs who would make one."""
    tokens = directory / "tokens.csv"
    tokens.write_text(TOKENS)
    command = [
        sys.executable,
        "-m",
        "setpoint",
        "apiserver",
        "--port",
        "0",
        "--data-dir",
        str(directory / "data"),
        "--token-auth-file",
        str(tokens),
        "--disable-admission-plugins",
        "ServiceAccount",
        *flags,
    ]
    with open(directory / "server.log", "wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if " ready at " in line:
                break
        else:
            raise RuntimeError(f"the server did not start:\n{(directory / 'server.log').read_text()}")
        url = line.split(" ready at ")[1].split()[0]
        yield ServerProcess(url, directory / "data" / "admin.kubeconfig", directory)
    finally:
        process.terminate()
        try:
            process.wait(0.5)  # it waits for clients that keep connections; nothing here is worth that
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
