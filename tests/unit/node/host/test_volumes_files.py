"""The mount table, resolution inside of a directory, removal of trees, host paths, and emptyDir volumes."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from setpoint.node.host import mounts
from setpoint.node.host.mounts import MountError, mount_points, open_inside, parse_mount_info
from setpoint.node.host.volumes.empty_dir import EmptyDir, memory_size, usage
from setpoint.node.host.volumes.file_tree import measure, remove_tree, walk
from setpoint.node.host.volumes.host_path import HostPath
from setpoint.node.host.volumes.interface import SetUpError
from setpoint.node.host.volumes.sub_path import create_missing

MOUNT_INFO = r"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
36 22 0:32 / /var/a\040b rw,nosuid - tmpfs tmpfs rw,size=1024k
37 22 8:1 /etc\134x /n/pods/u ro shared:1 master:2 - ext4 /dev/sda1 rw
broken line
"""


def test_mount_info() -> None:
    root, memory, bound = parse_mount_info(MOUNT_INFO.splitlines(keepends=True))
    assert (root.path, root.file_system, root.source, root.propagation) == ("/", "ext4", "/dev/sda1", ("shared:1",))
    assert (memory.path, memory.device, memory.parent, memory.propagation) == ("/var/a b", "0:32", 22, ())
    assert memory.super_options == {"rw", "size=1024k"}
    assert (bound.root, bound.propagation) == ("/etc\\x", ("shared:1", "master:2"))
    assert bound.options == {"ro"}


def test_mounts_below_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "mountinfo"
    table.write_text("".join(f"{n} 1 0:1 / {path} rw - t t rw\n" for n, path in enumerate(("/n/a", "/n/a/b", "/n/ab"))))
    monkeypatch.setattr(mounts, "_MOUNT_INFO", str(table))
    assert [each.path for each in mount_points("/n/a")] == ["/n/a", "/n/a/b"]
    assert len(mount_points()) == 3
    table.write_text(MOUNT_INFO)
    assert [each.id for each in mount_points("/var/a b")] == [36]


def test_links_inside_of_a_volume_are_followed_and_others_are_not(tmp_path: Path) -> None:
    (tmp_path / "v" / "in").mkdir(parents=True)
    for name, target in (("inside", "in"), ("absolute", "/etc"), ("up", "../.."), ("back", "in/../in")):
        (tmp_path / "v" / name).symlink_to(target)
    top = os.open(tmp_path / "v", os.O_PATH)
    for path in ("in", "inside", "back"):
        os.close(open_inside(top, path, os.O_PATH))
    for path in ("absolute", "up", "in/../..", "absolute/passwd"):
        with pytest.raises(OSError) as error:
            open_inside(top, path, os.O_PATH)
        assert error.value.errno == errno.EXDEV
    os.close(top)


def test_a_kernel_without_the_system_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "_OPENAT2", 5000)
    with pytest.raises(
        MountError, match=r"the kernel does not support this system call; Linux 5\.6 or later is needed"
    ):
        open_inside(-100, "x", os.O_PATH)


def test_mount_errors_contain_call_and_path(tmp_path: Path) -> None:
    with pytest.raises(MountError) as error:
        mounts.bind(tmp_path / "absent", tmp_path / "target")
    assert str(error.value).startswith(f"bind mount of {tmp_path}/absent at {tmp_path}/target: ")


# -- sub-paths and trees ----------------------------------------------------------------------------------------------


def test_missing_directories_of_a_sub_path_get_the_mode_of_the_volume(tmp_path: Path) -> None:
    volume = tmp_path / "v"
    (volume / "there").mkdir(parents=True)
    (volume / "link").symlink_to("there")
    volume.chmod(0o2775)
    create_missing(volume, "link/a/./b")
    assert (volume / "there/a/b").stat().st_mode & 0o7777 == 0o2775
    assert (volume / "there").stat().st_mode & 0o7777 != 0o2775
    (volume / "file").touch()
    create_missing(volume, "file")


def test_no_directory_is_created_outside_of_the_volume(tmp_path: Path) -> None:
    volume, outside = tmp_path / "v", tmp_path / "outside"
    volume.mkdir()
    outside.mkdir()
    (volume / "out").symlink_to(outside)
    (volume / "dangling").symlink_to("absent")
    create_missing(volume, "out/x")
    with pytest.raises(OSError):
        create_missing(volume, "dangling/x")
    assert os.listdir(outside) == []
    assert sorted(os.listdir(volume)) == ["dangling", "out"]


