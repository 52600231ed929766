from typing import Any

import pytest

from setpoint.kinds.core.podspec import qos_class
from setpoint.kinds.core.podspec.aggregate import aggregate_requests
from setpoint.kinds.core.podspec.equality import same
from setpoint.kinds.core.podspec.levels import default_pod_level_resources

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


def test_resources_of_the_pod_decide_its_class() -> None:
    pod = {"spec": {"resources": {"requests": FULL, "limits": FULL}, "containers": [{"resources": {}}]}}
    assert qos_class(pod) == "Guaranteed"


def test_sidecars_add_up_and_init_containers_take_turns() -> None:
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
def test_what_is_left_out_for_the_pod_follows_from_its_containers(
    level: dict[str, Any], container: dict[str, Any], expected: dict[str, Any]
) -> None:
    spec = {"resources": level, "containers": [{"name": "c", "resources": container}]}
    default_pod_level_resources(spec)
    assert spec["resources"] == expected


def test_amounts_are_the_same_if_they_are_worth_the_same() -> None:
    def spec(memory: str) -> dict[str, Any]:
        return {"containers": [{"resources": {"limits": {"memory": memory}}}]}

    assert same(spec("1Gi"), spec("1073741824"))
    assert not same(spec("1Gi"), spec("1G"))
    assert not same({"args": ["1"]}, {"args": ["1000m"]})
