from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest

from setpoint.kinds.core.pod import STRATEGY
from setpoint.kinds.strategy import Context
from setpoint.meta.field import FieldError

CTX = Context(now=datetime(2026, 1, 1, tzinfo=UTC))
STATUS = STRATEGY.subresources["status"]


def stored(status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    obj = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}
    STRATEGY.default(obj)
    STRATEGY.prepare_for_create(obj, CTX)
    obj["status"].update(status or {})
    return obj


def update(old: dict[str, Any], **status: Any) -> tuple[dict[str, Any], list[str]]:
    new = deepcopy(old)
    new["status"].update(status)
    STATUS.default(new)
    STATUS.prepare_for_update(new, old, CTX)
    errs: list[FieldError] = []
    STATUS.validate_update(new, old, errs, CTX)
    return new, [error.message() for error in errs]


def test_a_status_update_changes_neither_spec_nor_owner_references() -> None:
    old = stored()
    new = deepcopy(old)
    new["spec"]["nodeName"] = "n"
    new["metadata"]["ownerReferences"] = [{"name": "x"}]
    new["metadata"]["labels"] = {"a": "b"}
    STATUS.prepare_for_update(new, old, CTX)
    assert new["spec"] == old["spec"]
    assert new["metadata"] == {**old["metadata"], "labels": {"a": "b"}}


def test_fields_that_old_clients_omit_are_retained() -> None:
    old = stored(
        {"observedGeneration": 3, "conditions": [{"type": "Ready", "status": "True", "observedGeneration": 3}]}
    )
    new = deepcopy(old)
    new["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}
    STATUS.prepare_for_update(new, old, CTX)
    assert new["status"] == {
        "phase": "Running",
        "qosClass": "BestEffort",
        "observedGeneration": 3,
        "conditions": [{"type": "Ready", "status": "False", "observedGeneration": 3}],
    }


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"phase": "Running"}, []),
        ({"qosClass": "Guaranteed"}, ['status.qosClass: Invalid value: "Guaranteed": field is immutable']),
        ({"observedGeneration": -1}, ["status.observedGeneration: Invalid value: -1: must be a non-negative integer"]),
        ({"nominatedNodeName": "n"}, []),
        (
            {"podIP": "x"},
            ['status.podIPs[0]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)'],
        ),
        ({"podIP": "1.1.1.1", "podIPs": [{"ip": "1.1.1.1"}, {"ip": "::1"}]}, []),
        (
            {"podIP": "1.1.1.1", "podIPs": [{"ip": "1.1.1.1"}, {"ip": "2.2.2.2"}]},
            [
                'status.podIPs: Invalid value: [{"IP":"1.1.1.1"},{"IP":"2.2.2.2"}]: may specify no more than one IP for each IP family'
            ],
        ),
        (
            {"hostIP": "1.1.1.1", "hostIPs": [{"ip": "2.2.2.2"}]},
            ['status.hostIPs[0].ip: Invalid value: "2.2.2.2": must be equal to `hostIP`'],
        ),
        (
            {"resourceClaimStatuses": [{"name": "x"}]},
            [
                'status.resourceClaimStatuses[0].name: Invalid value: "x": must match the name of an entry in `spec.resourceClaims`'
            ],
        ),
        (
            {"containerStatuses": [{"name": "c", "user": {"linux": {"uid": -1}}}]},
            [
                "status.containerStatuses[0].user.linux.uid: Invalid value: -1: must be between 0 and 4294967295, inclusive"
            ],
        ),
    ],
)
def test_rules(status: dict[str, Any], expected: list[str]) -> None:
    assert update(stored(), **status)[1] == expected


def test_a_bound_pod_cannot_be_nominated() -> None:
    assert update(stored(nodeName="n"), nominatedNodeName="m")[1] == [
        "status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node"
    ]


@pytest.mark.parametrize(
    ("policy", "container", "exit_code", "may_run_again"),
    [
        ("Always", {}, 0, True),
        ("OnFailure", {}, 0, False),
        ("OnFailure", {}, 1, True),
        ("Never", {}, 1, False),
        ("Never", {"restartPolicy": "Always"}, 0, True),
        ("Always", {"restartPolicy": "Never"}, 1, False),
        (
            "Never",
            {
                "restartPolicy": "Never",
                "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [3]}}],
            },
            3,
            True,
        ),
        (
            "Never",
            {
                "restartPolicy": "Never",
                "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [3]}}],
            },
            4,
            False,
        ),
    ],
)
def test_terminated_containers_cannot_run_again_without_restart(
    policy: str, container: dict[str, Any], exit_code: int, may_run_again: bool
) -> None:
    old = stored(restartPolicy=policy, containers=[{"name": "c", "image": "i", **container}])
    old["status"]["containerStatuses"] = [{"name": "c", "state": {"terminated": {"exitCode": exit_code}}}]
    _, found = update(old, containerStatuses=[{"name": "c", "state": {"running": {}}}])
    text = "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"
    assert found == ([] if may_run_again else [text])


def test_an_address_in_non_canonical_form_causes_a_warning() -> None:
    old = stored()
    new, _ = update(old, podIP="FE80::1")
    assert STATUS.warnings_on_update(new, old, CTX) == [
        'status.podIPs[0].ip: IPv6 address "FE80::1" should be in RFC 5952 canonical format ("fe80::1")'
    ]
