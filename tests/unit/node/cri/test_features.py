"""The features of container runtimes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from fake_cri import FakeCri

from setpoint.node.cri.client import CriClient, CriError
from setpoint.node.cri.enums import CgroupDriver
from setpoint.node.cri.features import HandlerFeatures, RuntimeFeatures, cgroup_driver_problem, detect_features
from setpoint.system import SystemClock
from setpoint.wire.grpc import Code


@pytest.fixture
def cri() -> Iterator[FakeCri]:
    with FakeCri() as made:
        yield made


async def detected(cri: FakeCri) -> RuntimeFeatures:
    client = CriClient(cri.endpoint, SystemClock())
    try:
        return await detect_features(client)
    finally:
        client.close()


async def test_an_old_runtime_has_no_features(cri: FakeCri) -> None:
    features = await detected(cri)
    assert features == RuntimeFeatures("containerd", "1.6.20", "v1")
    assert features.handler("runc") == HandlerFeatures(False, False)


async def test_a_new_runtime_describes_its_handlers(cri: FakeCri) -> None:
    cri.unimplemented.clear()
    cri.handlers = [
        {"name": "", "features": {"user_namespaces": True, "recursive_read_only_mounts": True}},
        {"name": "kata", "features": {}},
    ]
    cri.features = {"supplemental_groups_policy": True}
    features = await detected(cri)
    assert features.cgroup_driver is CgroupDriver.CGROUPFS
    assert features.supplemental_groups_policy
    assert features.handler() == HandlerFeatures(True, True)
    assert features.handler("kata") == HandlerFeatures()


async def test_the_cgroup_driver_must_not_be_systemd(cri: FakeCri) -> None:
    assert cgroup_driver_problem(await detected(cri)) == "", "it is not known"
    for options, top, driver in (
        ({"SystemdCgroup": True}, False, CgroupDriver.SYSTEMD),
        ({"SystemdCgroup": False}, False, CgroupDriver.CGROUPFS),
        (None, False, CgroupDriver.CGROUPFS),
        (None, True, CgroupDriver.SYSTEMD),
    ):
        runtimes = {"defaultRuntimeName": "runc", "runtimes": {"runc": {"options": options}}}
        cri.info = {"config": json.dumps({"containerd": runtimes, "systemdCgroup": top})}
        features = await detected(cri)
        assert features.cgroup_driver is driver
        problem = cgroup_driver_problem(features)
        assert ("containerd uses the cgroup driver systemd" in problem) == (driver is CgroupDriver.SYSTEMD)
    for text in ("{", "[]", "{}", '{"containerd": {"runtimes": []}}'):
        cri.info = {"config": text}
        assert (await detected(cri)).cgroup_driver is None
    cri.unimplemented.clear()
    cri.cgroup_driver = 0
    assert "SystemdCgroup = false" in cgroup_driver_problem(await detected(cri))


async def test_a_driver_that_is_not_known_is_none(cri: FakeCri) -> None:
    cri.unimplemented.clear()
    cri.cgroup_driver = 9
    assert (await detected(cri)).cgroup_driver is None


async def test_another_error_than_a_missing_method_is_raised(cri: FakeCri) -> None:
    cri.unimplemented.clear()
    cri.fail("RuntimeConfig", "broken")
    with pytest.raises(CriError) as caught:
        await detected(cri)
    assert caught.value.code is Code.UNKNOWN
