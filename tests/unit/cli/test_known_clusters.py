"""The list of clusters of this machine: one file each, pruned and bounded."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from setpoint.cli import running
from setpoint.cli.running import KnownClusters

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def data_directory(tmp_path: Path, name: str) -> Path:
    path = tmp_path / name / ".setpoint"
    path.mkdir(parents=True)
    return path


def test_a_cluster_is_recorded_at_its_first_start(tmp_path: Path) -> None:
    known, one = KnownClusters({}, tmp_path), data_directory(tmp_path, "one")
    known.remember(one, 3, NOW)
    known.remember(one, 5, NOW + timedelta(hours=1))
    assert known.all() == [(one, NOW, 5)]
    folder = tmp_path / ".local" / "state" / "setpoint" / "clusters"
    assert len(list(folder.iterdir())) == 1
    elsewhere = KnownClusters({"XDG_STATE_HOME": str(tmp_path / "state")}, tmp_path)
    assert elsewhere.all() == []


def test_records_of_missing_clusters_are_removed(tmp_path: Path) -> None:
    known, one, two = KnownClusters({}, tmp_path), data_directory(tmp_path, "one"), data_directory(tmp_path, "two")
    for directory in (one, two):
        known.remember(directory, 1, NOW)
    folder = tmp_path / ".local" / "state" / "setpoint" / "clusters"
    (folder / "broken.json").write_text("{")
    one.rmdir()
    assert [each.directory for each in known.all()] == [two]
    assert len(list(folder.iterdir())) == 1


def test_the_number_of_records_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_MAX", 3)
    known = KnownClusters({}, tmp_path)
    folder = tmp_path / ".local" / "state" / "setpoint" / "clusters"
    for number in range(5):
        before = set(folder.glob("*")) if folder.exists() else set()
        known.remember(data_directory(tmp_path, str(number)), 1, NOW)
        for path in set(folder.glob("*")) - before:
            os.utime(path, (number, number))
    assert [each.directory.parent.name for each in known.all()] == ["2", "3", "4"]


def test_an_unwritable_home_directory_is_no_error(tmp_path: Path) -> None:
    (tmp_path / ".local").write_text("a file")
    known = KnownClusters({}, tmp_path)
    known.remember(data_directory(tmp_path, "one"), 1, NOW)
    assert known.all() == []