def test_trees_of_any_depth_are_measured_and_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    depth = 1500
    current = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=current)
        inner = os.open("d", os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = inner
    os.close(os.open("file", os.O_CREAT, dir_fd=current))
    os.link("file", "same", src_dir_fd=current, dst_dir_fd=current)
    os.close(current)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (top / "link").symlink_to(outside)
    held = len(os.listdir("/proc/self/fd"))
    assert measure(top).inodes == depth + 3
    assert sum(1 for _ in walk(top)) == depth + 3
    remove_tree(top)
    assert not top.exists()
    assert (outside / "kept").exists()
    assert len(os.listdir("/proc/self/fd")) == held
    remove_tree(top)


# -- hostPath ---------------------------------------------------------------------------------------------------------


def problem(path: Path, kind: str) -> str:
    try:
        HostPath("v", path, kind).set_up()
    except SetUpError as error:
        return str(error)
    return ""


def test_host_path_types(tmp_path: Path) -> None:
    directory, file, link, pipe = (tmp_path / name for name in ("d", "f", "l", "p"))
    directory.mkdir()
    file.touch()
    link.symlink_to(directory)
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
    device = Path("/dev/null")
    right = [(directory, "Directory"), (link, "Directory"), (file, "File"), (tmp_path / "s", "Socket")]
    for path, kind in [*right, (device, "CharDevice"), (tmp_path / "absent", "")]:
        assert problem(path, kind) == ""
    wrong = [
        (file, "Directory", "directory, it's a File"),
        (file, "DirectoryOrCreate", "directory, it's a File"),
        (directory, "FileOrCreate", "file, it's a Directory"),
        (directory, "Socket", "socket file, it's a Directory"),
        (file, "CharDevice", "character device, it's a File"),
        (device, "BlockDevice", "block device, it's a CharDevice"),
    ]
    for path, kind, text in wrong:
        assert problem(path, kind) == f"hostPath type check failed: {path} is not a {text}"
    absent = tmp_path / "absent"
    about = f'{absent} is not a directory, unable to determine its type: path "{absent}" does not exist'
    assert problem(absent, "Directory") == f"hostPath type check failed, {about}"
    about = "unable to determine its type: only recognise file, directory, socket, block device and character device"
    assert problem(pipe, "File") == f"hostPath type check failed, {pipe} is not a file, {about}"
    assert problem(file, "Nonsense") == "Nonsense is an invalid volume type"
    assert problem(Path("/a/../b"), "") == "invalid HostPath `/a/../b`: must not contain '..'"


def test_host_paths_are_created(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        assert problem(tmp_path / "a" / "b", "DirectoryOrCreate") == ""
        assert problem(tmp_path / "a" / "f", "FileOrCreate") == ""
    finally:
        os.umask(before)
    assert (tmp_path / "a" / "b").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "a").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "a" / "f").stat().st_mode & 0o7777 == 0o644
    assert problem(tmp_path / "x" / "f", "FileOrCreate") == f"open {tmp_path}/x/f: no such file or directory"


# -- emptyDir ---------------------------------------------------------------------------------------------------------


def test_empty_dir_on_disk(tmp_path: Path) -> None:
    before = os.umask(0o077)
    volume = EmptyDir("e", tmp_path / "u" / "e", tmp_path / "u" / "ready", fs_group=os.getgid())
    try:
        volume.set_up()
    finally:
        os.umask(before)
    assert volume.path.stat().st_mode & 0o7777 == 0o2777
    (volume.path / "own").touch(0o600)
    (volume.path / "own").write_bytes(b"x" * 10000)
    volume.set_up()
    assert (volume.path / "own").stat().st_mode & 0o777 == 0o600
    found = usage(volume.path)
    assert found.used_bytes >= 10000
    assert found.inodes_used == 2
    assert found.capacity_bytes >= found.available_bytes > 0


def test_huge_pages_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        SetUpError, match='unknown storage medium "HugePages-2Mi": huge pages are not supported on this'
    ):
        EmptyDir("e", tmp_path / "e", tmp_path / "ready", "HugePages-2Mi").set_up()


def test_size_of_memory_volumes() -> None:
    limited = {"resources": {"limits": {"memory": "64Mi"}}}
    mi = 1 << 20
    assert memory_size({"spec": {"containers": [{}]}}, "1Gi") == 1024 * mi
    assert memory_size({"spec": {"containers": [limited, limited]}}, "1Gi") == 128 * mi
    assert memory_size({"spec": {"containers": [limited, {}]}}, "1Gi") == 1024 * mi
    assert memory_size({"spec": {"containers": [limited]}}, "1Gi", "8Mi") == 8 * mi
    assert memory_size({"spec": {"containers": [limited]}}, "1Gi", "0") == 64 * mi
    assert memory_size({"spec": {"containers": [{}]}}, None) is None
