from typing import Any

import pytest

RULE = {
    "subjects": [{"kind": "User", "user": {"name": "u"}}],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
}


@pytest.fixture
def schemas(lifecycle: Any) -> Any:
    return lifecycle("flowcontrol.apiserver.k8s.io/v1", "FlowSchema")


@pytest.fixture
def levels(lifecycle: Any) -> Any:
    return lifecycle("flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration")


def schema(**spec: Any) -> dict[str, Any]:
    return {"spec": {"priorityLevelConfiguration": {"name": "x"}, "rules": [RULE], **spec}}


def test_flow_schema_defaults_and_cells(schemas: Any) -> None:
    obj = schemas.created(schema())
    assert obj["spec"]["matchingPrecedence"] == 1000
    cells = schemas.cells(obj)
    assert (cells["PriorityLevel"], cells["DistinguisherMethod"], cells["MissingPL"]) == ("x", "<none>", "?")


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"matchingPrecedence": 1}, "only the schema named 'exempt' may have matchingPrecedence 1"),
        (
            {"priorityLevelConfiguration": {}},
            "spec.priorityLevelConfiguration.name: Required value: must reference a priority level",
        ),
        (
            {"distinguisherMethod": {"type": "X"}},
            'Unsupported value: {"Type":"X"}: supported values: "ByNamespace", "ByUser"',
        ),
        (
            {"rules": [{"subjects": RULE["subjects"]}]},
            "at least one of resourceRules and nonResourceRules has to be non-empty",
        ),
        (
            {"rules": [{**RULE, "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/a*"]}]}]},
            "wildcard can only do suffix matching",
        ),
    ],
)
def test_flow_schema_errors(schemas: Any, spec: dict[str, Any], error: str) -> None:
    (found,) = schemas.errors(schema(**spec))
    assert error in found


def test_the_catch_all_schema_cannot_be_changed(schemas: Any) -> None:
    _, errors, _ = schemas.create(schema(), name="catch-all")
    assert errors[-1].endswith("spec of 'catch-all' must equal the fixed value")
    assert '"APIGroups"' not in errors[-1] and '"MatchingPrecedence":1000' in errors[-1]


def test_level_defaults(levels: Any) -> None:
    limited = {"limitResponse": {"type": "Queue", "queuing": {}}}
    spec = levels.created({"spec": {"type": "Limited", "limited": limited}})["spec"]
    assert spec["limited"] == {
        "nominalConcurrencyShares": 30,
        "lendablePercent": 0,
        "limitResponse": {"type": "Queue", "queuing": {"queues": 64, "handSize": 8, "queueLengthLimit": 50}},
    }


@pytest.mark.parametrize(
    ("spec", "errors"),
    [
        ({}, ["spec.type: Required value"]),
        ({"type": "Limited"}, ["spec.limited: Required value"]),
        (
            {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}, "exempt": {}},
            ["spec.exempt: Forbidden"],
        ),
        (
            {"type": "Limited", "limited": {"limitResponse": {"type": "Reject", "queuing": {}}}},
            ["spec.limited.limitResponse.queuing: Forbidden"],
        ),
        (
            {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {"queues": 1000}}}},
            [
                "spec.limited.limitResponse.queuing.handSize: Invalid value: 8: required entropy bits of deckSize 1000 and "
                "handSize 8 should not be greater than 60"
            ],
        ),
    ],
)
def test_level_errors(levels: Any, spec: dict[str, Any], errors: list[str]) -> None:
    assert levels.errors({"spec": spec}) == errors


def test_status_update_retains_spec_and_metadata(levels: Any) -> None:
    old = levels.created({"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}})
    obj, errors, _ = levels.update(
        old, "status", spec={"type": "Exempt"}, metadata={"labels": {"a": "b"}}, status={"conditions": [{"type": "X"}]}
    )
    assert errors == []
    assert obj["spec"] == old["spec"] and "labels" not in obj["metadata"]
    _, errors, _ = levels.update(old, "status", status={"conditions": [{"type": "X"}, {"type": "X"}]})
    assert errors == ['status.conditions[1].type: Duplicate value: "X"']
