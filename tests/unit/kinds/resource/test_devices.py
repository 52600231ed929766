from typing import Any

import pytest

GROUP = "resource.k8s.io/v1"


@pytest.fixture
def slices(lifecycle: Any) -> Any:
    return lifecycle(GROUP, "ResourceSlice")


def offer(*devices: dict[str, Any], **spec: Any) -> dict[str, Any]:
    base: dict[str, Any] = {"driver": "d.e", "pool": {"name": "p", "resourceSliceCount": 1}, "nodeName": "n"}
    base.update({"devices": list(devices)} if devices else {}, **spec)
    return {"spec": {key: value for key, value in base.items() if value is not None}}


def policy(**fields: Any) -> dict[str, Any]:
    return {"name": "a", "allowMultipleAllocations": True, "capacity": {"x": {"value": "10", "requestPolicy": fields}}}


@pytest.mark.parametrize(
    ("body", "errors"),
    [
        (
            offer(nodeName=None),
            [
                "spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` "
                "is required"
            ],
        ),
        (offer({"name": "a"}, {"name": "a"}), ['spec.devices[1]: Duplicate value: "a"']),
        (
            offer({"name": "a", "attributes": {"v": {"version": "1.2"}}}),
            [
                'spec.devices[0].attributes[v].version: Invalid value: "1.2": must be a string compatible with '
                "semver.org spec 2.0.0"
            ],
        ),
        (
            offer({"name": "a", "attributes": {"x": {"int": 1, "bool": True}}}),
            [
                'spec.devices[0].attributes[x]: Invalid value: "{int, bool}": must specify exactly one of: `int`, '
                "`bool`, `string`, "
                "`version`, `ints`, `bools`, `strings`, `versions`"
            ],
        ),
        (offer({"name": "a", "taints": [{"key": "k"}]}), ["spec.devices[0].taints[0].effect: Required value"]),
        (
            offer({"name": "a", "nodeName": "n"}),
            [
                "spec.devices[0]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if "
                "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
            ],
        ),
        (offer(policy(default="3", validRange={"min": "1", "max": "9", "step": "2"})), []),
        (
            offer(policy(default="2", validRange={"min": "1", "step": "2"})),
            [
                'spec.devices[0].capacity[x].requestPolicy.validRange.step: Invalid value: "2": value is not a '
                "multiple of a given "
                "step (2) from (1)"
            ],
        ),
        (
            offer(policy(default="1", validValues=["2", "1"])),
            [
                'spec.devices[0].capacity[x].requestPolicy.validValues[1]: Invalid value: "1": values must be sorted '
                "in ascending order"
            ],
        ),
    ],
)
def test_errors(slices: Any, body: dict[str, Any], errors: list[str]) -> None:
    assert slices.errors(body) == errors


def test_taints_get_a_time_and_disabled_fields_are_dropped(slices: Any) -> None:
    body = offer({"name": "a", "taints": [{"key": "k", "effect": "NoSchedule"}]}, skipNodeOperations=["All"])
    spec = slices.created(body)["spec"]
    assert spec["devices"][0]["taints"][0]["timeAdded"] == "2030-01-01T00:00:00Z"
    assert "skipNodeOperations" not in spec


def test_driver_is_immutable_and_upper_case_causes_a_warning(slices: Any) -> None:
    old = slices.created(offer())
    _, errors, _ = slices.update(old, spec={"driver": "x.y"})
    assert errors == ['spec.driver: Invalid value: "x.y": field is immutable']
    assert "contains uppercase characters" in slices.warnings(offer(driver="D.E"))[0]


def test_a_changed_effect_resets_the_time_of_a_taint(lifecycle: Any) -> None:
    rules = lifecycle(GROUP, "DeviceTaintRule")
    added = "2029-01-01T00:00:00Z"
    old = rules.created({"spec": {"taint": {"key": "k", "effect": "NoSchedule", "timeAdded": added}}})
    obj, errors, _ = rules.update(old, spec={"taint": {"key": "k", "effect": "NoExecute", "timeAdded": added}})
    assert errors == [] and obj["spec"]["taint"]["timeAdded"] == "2030-01-01T00:00:00Z"


def test_device_class(lifecycle: Any) -> None:
    classes = lifecycle(GROUP, "DeviceClass")
    assert classes.errors({"spec": {"extendedResourceName": "kubernetes.io/x"}}) == [
        'spec.extendedResourceName: Invalid value: "kubernetes.io/x": must not have "kubernetes.io/" domain'
    ]
    _, errors, _ = classes.create({"spec": {"selectors": [{}]}}, name="A")
    assert errors[0] == "spec.selectors[0].cel: Required value"
    assert errors[1].startswith('metadata.name: Invalid value: "A"')
