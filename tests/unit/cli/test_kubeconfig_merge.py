"""Merging a cluster into the user's kubeconfig, and removing it again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from setpoint.cli.failures import Failed
from setpoint.cli.kubeconfig_files import merge, merged_into, remove
from setpoint.meta.body import parse_yaml


def cluster(path: Path, authority: str) -> Path:
    content = {
        "clusters": [{"name": "web", "cluster": {"server": "https://x", "certificate-authority-data": authority}}],
        "contexts": [{"name": "web", "context": {"cluster": "web", "user": "web"}}],
        "users": [{"name": "web", "user": {"token": "t"}}],
        "current-context": "web",
    }
    path.parent.mkdir()
    path.write_text(json.dumps(content))
    return path


def test_a_different_cluster_of_the_same_name_is_not_overwritten(tmp_path: Path) -> None:
    """Directories of the same name are common: `web` may be somebody's production."""
    one, two = (
        cluster(tmp_path / "1" / "admin.kubeconfig", "MQ=="),
        cluster(tmp_path / "2" / "admin.kubeconfig", "Mg=="),
    )
    target = tmp_path / "config"
    merge(one, target, "web", replace=False)
    merge(one, target, "web", replace=False)  # the same one again
    before = target.read_text()
    with pytest.raises(Failed, match="has another cluster called web: say --name"):
        merge(two, target, "web", replace=False)
    assert target.read_text() == before
    merge(two, target, "web", replace=True)
    assert "Mg==" in target.read_text()


def test_only_merged_entries_are_removed(tmp_path: Path) -> None:
    one, two = (
        cluster(tmp_path / "1" / "admin.kubeconfig", "MQ=="),
        cluster(tmp_path / "2" / "admin.kubeconfig", "Mg=="),
    )
    target = tmp_path / "config"
    merge(two, target, "theirs", replace=False)
    merge(one, target, "mine", replace=False)
    merge(one, target, "again", replace=False)
    assert merged_into(one) == [target]
    assert remove(one, target) == ["mine", "again"]
    left, _ = parse_yaml(target.read_bytes())
    assert [entry["name"] for section in ("clusters", "contexts", "users") for entry in left[section]] == ["theirs"] * 3
    assert left["current-context"] == ""
    assert remove(one, target) == []
    assert not target.with_name("config.lock").exists()


def test_users_of_other_contexts_are_retained(tmp_path: Path) -> None:
    one, target = cluster(tmp_path / "1" / "admin.kubeconfig", "MQ=="), tmp_path / "config"
    merge(one, target, "mine", replace=False)
    content, _ = parse_yaml(target.read_bytes())
    content["contexts"].append({"name": "elsewhere", "context": {"cluster": "far", "user": "mine"}})
    content["current-context"] = "elsewhere"
    target.write_text(json.dumps(content))
    assert remove(one, target) == ["mine"]
    left, _ = parse_yaml(target.read_bytes())
    assert [entry["name"] for entry in left["users"]] == ["mine"]
    assert left["current-context"] == "elsewhere"
