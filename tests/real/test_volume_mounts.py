"""Volumes that need mounts, each test in a mount namespace of its own."""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from mount_namespace import in_mount_namespace
from volume_objects import (
    UID,
    InstantClock,
    Objects,
    Provider,
    claim,
    config_map,
    manager,
    persistent,
    pod_with,
    secret,
)

from setpoint.kinds.typed import Pod
from setpoint.meta.objects import Obj, ObjView
from setpoint.node.environment import ContainerConfigError
from setpoint.node.host import mounts
from setpoint.node.host.mounts import mount_points
from setpoint.node.host.volumes import file_tree, sub_path
from setpoint.node.host.volumes.empty_dir import usage
from setpoint.node.host.volumes.file_tree import BusyTreeError, remove_tree
from setpoint.node.host.volumes.interface import VolumeError
from setpoint.node.host.volumes.manager import VolumeManager
from setpoint.node.host.volumes.sub_path import bind_sub_path, create_missing

pytestmark = pytest.mark.real
CONFIG: Obj = {"name": "m", "configMap": {"name": "m"}}
MEMORY: Obj = {"name": "e", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}
CLAIM: Obj = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}
PROVISIONED = {"pv.kubernetes.io/provisioned-by": "setpoint.dev/local"}
ATTEMPTS = 3000


def directory_of(tmp_path: Path, plugin: str, name: str, uid: str = UID) -> Path:
    return tmp_path / "node" / "pods" / uid / "volumes" / f"kubernetes.io~{plugin}" / name


def container_of(pod: Pod) -> ObjView:
    spec: Any = pod["spec"]
    found: Obj = spec["containers"][0]
    return found


async def sub_path_mounts(volumes: VolumeManager, pod: Pod) -> list[Path]:
    return [Path(each["host_path"]) for each in await volumes.container_mounts(pod, container_of(pod), {}, {})]


@in_mount_namespace
async def test_memory_volumes_have_a_limit_and_are_made_anew_after_a_reboot(tmp_path: Path) -> None:
    path = directory_of(tmp_path, "empty-dir", "e")
    with manager(tmp_path) as volumes:
        await volumes.mount(pod_with(MEMORY, securityContext={"fsGroup": 4321}), Provider(memory="1Gi"))
        found = path.stat()
        assert (found.st_gid, found.st_mode & 0o7777) == (4321, 0o3777)
        with pytest.raises(OSError) as error:
            (path / "big").write_bytes(bytes(2 << 20))
        assert error.value.errno == errno.ENOSPC
        measured = usage(path)
        assert measured.capacity_bytes == 1 << 20
        assert 0 < measured.used_bytes <= 1 << 20
        assert (await volumes.usage(UID))["e"] == measured
    with manager(tmp_path) as restarted:
        await restarted.mount(pod_with(MEMORY), Provider())
        assert (path / "big").exists()
        assert len(mount_points(path)) == 1
    mounts.unmount(path)
    with manager(tmp_path) as rebooted:
        await rebooted.mount(pod_with(MEMORY), Provider())
        assert os.listdir(path) == []
        assert len(mount_points(path)) == 1


@in_mount_namespace
async def test_secrets_and_tokens_are_in_memory(tmp_path: Path) -> None:
    objects = Objects({"m": config_map(k="1")}, {"s": secret(k=b"secret")})
    token = {"serviceAccountToken": {"path": "token"}}
    projected: Obj = {"name": "p", "projected": {"sources": [token, {"secret": {"name": "s"}}]}}
    private: Obj = {"name": "s", "secret": {"secretName": "s"}}
    context = {"fsGroup": 4321, "runAsUser": 1234}
    with manager(tmp_path, objects) as volumes:
        await volumes.mount(pod_with(projected, private, CONFIG, securityContext=context), Provider(memory="1Gi"))
        where = directory_of(tmp_path, "projected", "p")
        systems = {each.path: each.file_system for each in mount_points(tmp_path)}
        assert systems == {str(where): "tmpfs", str(directory_of(tmp_path, "secret", "s")): "tmpfs"}
        found = (where / "token").stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (1234, 4321, 0o640)
        assert (where / "token").read_text() == "token-1"
        found = (where / "k").stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (0, 4321, 0o644)
        await volumes.remove(UID)
        assert mount_points(tmp_path) == []
        assert await volumes.pods() == set()


