"""The clusters of this machine: each in a file of its own, and only those that are there."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from setpoint.cli import known_clusters
from setpoint.cli.known_clusters import KnownClusters

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def data_directory(tmp_path: Path, name: str) -> Path:
    path = tmp_path / name / ".setpoint"
    path.mkdir(parents=True)
    return path


def test_a_cluster_is_remembered_from_its_first_start_on(tmp_path: Path) -> None:
    known, one = KnownClusters({}, tmp_path), data_directory(tmp_path, "one")
    known.remember(one, 3, NOW)
    known.remember(one, 5, NOW + timedelta(hours=1))
    assert known.all() == [(one, NOW, 5)]
    folder = tmp_path / ".local" / "state" / "setpoint" / "clusters"
    assert len(list(folder.iterdir())) == 1
    elsewhere = KnownClusters({"XDG_STATE_HOME": str(tmp_path / "state")}, tmp_path)
    assert elsewhere.all() == []


def test_what_is_gone_or_broken_disappears(tmp_path: Path) -> None:
    known, one, two = KnownClusters({}, tmp_path), data_directory(tmp_path, "one"), data_directory(tmp_path, "two")
    for directory in (one, two):
        known.remember(directory, 1, NOW)
    folder = tmp_path / ".local" / "state" / "setpoint" / "clusters"
    (folder / "broken.json").write_text("{")
    one.rmdir()
    assert [each.directory for each in known.all()] == [two]
    assert len(list(folder.iterdir())) == 1


def test_not_more_than_so_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_clusters, "_MOST", 3)
    known = KnownClusters({}, tmp_path)
    folder = tmp_path / ".local" / "state" / "setpoint" / "clusters"
    for number in range(5):
        before = set(folder.glob("*")) if folder.exists() else set()
        known.remember(data_directory(tmp_path, str(number)), 1, NOW)
        for path in set(folder.glob("*")) - before:
            os.utime(path, (number, number))
    assert [each.directory.parent.name for each in known.all()] == ["2", "3", "4"]


def test_a_home_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / ".local").write_text("a file")
    known = KnownClusters({}, tmp_path)
    known.remember(data_directory(tmp_path, "one"), 1, NOW)
    assert known.all() == []
