"""The kubeconfigs of a cluster: its name, and when they are written anew."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from stopped_clock import StoppedClock

from setpoint.cluster.certificates import CertificateFiles, ensure_certificates
from setpoint.cluster.kubeconfigs import cluster_name, write_kubeconfigs

URL = "https://127.0.0.1:7443"
COMPONENTS = ("admin", "controller-manager", "scheduler", "node-fleet")


@pytest.mark.parametrize(
    ("directory", "name"),
    [
        ("project/.setpoint", "project"),
        ("my project (2)/.setpoint", "my-project-2"),
        ("project/data", "data"),
        ("project/.data", "project"),
        ("Größe/.setpoint", "Gr-e"),
        ("...---/.setpoint", "setpoint"),
        ("v1.2_x/.setpoint", "v1.2_x"),
    ],
)
def test_a_cluster_is_named_after_its_directory(tmp_path: Path, directory: str, name: str) -> None:
    (tmp_path / directory).mkdir(parents=True)
    assert cluster_name(tmp_path / directory) == name


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ('{"current-context": "chosen"}', "chosen"),
        ('{"current-context": "setpoint"}', "project"),
        ("{}", "project"),
        ("damaged", "project"),
    ],
)
def test_a_name_is_kept_unless_it_is_the_former_one_of_all_clusters(tmp_path: Path, content: str, name: str) -> None:
    directory = tmp_path / "project" / ".setpoint"
    directory.mkdir(parents=True)
    (directory / "admin.kubeconfig").write_text(content)
    assert cluster_name(directory) == name


class Written:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = StoppedClock()
        self.files = CertificateFiles.within(directory)
        self.renew_authority()

    def renew_authority(self) -> None:
        for path in self.files:
            path.unlink(missing_ok=True)
        ensure_certificates(self.directory, self.clock.now())

    def write(self, name: str = "", url: str = URL) -> dict[str, bytes]:
        """Write the files as of the clock's time, and return their content."""
        assert write_kubeconfigs(self.directory, name, url, self.files, self.clock, "") == self.path("admin")
        return {component: self.path(component).read_bytes() for component in COMPONENTS}

    def path(self, component: str) -> Path:
        return self.directory / f"{component}.kubeconfig"

    def touch(self, age: timedelta) -> None:
        """Make the files as old as this."""
        at = (self.clock.now() - age).timestamp()
        for component in COMPONENTS:
            os.utime(self.path(component), (at, at))


@pytest.fixture
def written(tmp_path: Path) -> Written:
    directory = tmp_path / "project" / ".setpoint"
    directory.mkdir(parents=True)
    return Written(directory)


def test_the_files_name_the_cluster_and_different_users(written: Written) -> None:
    found = {component: json.loads(content) for component, content in written.write().items()}
    users = [config["users"][0]["name"] for config in found.values()]
    assert users == ["project", "project-controller-manager", "project-scheduler", "project-node-fleet"]
    for config in found.values():
        assert config["current-context"] == config["clusters"][0]["name"] == config["contexts"][0]["name"] == "project"
        assert config["contexts"][0]["context"] == {"cluster": "project", "user": config["users"][0]["name"]}
        assert config["clusters"][0]["cluster"]["server"] == URL
    assert written.path("admin").stat().st_mode & 0o077 == 0


def nothing(written: Written) -> None:
    """Change no file."""


def damage(written: Written) -> None:
    for component in COMPONENTS:
        written.path(component).write_text("{")


CHANGES: dict[str, tuple[Callable[[Written], None], str, str]] = {
    "another name": (nothing, "other", URL),
    "another address": (nothing, "", "https://127.0.0.1:1"),
    "another authority": (Written.renew_authority, "", URL),
    "a damaged file": (damage, "", URL),
    "certificates that expire soon": (lambda written: written.touch(timedelta(days=336)), "", URL),
}


@pytest.mark.parametrize("change", CHANGES)
def test_files_are_written_anew_only_when_something_changes(written: Written, change: str) -> None:
    before = written.write()
    written.touch(timedelta(days=334))
    assert written.write() == before, "new keys at every start would be slow and invalidate copies"
    do, name, url = CHANGES[change]
    do(written)
    after = written.write(name, url)
    assert all(after[component] != before[component] for component in COMPONENTS)
    written.touch(timedelta(0))
    assert written.write("", url) == after, "the name is kept"


def test_without_tls_there_is_a_token(written: Written) -> None:
    path = write_kubeconfigs(written.directory, "", "http://127.0.0.1:1", None, written.clock, "secret")
    config = json.loads(path.read_bytes())
    assert config["users"] == [{"name": "project", "user": {"token": "secret"}}]
    assert config["clusters"][0]["cluster"] == {"server": "http://127.0.0.1:1"}