@in_mount_namespace
async def test_sub_paths_keep_their_content_until_the_container_restarts(tmp_path: Path) -> None:
    objects = Objects({"m": config_map(k="1")})
    parts = [{"name": "m", "mountPath": "/k", "subPath": "k"}, {"name": "e", "mountPath": "/d", "subPath": "a/b"}]
    pod = pod_with(CONFIG, {"name": "e", "emptyDir": {}}, mounts=parts)
    with manager(tmp_path, objects) as volumes:
        await volumes.mount(pod, Provider())
        file, directory = await sub_path_mounts(volumes, pod)
        assert file == tmp_path / "node" / "pods" / UID / "volume-subpaths" / "m" / "c" / "0"
        assert file.read_text() == "1"
        (directory / "f").touch()
        assert (directory_of(tmp_path, "empty-dir", "e") / "a" / "b" / "f").exists()
        assert directory.stat().st_mode & 0o7777 == 0o777

        objects.config_maps["m"] = config_map(k="2")
        await volumes.refresh(pod, Provider())
        assert file.read_text() == "1"
        assert [*await sub_path_mounts(volumes, pod)] == [file, directory]
        assert file.read_text() == "2"
        assert len(mount_points(tmp_path)) == 2
        await volumes.unmount(UID)
        assert mount_points(tmp_path) == []
        assert not (tmp_path / "node" / "pods" / UID / "volume-subpaths").exists()


@in_mount_namespace
async def test_links_out_of_a_volume_are_refused(tmp_path: Path) -> None:
    """CVE-2017-1002101: a link in a volume is not followed out of it."""
    (tmp_path / "outside" / "there").mkdir(parents=True)
    volume = directory_of(tmp_path, "empty-dir", "e")
    for path in ("out/there", "out/new", "file/x"):
        pod = pod_with({"name": "e", "emptyDir": {}}, mounts=[{"name": "e", "mountPath": "/d", "subPath": path}])
        with manager(tmp_path) as volumes:
            await volumes.mount(pod, Provider())
            if not (volume / "out").is_symlink():
                (volume / "out").symlink_to(tmp_path / "outside")
                (volume / "file").touch()
            with pytest.raises(ContainerConfigError) as error:
                await volumes.container_mounts(pod, container_of(pod), {}, {})
        verb = "create subPath directory" if path == "file/x" else "prepare subPath"
        assert str(error.value) == f'failed to {verb} for volumeMount "e" of container "c"'
    assert os.listdir(tmp_path / "outside") == ["there"]
    assert mount_points(tmp_path) == []


def swap_endlessly(one: Path, other: Path) -> int:
    """Start a process that exchanges two directory entries atomically, and return its id."""
    child = os.fork()
    if child:
        return child
    exchange = ctypes.CDLL(None).renameat2
    paths = (-100, os.fsencode(one), -100, os.fsencode(other), 2)
    for number in itertools.count():
        if exchange(*paths):
            os._exit(1)
        sum(range(number * 37 % 2000))  # a pause that differs each time, short as one preparation
    raise AssertionError("the loop does not end")


@in_mount_namespace
def test_a_swapped_directory_never_leads_out_of_the_volume(tmp_path: Path) -> None:
    """CVE-2021-25741: nor is a link that replaces a directory between its check and its use."""
    volume, outside, target = tmp_path / "v", tmp_path / "outside", tmp_path / "target"
    (volume / "a" / "b").mkdir(parents=True)
    (outside / "b").mkdir(parents=True)
    (outside / "b" / "secret").touch()
    (volume / "link").symlink_to(outside)
    swapper = swap_endlessly(volume / "a", volume / "link")
    mounted = refused = 0
    try:
        for number in range(ATTEMPTS):
            part = "a/b" if number % 2 else f"a/b/new-{number}"
            try:
                create_missing(volume, part)
                bind_sub_path(volume, part, target)
            except OSError as error:
                assert error.errno in (errno.EXDEV, errno.ENOENT, errno.EAGAIN)
                refused += 1
                continue
            mounted += 1
            assert "secret" not in os.listdir(target)
            mounts.unmount(target)
    finally:
        os.kill(swapper, signal.SIGKILL)
        _, status = os.waitpid(swapper, 0)
    assert os.WIFSIGNALED(status), "the swapping process failed"
    assert os.listdir(outside / "b") == ["secret"]
    assert mounted
    assert refused


