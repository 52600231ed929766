from __future__ import annotations

from typing import Any


def test_leases(lifecycle: Any) -> None:
    leases = lifecycle("coordination.k8s.io/v1", "Lease")
    assert leases.errors({"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}}) == [
        "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
        "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
    ]
    obj = leases.created({"spec": {"holderIdentity": "h", "strategy": "x", "preferredHolder": "y"}})
    assert obj["spec"] == {"holderIdentity": "h"}, "coordinated leader election is off"
    assert leases.cells(obj)["Holder"] == "h"
    assert leases.cells(leases.created({}))["Holder"] == ""
    stored = {**obj, "spec": {"holderIdentity": "h", "strategy": "x"}}
    changed, errors = leases.put(stored, {"spec": {"strategy": "y"}})
    assert changed["spec"] == {"strategy": "y"}
    assert errors == ['spec.strategy.strategy: Unsupported value: "y": supported values: "OldestEmulationVersion"']
