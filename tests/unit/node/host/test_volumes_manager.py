"""Volumes of Pods that need no privileges: contents, messages, mounts of containers, tokens, claims, removal."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from stopped_clock import StoppedClock
from volume_objects import (
    UID,
    Objects,
    Provider,
    claim,
    config_map,
    manager,
    no_credentials,
    persistent,
    pod_with,
    secret,
    tokens,
)

from setpoint.kinds.typed import Pod
from setpoint.meta.errors import Forbidden
from setpoint.meta.objects import Obj, ObjView
from setpoint.node.environment import ContainerConfigError
from setpoint.node.host.directories import NodeDirectories
from setpoint.node.host.volumes.container_mounts import VolumeFeatures
from setpoint.node.host.volumes.interface import SetUpError, VolumeError
from setpoint.node.host.volumes.local_volumes import LocalVolume, reconcile_directories
from setpoint.node.host.volumes.manager import VolumeManager
from setpoint.node.host.volumes.payload import contents_of
from setpoint.node.host.volumes.tokens import TokenCache
from setpoint.node.projection import sub_path_of

CONFIG: Obj = {"name": "m", "configMap": {"name": "m"}}
EMPTY: Obj = {"name": "e", "emptyDir": {}}
CLAIM: Obj = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}


async def messages_of(volumes: VolumeManager, pod: Pod) -> list[str]:
    try:
        await volumes.mount(pod, Provider())
    except VolumeError as error:
        assert str(error) == error.messages[0]
        return [*error.messages]
    return []


def container_of(pod: Pod) -> ObjView:
    spec: Any = pod["spec"]
    found: Obj = spec["containers"][0]
    return found


async def test_contents_follow_their_sources(tmp_path: Path) -> None:
    objects = Objects({"m": config_map(k="1")})
    pod = pod_with(CONFIG, EMPTY)
    where = tmp_path / "node" / "pods" / UID / "volumes" / "kubernetes.io~configmap" / "m"
    with manager(tmp_path, objects) as volumes:
        await volumes.mount(pod, Provider())
        assert (where / "k").read_text() == "1"
        objects.config_maps["m"] = config_map(k="2", n="new")
        await volumes.refresh(pod, Provider())
        assert (where / "k").read_text() == "2"
        assert (where / "n").read_text() == "new"

        del objects.config_maps["m"]
        message = 'MountVolume.SetUp failed for volume "m" : configmap "m" not found'
        with pytest.raises(VolumeError) as error:
            await volumes.refresh(pod, Provider())
        assert [*error.value.messages] == [message]
        await volumes.mount(pod, Provider())
        assert (where / "k").read_text() == "2"

    with manager(tmp_path, objects) as restarted:
        await restarted.mount(pod, Provider())
        assert await messages_of(restarted, pod_with(CONFIG, EMPTY, uid="other")) == [message]
        assert (tmp_path / "node" / "pods" / "other" / "volumes" / "kubernetes.io~empty-dir" / "e").is_dir()
        assert await restarted.pods() == {UID, "other"}


async def test_mounted_volumes_are_not_checked_again(tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    host = {"path": str(tmp_path / "host"), "type": "Directory"}
    objects = Objects(claims={"c": claim()}, volumes={"pv": persistent(hostPath=host)})
    pod = pod_with(CLAIM, {"name": "h", "hostPath": host})
    with manager(tmp_path, objects) as volumes:
        await volumes.mount(pod, Provider())
        (tmp_path / "host").rmdir()
        objects.claims["c"] = claim(phase="Lost")
        await volumes.mount(pod, Provider())
        mounts = await volumes.container_mounts(pod, container_of(pod), {}, {})
        assert [each["host_path"] for each in mounts] == [str(tmp_path / "host")] * 2
    with manager(tmp_path, objects) as restarted:
        assert len(await messages_of(restarted, pod)) == 2


async def test_unused_volumes_are_ignored(tmp_path: Path) -> None:
    with manager(tmp_path) as volumes:
        await volumes.mount(pod_with(CONFIG, mounts=[]), Provider())
        assert await volumes.pods() == set()


async def test_files_of_sources_and_their_modes() -> None:
    objects = Objects({"m": config_map(a="A", b="B")}, {"s": secret(k=b"\xff\x00")})
    clock = StoppedClock()
    cache = TokenCache(tokens(clock), clock)
    sources: list[Obj] = [
        {"configMap": {"name": "m", "items": [{"key": "b", "path": "x/b", "mode": 0}]}},
        {"secret": {"name": "s"}},
        {"configMap": {"name": "absent", "optional": True}},
        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        {"serviceAccountToken": {"path": "token"}},
    ]
    volume = {"name": "p", "projected": {"sources": sources, "defaultMode": 0o440}}
    payload, problem = await contents_of(volume, pod_with(volume), Provider().pod_state, objects, cache, no_credentials)
    assert problem == ""
    assert payload is not None
    assert {path: (file.content, file.mode, file.user) for path, file in payload.items()} == {
        "x/b": (b"B", 0, None),
        "k": (b"\xff\x00", 0o440, None),
        "name": (b"web", 0o440, None),
        "token": (b"token-1", 0o440, None),
    }
    for context, owner in (({"fsGroup": 5}, None), ({"runAsUser": 7}, 7)):
        pod = pod_with(volume, securityContext=context)
        payload, _ = await contents_of(volume, pod, Provider().pod_state, objects, cache, no_credentials)
        assert payload is not None
        assert payload["token"][1:] == (0o600, owner)
        assert payload["k"][1:] == (0o440, None)


async def test_problems_of_several_sources_are_listed() -> None:
    clock = StoppedClock()

    async def refuse(namespace: str, account: str, body: Obj) -> ObjView:
        raise Forbidden("no")

    sources: list[Obj] = [
        {"configMap": {"name": "kube-root-ca.crt"}},
        {"secret": {"name": "s"}},
        {"secret": {"name": "s"}},
        {"serviceAccountToken": {"path": "token"}},
    ]
    volume = {"name": "p", "projected": {"sources": sources}}
    cache = TokenCache(refuse, clock)
    payload, problem = await contents_of(
        volume, pod_with(volume), Provider().pod_state, Objects(), cache, no_credentials
    )
    assert payload is None
    assert problem == ('[configmap "kube-root-ca.crt" not found, secret "s" not found, failed to fetch token: no]')


async def test_tokens_are_renewed_before_they_expire() -> None:
    clock, asked = StoppedClock(), list[Obj]()
    cache = TokenCache(tokens(clock, seconds=1000, asked=asked), clock)
    pod, source = (
        pod_with(EMPTY, serviceAccountName="robot"),
        {"path": "t", "audience": "bank", "expirationSeconds": 1000},
    )
    assert await cache.token(pod, source) == "token-1"
    assert await cache.token(pod, {**source, "path": "other"}) == "token-1"
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": UID}
    wanted = {"audiences": ["bank"], "expirationSeconds": 1000, "boundObjectRef": reference}
    assert asked == [{"namespace": "shop", "account": "robot", **wanted}]
    due = cache.next_renewal(UID)
    assert due is not None
    assert 790 <= due - clock.now().timestamp() <= 800
    await clock.advance(789)
    assert await cache.token(pod, source) == "token-1"
    await clock.advance(12)
    assert await cache.token(pod, source) == "token-2"
    cache.forget(UID)
    assert cache.next_renewal(UID) is None


async def test_long_lived_tokens_are_renewed_every_day() -> None:
    clock = StoppedClock()
    cache = TokenCache(tokens(clock, seconds=10 * 86400), clock)
    pod, source = pod_with(EMPTY), {"path": "t", "expirationSeconds": 10 * 86400}
    assert await cache.token(pod, source) == "token-1"
    await clock.advance(86400 - 11)
    assert await cache.token(pod, source) == "token-1"
    await clock.advance(12)
    assert await cache.token(pod, source) == "token-2"


async def test_a_token_is_used_until_it_expires_if_it_cannot_be_renewed() -> None:
    clock = StoppedClock()
    issue, available = tokens(clock, seconds=1000), True

    async def request(namespace: str, account: str, body: Obj) -> ObjView:
        if not available:
            raise Forbidden("not now")
        return await issue(namespace, account, body)

    cache = TokenCache(request, clock)
    pod, source = pod_with(EMPTY), {"path": "t", "expirationSeconds": 1000}
    await cache.token(pod, source)
    available = False
    await clock.advance(900)
    assert await cache.token(pod, source) == "token-1"
    await clock.advance(101)
    with pytest.raises(SetUpError) as error:
        await cache.token(pod, source)
    reference = f'v1.BoundObjectReference{{Kind:"Pod", APIVersion:"v1", Name:"web", UID:"{UID}"}}'
    key = f'"default"/"shop"/[]string(nil)/1000/{reference}/""'
    assert str(error.value) == f"token {key} expired and refresh failed: not now"


# -- mounts of containers ---------------------------------------------------------------------------------------------


async def test_mounts_of_a_container(tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    host = {"name": "h", "hostPath": {"path": str(tmp_path / "host"), "type": "Directory"}}
    image = {"name": "i", "image": {"reference": "registry.example/data:1"}}
    mounts: list[Obj] = [
        {"name": "m", "mountPath": "/m"},
        {"name": "h", "mountPath": "h", "mountPropagation": "Bidirectional"},
        {"name": "e", "mountPath": "/e", "readOnly": True, "recursiveReadOnly": "IfPossible"},
        {"name": "i", "mountPath": "/i", "subPath": "a/b"},
    ]
    pod = pod_with(CONFIG, host, EMPTY, image, mounts=mounts)
    top = tmp_path / "node" / "pods" / UID / "volumes"
    expected = [
        {"container_path": "/m", "host_path": f"{top}/kubernetes.io~configmap/m", "readonly": True, "propagation": 0},
        {"container_path": "/h", "host_path": str(tmp_path / "host"), "readonly": False, "propagation": 2},
        {
            "container_path": "/e",
            "host_path": f"{top}/kubernetes.io~empty-dir/e",
            "readonly": True,
            "propagation": 0,
            "recursive_read_only": True,
        },
        {
            "container_path": "/i",
            "image": {"image": "registry.example/data:1", "user_specified_image": "registry.example/data:1"},
            "image_sub_path": "a/b",
            "readonly": True,
            "propagation": 0,
        },
    ]
    features = VolumeFeatures(recursive_read_only=True)
    objects = Objects({"m": config_map(k="1")})
    with manager(tmp_path, objects, features=lambda: features) as volumes:
        await volumes.mount(pod, Provider())
        assert await volumes.container_mounts(pod, container_of(pod), {}, {}) == expected
    with manager(tmp_path, objects, features=lambda: features) as restarted:
        assert await restarted.container_mounts(pod, container_of(pod), {}, {}) == expected


async def test_mounts_that_are_refused(tmp_path: Path) -> None:
    read_only = (
        'failed to resolve recursive read-only mode: volume "e" requested recursive read-only mode, but it is not'
    )
    cases: list[tuple[Obj, str]] = [
        ({"name": "x"}, 'cannot find volume "x" to mount into container "c"'),
        ({"name": "e", "mountPropagation": "Odd"}, 'invalid MountPropagation mode: "Odd"'),
        ({"name": "e", "subPath": "/etc"}, "error SubPath `/etc` must not be an absolute path"),
        ({"name": "e", "subPath": "a/../b"}, "unable to provision SubPath `a/../b`: must not contain '..'"),
        ({"name": "e", "recursiveReadOnly": "Enabled"}, f"{read_only} read-only"),
        ({"name": "e", "recursiveReadOnly": "Enabled", "readOnly": True}, f"{read_only} supported by the runtime"),
    ]
    with manager(tmp_path) as volumes:
        for mount, problem in cases:
            pod = pod_with(EMPTY, mounts=[{"mountPath": "/x", **mount}])
            await volumes.mount(pod, Provider())
            with pytest.raises(ContainerConfigError) as error:
                await volumes.container_mounts(pod, container_of(pod), {}, {})
            assert str(error.value) == problem


def test_sub_path_expressions() -> None:
    environment = {"POD": "web", "EMPTY": "", "BAD": "../x"}
    assert sub_path_of({"subPathExpr": "a/$(POD)/$$(POD)"}, environment) == "a/web/$(POD)"
    for expression, problem in (
        ("$(NO)/$(EMPTY)/$(POD)", "missing value for EMPTY, NO"),
        ("$(BAD)", "unable to provision SubPath `../x`: must not contain '..'"),
    ):
        with pytest.raises(ContainerConfigError) as error:
            sub_path_of({"subPathExpr": expression}, environment)
        assert str(error.value) == problem


# -- claims -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "volumes", "problem"),
    [
        ({}, {}, 'failed to fetch PVC from API server: persistentvolumeclaims "c" not found'),
        ({"c": claim(phase="Pending")}, {}, "PVC is not bound"),
        ({"c": claim(phase="Lost")}, {}, "PVC is not bound"),
        ({"c": claim(deletionTimestamp="2030-01-01T00:00:00Z")}, {}, "PVC is being deleted"),
        ({"c": claim("")}, {}, "PVC has empty pvc.Spec.VolumeName"),
        ({"c": claim()}, {}, 'failed to fetch PV pv from API server: persistentvolumes "pv" not found'),
        (
            {"c": claim()},
            {"pv": persistent(claimRef=None)},
            "found PV object pv but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim",
        ),
        (
            {"c": claim()},
            {"pv": persistent(claimRef={"uid": "else"})},
            "found PV object pv but its pv.Spec.ClaimRef.UID else does not point to claim.UID claim-uid",
        ),
    ],
)
async def test_claims_that_cannot_be_used(
    tmp_path: Path, claims: dict[str, Obj], volumes: dict[str, Obj], problem: str
) -> None:
    with manager(tmp_path, Objects(claims=claims, volumes=volumes)) as found:
        about = "unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]"
        expected = f"Unable to attach or mount volumes: {about}: error processing PVC shop/c: {problem}"
        assert await messages_of(found, pod_with(CLAIM, EMPTY)) == [expected]


async def test_persistent_volumes_that_cannot_be_used(tmp_path: Path) -> None:
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-2"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}
    csi = "driver name d not found in the list of registered CSI drivers"
    cases = [
        (
            persistent(hostPath={"path": "/x"}, nodeAffinity=affinity),
            'MountVolume.NodeAffinity check failed for volume "pv" : no matching NodeSelectorTerms',
        ),
        (
            persistent(local={"path": str(tmp_path / "absent")}),
            f'MountVolume.NewMounter initialization failed for volume "pv" : path "{tmp_path}/absent" does not exist',
        ),
        (
            persistent(local={"path": "/dev/null"}),
            'MountVolume.NewMounter initialization failed for volume "pv" : only directory and block device are supported',
        ),
        (
            persistent(csi={"driver": "d"}),
            f'MountVolume.SetUp failed for volume "pv" : CSI drivers are not supported on this node: {csi}',
        ),
        (
            persistent(hostPath={"path": "/dev/null", "type": "Directory"}),
            'MountVolume.SetUp failed for volume "pv" : hostPath type check failed: /dev/null is not a directory, '
            "it's a CharDevice",
        ),
    ]
    for volume, message in cases:
        objects = Objects(claims={"c": claim()}, volumes={"pv": volume})
        with manager(tmp_path, objects, labels={"kubernetes.io/hostname": "node-1"}) as volumes:
            assert await messages_of(volumes, pod_with(CLAIM)) == [message]
    block = Objects(claims={"c": claim()}, volumes={"pv": persistent(local={"path": "/x"}, volumeMode="Block")})
    with manager(tmp_path, block) as volumes:
        (message,) = await messages_of(volumes, pod_with(CLAIM))
        assert message.endswith(": volume data has volumeMode Block, but is specified in volumeMounts")


async def test_claim_of_an_ephemeral_volume_belongs_to_its_pod(tmp_path: Path) -> None:
    volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
    (tmp_path / "host").mkdir()
    source = persistent(hostPath={"path": str(tmp_path / "host"), "type": "Directory"})
    found = claim(name="web-scratch")
    objects = Objects(claims={"web-scratch": found}, volumes={"pv": source})
    with manager(tmp_path, objects) as volumes:
        (message,) = await messages_of(volumes, pod_with(volume))
        assert message.endswith(": PVC shop/web-scratch was not created for pod shop/web (pod is not owner)")
        found["metadata"]["ownerReferences"] = [{"controller": True, "uid": UID}]
        assert await messages_of(volumes, pod_with(volume)) == []


async def test_volumes_that_are_not_supported(tmp_path: Path) -> None:
    cases: list[tuple[Obj, str]] = [
        (
            {"csi": {"driver": "d"}},
            "CSI drivers are not supported on this node: driver name d not found in the list of registered CSI drivers",
        ),
        ({"nfs": {"server": "s"}}, "volumes of type nfs are not supported on this node"),
    ]
    for source, problem in cases:
        with manager(tmp_path) as volumes:
            message = f'MountVolume.SetUp failed for volume "v" : {problem}'
            assert await messages_of(volumes, pod_with({"name": "v", **source})) == [message]


# -- removal ----------------------------------------------------------------------------------------------------------


async def test_a_pod_that_was_never_seen_is_removed(tmp_path: Path) -> None:
    pod = pod_with(CONFIG, EMPTY)
    with manager(tmp_path, Objects({"m": config_map(k="1")})) as volumes:
        await volumes.mount(pod, Provider())
    directory = tmp_path / "node" / "pods" / UID
    (directory / "volumes" / "kubernetes.io~empty-dir" / "e" / "file").write_text("x")
    (directory / "containers" / "c").mkdir(parents=True)
    with manager(tmp_path) as restarted:
        assert (await restarted.usage(UID))["e"].inodes_used == 2
        await restarted.unmount(UID)
        assert os.listdir(directory) == ["containers"]
        assert await restarted.usage(UID) == {}
        await restarted.remove(UID)
        assert not directory.exists()
        await restarted.remove(UID)
        for uid in ("", "..", "a/b"):
            with pytest.raises(ValueError):
                await restarted.remove(uid)


def test_directories_of_deleted_volumes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("setpoint.node.host.volumes.local_volumes.bind", lambda *args, **options: None)
    directories = NodeDirectories(tmp_path)
    provisioned = {"pv.kubernetes.io/provisioned-by": "setpoint.dev/local"}
    for name, policy in (("kept", "Delete"), ("gone", "Delete"), ("retained", "Retain"), ("changed", "Delete")):
        volume = LocalVolume(
            name, directories.local_volumes / name, tmp_path / "p/u/v/l" / name, provisioned_policy=policy
        )
        volume.set_up()
        (directories.local_volumes / name / "data").write_text("x")
    (directories.local_volumes / "unknown").mkdir()
    assert (directories.local_volumes / "kept").stat().st_mode & 0o777 == 0o777
    existing = [
        persistent("kept", provisioned, persistentVolumeReclaimPolicy="Delete"),
        persistent("changed", provisioned, persistentVolumeReclaimPolicy="Retain"),
    ]
    assert reconcile_directories(directories, existing) == ["gone"]
    assert reconcile_directories(directories, []) == ["kept"]
    left = sorted(name for name in os.listdir(directories.local_volumes) if not name.startswith("."))
    assert left == ["changed", "retained", "unknown"]