@in_mount_namespace
def test_the_swap_test_detects_a_resolution_by_path(tmp_path: Path) -> None:
    """With a plain open, which follows links anywhere, the secret directory is mounted sooner or later."""
    volume, outside, target = tmp_path / "v", tmp_path / "outside", tmp_path / "target"
    (volume / "a" / "b").mkdir(parents=True)
    (outside / "b").mkdir(parents=True)
    (outside / "b" / "secret").touch()
    (volume / "link").symlink_to(outside)
    swapper = swap_endlessly(volume / "a", volume / "link")
    escaped = False
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sub_path, "open_inside", lambda top, path, flags: os.open(path, flags, dir_fd=top))
            for _ in range(ATTEMPTS):
                bind_sub_path(volume, "a/b", target)
                escaped = "secret" in os.listdir(target)
                mounts.unmount(target)
                if escaped:
                    break
    finally:
        os.kill(swapper, signal.SIGKILL)
        os.waitpid(swapper, 0)
    assert escaped


# -- unmounting -------------------------------------------------------------------------------------------------------


@in_mount_namespace
async def test_an_agent_that_never_saw_a_pod_unmounts_its_volumes(tmp_path: Path) -> None:
    precious = tmp_path / "disk"
    precious.mkdir()
    (precious / "data").write_text("precious")
    objects = Objects(
        {"m": config_map(k="1")},
        {"s": secret(k=b"s")},
        claims={"c": claim()},
        volumes={"pv": persistent(local={"path": str(precious)})},
    )
    parts = [{"name": "m", "mountPath": "/k", "subPath": "k"}, {"name": "data", "mountPath": "/d", "subPath": "part"}]
    whole = [{"name": name, "mountPath": f"/{name}"} for name in ("e", "s")]
    pod = pod_with(CONFIG, MEMORY, CLAIM, {"name": "s", "secret": {"secretName": "s"}}, mounts=[*parts, *whole])
    with manager(tmp_path, objects) as volumes:
        await volumes.mount(pod, Provider())
        await sub_path_mounts(volumes, pod)
    inner = directory_of(tmp_path, "empty-dir", "e") / "inner"
    inner.mkdir()
    mounts.bind(precious, inner)
    assert len(mount_points(tmp_path)) == 6
    clock = InstantClock()
    with manager(tmp_path, clock=clock) as restarted:
        await restarted.remove(UID)
        assert mount_points(tmp_path) == []
        assert clock.slept == []
        assert not (tmp_path / "node" / "pods" / UID).exists()
    assert (precious / "data").read_text() == "precious"
    assert (precious / "part").is_dir()


@in_mount_namespace
async def test_nothing_below_a_mount_is_removed(tmp_path: Path) -> None:
    precious = tmp_path / "disk"
    precious.mkdir()
    (precious / "data").write_text("precious")
    objects = Objects(claims={"c": claim()}, volumes={"pv": persistent(local={"path": str(precious)})})
    with manager(tmp_path, objects, InstantClock()) as volumes:
        await volumes.mount(pod_with(CLAIM), Provider())
        volume = directory_of(tmp_path, "local-volume", "pv")
        assert (volume / "data").exists()
        with pytest.raises(BusyTreeError, match=r"is not removed because .* is a mount point"):
            remove_tree(tmp_path / "node" / "pods" / UID)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("setpoint.node.host.volumes.manager.unmount_below", lambda *args, **options: [])
            with pytest.raises(VolumeError, match="cannot be removed"):
                await volumes.remove(UID)
            # The mount table may be outdated when the removal begins: the walk itself stops at a mount point.
            patch.setattr(file_tree, "mount_points", lambda below: [])
            with pytest.raises(VolumeError, match="is a mount point"):
                await volumes.remove(UID)
        assert (volume / "data").read_text() == "precious"
        await volumes.remove(UID)
    assert (precious / "data").read_text() == "precious"


