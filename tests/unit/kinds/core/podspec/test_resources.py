from typing import Any

import pytest

from setpoint.kinds.core.podspec import qos_class
from setpoint.kinds.core.podspec.resources import aggregate_requests, default_pod_level_resources
from setpoint.kinds.internal_form import same

FULL = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ([{}], "BestEffort"),
        ([{"requests": {"example.com/x": "1"}}], "BestEffort"),
        ([{"requests": {"cpu": "1"}}], "Burstable"),
        ([{"requests": FULL, "limits": FULL}], "Guaranteed"),
        ([{"requests": {"cpu": "1000m", "memory": "1073741824"}, "limits": FULL}], "Guaranteed"),
        ([{"requests": FULL, "limits": FULL}, {}], "Burstable"),
        ([{"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}], "Burstable"),
    ],
)
def test_qos_class(resources: list[dict[str, Any]], expected: str) -> None:
    assert qos_class({"spec": {"containers": [{"resources": one} for one in resources]}}) == expected


def test_pod_level_resources_determine_the_qos_class() -> None:
    pod = {"spec": {"resources": {"requests": FULL, "limits": FULL}, "containers": [{"resources": {}}]}}
    assert qos_class(pod) == "Guaranteed"


def test_sidecars_add_up_and_init_containers_count_by_maximum() -> None:
    def one(cpu: str, **more: str) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    spec = {"containers": [one("500m"), one("300m")], "initContainers": [one("1", restartPolicy="Always"), one("2")]}
    assert aggregate_requests(spec) == {"cpu": "3"}
    spec["initContainers"][1] = one("100m")
    assert aggregate_requests(spec) == {"cpu": "1800m"}


@pytest.mark.parametrize(
    ("level", "container", "expected"),
    [
        ({"limits": {"cpu": "2"}}, {"requests": {"cpu": "1"}}, {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}),
        ({"limits": {"cpu": "2"}}, {}, {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}),
        (
            {"requests": {"cpu": "2"}},
            {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}},
            {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}},
        ),
        ({"requests": {"cpu": "2"}}, {"requests": {"cpu": "1"}}, {"requests": {"cpu": "2"}}),
    ],
)
def test_pod_level_defaults_come_from_the_containers(
    level: dict[str, Any], container: dict[str, Any], expected: dict[str, Any]
) -> None:
    spec = {"resources": level, "containers": [{"name": "c", "resources": container}]}
    default_pod_level_resources(spec)
    assert spec["resources"] == expected


def test_amounts_are_compared_by_value() -> None:
    def spec(memory: str) -> dict[str, Any]:
        return {"containers": [{"resources": {"limits": {"memory": memory}}}]}

    assert same(spec("1Gi"), spec("1073741824"))
    assert not same(spec("1Gi"), spec("1G"))
    assert not same({"args": ["1"]}, {"args": ["1000m"]})
