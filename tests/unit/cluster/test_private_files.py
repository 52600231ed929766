"""What is in a data directory is for its owner alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from setpoint.cluster.config import ConfigError
from setpoint.cluster.private_files import keep_private, make_private


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


def test_keys_are_closed(tmp_path: Path) -> None:
    pki = tmp_path / "pki"
    pki.mkdir()
    secret = [tmp_path / "admin.kubeconfig", tmp_path / "state.db-wal", pki / "ca.key", pki / "client.pem"]
    for path in (*secret, pki / "ca.crt"):
        path.touch()
        path.chmod(0o644)
    keep_private(tmp_path, pki, tmp_path / "absent")
    assert {mode(path) for path in secret} == {0o600}
    assert mode(pki / "ca.crt") == 0o644


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(ConfigError, match="cannot use the data directory"):
        make_private(tmp_path / "f")