@in_mount_namespace
async def test_a_busy_volume_is_unmounted_lazily(tmp_path: Path) -> None:
    clock, path = InstantClock(), directory_of(tmp_path, "empty-dir", "e")
    with manager(tmp_path, clock=clock) as volumes:
        await volumes.mount(pod_with(MEMORY), Provider())
        used = os.open(path / "file", os.O_CREAT | os.O_WRONLY)
        await volumes.unmount(UID)
        os.write(used, b"still works")
        os.close(used)
        assert clock.slept == [0.1, 0.4]
        assert mount_points(tmp_path) == []
        assert not path.exists()


@in_mount_namespace
async def test_a_node_directory_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with manager(tmp_path / "link") as volumes:
        await volumes.mount(pod_with(MEMORY), Provider())
        await volumes.mount(pod_with(MEMORY), Provider())
        assert len(mount_points(tmp_path)) == 1
        await volumes.remove(UID)
        assert mount_points(tmp_path) == []


# -- persistent volumes -----------------------------------------------------------------------------------------------


@in_mount_namespace
async def test_local_volumes(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    (disk / "d").mkdir(parents=True, mode=0o700)
    objects = Objects(claims={"c": claim()}, volumes={"pv": persistent(local={"path": str(disk)})})
    read_only: Obj = {"name": "data", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}}
    policy = {"fsGroup": 4321, "fsGroupChangePolicy": "OnRootMismatch"}
    with manager(tmp_path, objects) as volumes:
        await volumes.mount(pod_with(CLAIM, securityContext=policy), Provider())
        assert ((disk / "d").stat().st_gid, (disk / "d").stat().st_mode & 0o7777) == (4321, 0o2770)
        await volumes.mount(pod_with(read_only, uid="reader"), Provider())
        (mount,) = await volumes.container_mounts(pod := pod_with(read_only, uid="reader"), container_of(pod), {}, {})
        assert mount["readonly"]
        with pytest.raises(OSError) as error:
            (Path(mount["host_path"]) / "new").touch()
        assert error.value.errno == errno.EROFS
        (directory_of(tmp_path, "local-volume", "pv") / "new").touch()

        await volumes.remove(UID)
        await volumes.remove("reader")
        os.chown(disk / "d", -1, 0)
        await volumes.mount(pod_with(CLAIM, securityContext=policy), Provider())
        assert (disk / "d").stat().st_gid == 0, "the volume's directory has the group already"
        await volumes.remove(UID)
        await volumes.mount(pod_with(CLAIM, securityContext={"fsGroup": 4321}), Provider())
        assert (disk / "d").stat().st_gid == 4321

        objects.volumes["pv"]["spec"]["accessModes"] = ["ReadWriteOncePod"]
        with pytest.raises(VolumeError) as refused:
            await volumes.mount(pod_with(CLAIM, uid="second"), Provider())
        about = "volume uses the ReadWriteOncePod access mode and is already in use by another pod"
        assert str(refused.value) == f'MountVolume.SetUp failed for volume "pv" : {about}'


@in_mount_namespace
async def test_provisioned_volumes_are_removed_after_their_last_use(tmp_path: Path) -> None:
    name = "pvc-1"
    source = {"path": "/var/lib/elsewhere", "type": "DirectoryOrCreate"}
    volume = persistent(name, PROVISIONED, hostPath=source, persistentVolumeReclaimPolicy="Delete")
    objects = Objects(claims={"c": claim(name)}, volumes={name: volume})
    directory = tmp_path / "node" / "local-volumes" / name
    with manager(tmp_path, objects) as volumes:
        await volumes.mount(pod_with(CLAIM), Provider())
        (directory_of(tmp_path, "local-volume", name) / "data").write_text("x")
        assert (directory / "data").read_text() == "x"
        await volumes.reconcile_local_volumes([])
        assert (directory / "data").exists(), "a Pod uses the volume"
        assert await volumes.unused_local_volumes() == set()
        await volumes.remove(UID)
        assert await volumes.unused_local_volumes() == {name}
        await volumes.reconcile_local_volumes([volume])
        assert (directory / "data").exists()
        await volumes.reconcile_local_volumes([])
        assert os.listdir(directory.parent) == []
