from __future__ import annotations

from typing import Any

import pytest
from admission_attributes import ObjectReader, pod, resource, write

from setpoint.apiserver.admission.limit_ranger import LimitRanger
from setpoint.meta.errors import Forbidden


def limited(reader: ObjectReader, *limits: dict[str, Any]) -> LimitRanger:
    reader.put("", "limitranges", "ns", "lr", spec={"limits": list(limits)})
    return LimitRanger(reader)


async def test_defaults_are_set_and_annotated(reader: ObjectReader) -> None:
    plugin = limited(
        reader, {"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "500m"}}
    )
    attrs = write("pods", pod({"initContainers": [{"name": "i", "resources": {"limits": {"cpu": "2"}}}]}))
    await plugin.mutate(attrs)
    assert attrs.obj is not None
    assert attrs.obj["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "500m"},
        "limits": {"cpu": "1", "memory": "1Gi"},
    }
    assert attrs.obj["spec"]["initContainers"][0]["resources"]["limits"] == {"cpu": "2", "memory": "1Gi"}
    assert attrs.obj["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: cpu request for container c; cpu, memory limit for container c; "
        "cpu request for init container i; memory limit for init container i"
    )


@pytest.mark.parametrize(
    ("limit", "resources", "why"),
    [
        ({"min": {"cpu": "1"}}, {}, "minimum cpu usage per Container is 1.  No request is specified"),
        (
            {"min": {"cpu": "1"}},
            {"requests": {"cpu": "10m"}},
            "minimum cpu usage per Container is 1, but request is 10m",
        ),
        (
            {"min": {"cpu": "1"}},
            {"requests": {"cpu": "1"}, "limits": {"cpu": "500m"}},
            "minimum cpu usage per Container is 1, but limit is 500m",
        ),
        ({"max": {"cpu": "1"}}, {}, "maximum cpu usage per Container is 1.  No limit is specified"),
        ({"max": {"cpu": "1"}}, {"limits": {"cpu": "2"}}, "maximum cpu usage per Container is 1, but limit is 2"),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}},
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"limits": {"cpu": "3"}},
            "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
        ),
        (
            {"min": {"cpu": "1"}, "max": {"cpu": "2"}},
            {"requests": {"cpu": "10m"}, "limits": {"cpu": "5"}},
            "[minimum cpu usage per Container is 1, but request is 10m, "
            "maximum cpu usage per Container is 2, but limit is 5]",
        ),
    ],
)
@pytest.mark.parametrize("where", ["containers", "initContainers"])
async def test_containers_stay_within_bounds(
    reader: ObjectReader, limit: dict[str, Any], resources: dict[str, Any], why: str, where: str
) -> None:
    plugin = limited(reader, {"type": "Container", **limit})
    obj = pod()
    obj["spec"] = {where: [{"name": "c", "resources": resources}]}
    with pytest.raises(Forbidden) as caught:
        await plugin.validate(write("pods", obj))
    assert caught.value.message == f'pods "x" is forbidden: {why}'


async def test_limits_of_a_whole_pod(reader: ObjectReader) -> None:
    plugin = limited(reader, {"type": "Pod", "max": {"cpu": "1"}})
    two = [{"name": name, "resources": {"limits": {"cpu": "600m"}}} for name in "ab"]
    with pytest.raises(Forbidden, match="maximum cpu usage per Pod is 1, but limit is 1200m"):
        await plugin.validate(write("pods", pod({"containers": two})))
    await plugin.validate(write("pods", pod({"containers": two, "resources": {"limits": {"cpu": "1"}}})))


@pytest.mark.parametrize(("size", "why"), [("1Gi", "minimum storage"), ("9Gi", "maximum storage"), ("2Gi", "")])
async def test_claims_stay_within_bounds(reader: ObjectReader, size: str, why: str) -> None:
    plugin = limited(reader, {"type": "PersistentVolumeClaim", "min": {"storage": "2Gi"}, "max": {"storage": "4Gi"}})
    claim = {"metadata": {"name": "x"}, "spec": {"resources": {"requests": {"storage": size}}}}
    if not why:
        await plugin.validate(write("persistentvolumeclaims", claim))
        return
    with pytest.raises(Forbidden, match=f"{why} usage per PersistentVolumeClaim is .Gi, but request is {size}"):
        await plugin.validate(write("persistentvolumeclaims", claim))


async def test_objects_being_deleted_are_not_checked(reader: ObjectReader) -> None:
    plugin = limited(reader, {"type": "Container", "max": {"cpu": "1"}})
    going = pod(deletionTimestamp="2026-01-01T00:00:00Z")
    await plugin.validate(write("pods", pod(), going, subresource="resize"))


def test_only_writes_of_resources_are_handled(reader: ObjectReader) -> None:
    plugin, pods = LimitRanger(reader), resource("", "pods")
    assert plugin.handles("UPDATE", pods, "resize")
    assert not plugin.handles("UPDATE", pods, "")
    assert not plugin.handles("CREATE", resource("", "services"), "")
