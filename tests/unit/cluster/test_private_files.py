"""Only its owner can read the files in a data directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from setpoint.cli.private_file import write_privately
from setpoint.cluster.apiserver import apiserver
from setpoint.cluster.config import ApiServerConfig, ConfigError
from setpoint.cluster.outgoing_tls import FrontProxy, kubelet_tls
from setpoint.cluster.private_files import ensure_private_directory, restrict_secrets, write_private
from setpoint.system import SystemClock


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_a_new_directory_is_private(tmp_path: Path) -> None:
    ensure_private_directory(tmp_path / "a" / "b")
    assert mode(tmp_path / "a" / "b") == 0o700


@pytest.mark.parametrize("found", [(), ("state.db", "x"), ("pki",), ("up.log",)])
def test_a_data_directory_is_made_private(tmp_path: Path, found: tuple[str, ...]) -> None:
    for name in found:
        (tmp_path / name).touch()
    tmp_path.chmod(0o755)
    ensure_private_directory(tmp_path)
    assert mode(tmp_path) == 0o700


@pytest.mark.parametrize(("bits", "name"), [(0o755, "thesis.txt"), (0o1777, "state.db")])
def test_another_directory_is_rejected_and_unchanged(tmp_path: Path, bits: int, name: str) -> None:
    (tmp_path / name).touch()
    tmp_path.chmod(bits)
    with pytest.raises(ConfigError, match=f"is accessible to other users .mode {bits:04o}. and contains other files"):
        ensure_private_directory(tmp_path)
    assert mode(tmp_path) == bits


SECRETS = ("admin.kubeconfig", "state.db-wal", "pki/ca.key", "pki/client.pem", "pki/front-proxy/ca.key")


def world_readable(directory: Path) -> Path:
    (directory / "pki" / "front-proxy").mkdir(parents=True)
    for name in (*SECRETS, "pki/ca.crt"):
        (directory / name).touch()
    for path in (directory, *directory.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    return directory


def test_keys_and_their_folders_are_made_private_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = world_readable(tmp_path / "data")
    restrict_secrets(data, data / "pki")
    assert {name: mode(data / name) for name in SECRETS} == dict.fromkeys(SECRETS, 0o600)
    assert [mode(data / name) for name in ("pki", "pki/front-proxy", "pki/ca.crt")] == [0o700, 0o700, 0o666]
    warnings = {record.getMessage() for record in caplog.records if record.levelname == "WARNING"}
    assert f"{data / 'pki'} was accessible to other users (mode 0777); changed to mode 0700" in warnings
    assert len(warnings) == len(SECRETS) + 2
    caplog.clear()
    restrict_secrets(data, data / "pki")
    assert not caplog.records


def test_folders_outside_the_data_directory_are_unchanged(tmp_path: Path) -> None:
    keys = world_readable(tmp_path / "elsewhere") / "pki"
    restrict_secrets(tmp_path / "data", keys)
    assert [mode(path) for path in (keys, keys / "front-proxy", keys / "ca.key")] == [0o777, 0o700, 0o600]


async def test_all_secrets_are_private_without_a_umask(tmp_path: Path) -> None:
    data, before = tmp_path / "data", os.umask(0)
    try:
        async with apiserver(ApiServerConfig(data, port=0)) as server:
            assert server.certificates is not None
            FrontProxy(server.certificates, SystemClock()).certificate  # noqa: B018 (made when it is first needed)
            kubelet_tls(ApiServerConfig(data), server.certificates, SystemClock())()
    finally:
        os.umask(before)
    made = {str(path.relative_to(data)): path for path in data.rglob("*")}
    assert {name: mode(path) for name, path in made.items() if path.is_dir()} == {
        "pki": 0o700,
        "pki/front-proxy": 0o700,
    }
    secret = {name for name, path in made.items() if path.is_file() and contains_a_secret(path)}
    assert secret >= {"admin.kubeconfig", "scheduler.kubeconfig", "state.db", "pki/ca.key", "pki/apiserver.key"}
    assert secret >= {"pki/front-proxy/front-proxy-client.pem", "pki/apiserver-kubelet-client.pem"}
    assert {name: mode(made[name]) for name in secret} == dict.fromkeys(secret, 0o600)


def contains_a_secret(path: Path) -> bool:
    return path.name.startswith("state.db") or any(
        sign in path.read_bytes() for sign in (b"PRIVATE KEY", b"client-key-data", b"token")
    )


def test_a_leftover_temporary_file_does_not_expose_a_secret(tmp_path: Path) -> None:
    for write, ending in ((write_private, f".{os.getpid()}.new"), (write_privately, ".new")):
        path = tmp_path / write.__name__
        left = path.with_name(path.name + ending)
        left.touch()
        left.chmod(0o666)
        write(path, b"secret")
        assert (mode(path), path.read_bytes(), left.exists()) == (0o600, b"secret", False)


def test_a_file_as_data_directory_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(ConfigError, match="cannot use the data directory"):
        ensure_private_directory(tmp_path / "f")


def test_several_processes_may_write_one_file(tmp_path: Path) -> None:
    """Components on one machine write the same list of servers."""
    program = (
        "import pathlib, sys; from setpoint.cluster.private_files import write_private\n"
        "for _ in range(500): write_private(pathlib.Path(sys.argv[1]), b'[]')"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "servers.json")]
    writers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    assert [(writer.communicate(timeout=60)[1], writer.returncode) for writer in writers] == [("", 0)] * 2
    assert [path.name for path in tmp_path.iterdir()] == ["servers.json"]
