"""What is in a data directory is for its owner alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from setpoint.cli.kubeconfig_merge import write_privately
from setpoint.cluster.apiserver import apiserver
from setpoint.cluster.config import ApiServerConfig, ConfigError
from setpoint.cluster.front_proxy import FrontProxy
from setpoint.cluster.kubelet_client import kubelet_tls
from setpoint.cluster.private_files import keep_private, make_private, write_private
from setpoint.system import SystemClock


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_a_new_directory_is_closed(tmp_path: Path) -> None:
    make_private(tmp_path / "a" / "b")
    assert mode(tmp_path / "a" / "b") == 0o700


@pytest.mark.parametrize("found", [(), ("state.db", "x"), ("pki",), ("up.log",)])
def test_an_open_one_is_closed_where_it_is_ours(tmp_path: Path, found: tuple[str, ...]) -> None:
    for name in found:
        (tmp_path / name).touch()
    tmp_path.chmod(0o755)
    make_private(tmp_path)
    assert mode(tmp_path) == 0o700


@pytest.mark.parametrize(("bits", "name"), [(0o755, "thesis.txt"), (0o1777, "state.db")])
def test_somebody_elses_directory_stays_as_it_is(tmp_path: Path, bits: int, name: str) -> None:
    (tmp_path / name).touch()
    tmp_path.chmod(bits)
    with pytest.raises(ConfigError, match=f"is open to others .mode {bits:04o}. and holds other things"):
        make_private(tmp_path)
    assert mode(tmp_path) == bits


SECRETS = ("admin.kubeconfig", "state.db-wal", "pki/ca.key", "pki/client.pem", "pki/front-proxy/ca.key")


def opened(directory: Path) -> Path:
    (directory / "pki" / "front-proxy").mkdir(parents=True)
    for name in (*SECRETS, "pki/ca.crt"):
        (directory / name).touch()
    for path in (directory, *directory.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    return directory


def test_keys_and_their_folders_are_closed_and_it_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = opened(tmp_path / "data")
    keep_private(data, data / "pki")
    assert {name: mode(data / name) for name in SECRETS} == dict.fromkeys(SECRETS, 0o600)
    assert [mode(data / name) for name in ("pki", "pki/front-proxy", "pki/ca.crt")] == [0o700, 0o700, 0o666]
    said = {record.getMessage() for record in caplog.records if record.levelname == "WARNING"}
    assert f"{data / 'pki'} was open to others (mode 0777); now it has mode 0700" in said
    assert len(said) == len(SECRETS) + 2
    caplog.clear()
    keep_private(data, data / "pki")
    assert not caplog.records


def test_a_folder_elsewhere_is_its_owners_to_close(tmp_path: Path) -> None:
    keys = opened(tmp_path / "elsewhere") / "pki"
    keep_private(tmp_path / "data", keys)
    assert [mode(path) for path in (keys, keys / "front-proxy", keys / "ca.key")] == [0o777, 0o700, 0o600]


async def test_nothing_secret_is_left_open_without_a_umask(tmp_path: Path) -> None:
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
    secret = {name for name, path in made.items() if path.is_file() and holds_a_secret(path)}
    assert secret >= {"admin.kubeconfig", "scheduler.kubeconfig", "state.db", "pki/ca.key", "pki/apiserver.key"}
    assert secret >= {"pki/front-proxy/front-proxy-client.pem", "pki/apiserver-kubelet-client.pem"}
    assert {name: mode(made[name]) for name in secret} == dict.fromkeys(secret, 0o600)


def holds_a_secret(path: Path) -> bool:
    return path.name.startswith("state.db") or any(
        sign in path.read_bytes() for sign in (b"PRIVATE KEY", b"client-key-data", b"token")
    )


def test_what_a_crash_left_behind_opens_nothing(tmp_path: Path) -> None:
    for write in (write_private, write_privately):
        path = tmp_path / write.__name__
        left = path.with_name(path.name + ".new")
        left.touch()
        left.chmod(0o666)
        write(path, b"secret")
        assert (mode(path), path.read_bytes(), left.exists()) == (0o600, b"secret", False)


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(ConfigError, match="cannot use the data directory"):
        make_private(tmp_path / "f")
