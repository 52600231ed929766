"""The files of projected volumes: layout, updates, modes, and what an interrupted write leaves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from stopped_clock import StoppedClock

from setpoint.node.host.volumes.interface import SetUpError
from setpoint.node.host.volumes.ownership import apply_fs_group, matches_fs_group
from setpoint.node.host.volumes.projected import (
    AtomicWriter,
    ProjectedFile,
    ProjectedVolume,
    checked,
    nested_mount_points,
)


def files(**contents: str) -> dict[str, ProjectedFile]:
    return {path.replace("__", "/"): ProjectedFile(text.encode(), 0o644) for path, text in contents.items()}


def visible(directory: Path) -> dict[str, str]:
    """Return what a container sees: the files by path, without the entries that begin with two dots."""
    found = {}
    for top, _, names in os.walk(directory, followlinks=True):
        for name in names:
            path = os.path.relpath(os.path.join(top, name), directory)
            if not path.startswith(".."):
                found[path] = (Path(top) / name).read_text()
    return found


def data_directories(directory: Path) -> list[str]:
    return sorted(name for name in os.listdir(directory) if name.startswith("..2"))


def test_layout(tmp_path: Path) -> None:
    assert AtomicWriter(tmp_path, StoppedClock()).write(files(a="1", d__e__f="2"))
    assert visible(tmp_path) == {"a": "1", "d/e/f": "2"}
    assert os.readlink(tmp_path / "..data") == "..2030_01_01_00_00_00.000000000"
    assert os.readlink(tmp_path / "a") == "..data/a"
    assert os.readlink(tmp_path / "d") == "..data/d"
    assert (tmp_path / "..data/").stat().st_mode & 0o7777 == 0o755


def test_an_update_replaces_all_files_at_once(tmp_path: Path) -> None:
    writer = AtomicWriter(tmp_path, StoppedClock())
    writer.write(files(a="1", b="1", d__e="1"))
    held = os.open(tmp_path / "..data", os.O_RDONLY)
    assert writer.write(files(a="2", n="2"))
    assert visible(tmp_path) == {"a": "2", "n": "2"}
    assert not os.path.lexists(tmp_path / "b")
    assert not os.path.lexists(tmp_path / "d")
    assert len(data_directories(tmp_path)) == 1
    os.close(held)


def test_equal_content_is_not_written_again(tmp_path: Path) -> None:
    writer = AtomicWriter(tmp_path, StoppedClock())
    writer.write(files(a="1", d__e="1"))
    inode = (tmp_path / "a").stat().st_ino
    assert not writer.write(files(a="1", d__e="1"))
    assert (tmp_path / "a").stat().st_ino == inode
    (tmp_path / "d").unlink()
    assert not writer.write(files(a="1", d__e="1"))
    assert visible(tmp_path) == {"a": "1", "d/e": "1"}


def test_an_interrupted_write_is_completed(tmp_path: Path) -> None:
    writer = AtomicWriter(tmp_path, StoppedClock())
    writer.write(files(a="1"))
    (tmp_path / "..2029_01_01_00_00_00.000000000").mkdir()
    (tmp_path / "..2029_01_01_00_00_00.000000000" / "a").write_text("half")
    (tmp_path / "..data_tmp").symlink_to("..2029_01_01_00_00_00.000000000")
    assert writer.write(files(a="2"))
    assert visible(tmp_path) == {"a": "2"}
    assert len(data_directories(tmp_path)) == 1
    assert not os.path.lexists(tmp_path / "..data_tmp")


def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        AtomicWriter(tmp_path, StoppedClock()).write({"d/f": ProjectedFile(b"", 0o666), "g": ProjectedFile(b"", 0o400)})
    finally:
        os.umask(before)
    assert (tmp_path / "d/f").stat().st_mode & 0o777 == 0o666
    assert (tmp_path / "g").stat().st_mode & 0o777 == 0o400
    assert (tmp_path / "d").stat().st_mode & 0o777 == 0o755


def test_group_can_read_files_of_a_read_only_volume(tmp_path: Path) -> None:
    group = os.getgid()
    AtomicWriter(tmp_path, StoppedClock(), group).write({"g": ProjectedFile(b"", 0o400)})
    assert (tmp_path / "g").stat().st_mode & 0o777 == 0o440
    assert tmp_path.stat().st_mode & 0o2550 == 0o2550


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("", 'invalid path: must not be empty: ""'),
        ("/etc/passwd", "invalid path: must be relative path: /etc/passwd"),
        ("a/../../b", "invalid path: must not contain '..': a/../../b"),
        ("..data", "invalid path: must not start with '..': ..data"),
        ("a" * 256, "invalid path: filenames must be less than or equal to 255 characters"),
        ("a/" * 2049, "invalid path: must be less than or equal to 4096 characters"),
    ],
)
def test_paths_that_are_refused(path: str, problem: str) -> None:
    with pytest.raises(SetUpError) as error:
        checked({path: ProjectedFile(b"", 0o644)})
    assert str(error.value) == problem


def test_volume_keeps_its_content_while_a_source_is_missing(tmp_path: Path) -> None:
    missing = ProjectedVolume("v", tmp_path / "v", StoppedClock(), False, None, 'configmap "m" not found')
    assert not missing.has_content
    with pytest.raises(SetUpError) as error:
        missing.set_up()
    assert error.value.message("v") == 'MountVolume.SetUp failed for volume "v" : configmap "m" not found'
    assert not (tmp_path / "v").exists()
    ProjectedVolume("v", tmp_path / "v", StoppedClock(), False, files(a="1"), nested=["x/y"]).set_up()
    assert missing.has_content
    assert visible(tmp_path / "v") == {"a": "1"}
    assert (tmp_path / "v/x/y").is_dir()


def test_nested_mount_points() -> None:
    mounts = [("v", "/etc/a"), ("w", "/etc/a/b"), ("w", "/etc/a/b/c"), ("w", "/etc/a/b-d/"), ("w", "/etc/ab")]
    container = {"volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts]}
    assert nested_mount_points({"containers": [container]}, "v") == ["b", "b-d"]
    assert nested_mount_points({"containers": [container]}, "w") == ["c"]


def test_group_ownership_follows_no_link(tmp_path: Path) -> None:
    outside, volume, group = tmp_path / "outside", tmp_path / "v", os.getgid()
    outside.touch(0o600)
    (volume / "d").mkdir(parents=True, mode=0o700)
    (volume / "d" / "f").touch(0o600)
    (volume / "link").symlink_to(outside)
    assert not matches_fs_group(volume, group)
    apply_fs_group(volume, group)
    assert outside.stat().st_mode & 0o777 == 0o600
    assert (volume / "d" / "f").stat().st_mode & 0o777 == 0o660
    assert (volume / "d").stat().st_mode & 0o7777 == 0o2770
    assert matches_fs_group(volume, group)
    assert not matches_fs_group(volume, group + 1)
