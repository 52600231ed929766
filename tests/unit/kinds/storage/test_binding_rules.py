"""Matching of volumes and claims."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.kinds.storage.binding import is_reserved_for, mismatch_reason, smallest_match
from setpoint.meta.objects import Obj


def a_claim(**spec: Any) -> Obj:
    claim_spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}, **spec}
    return {"metadata": {"name": "data", "namespace": "default", "uid": "u1"}, "spec": claim_spec}


def a_volume(
    name: str = "disk", size: str = "5Gi", phase: str = "Available", meta: Obj | None = None, **spec: Any
) -> Obj:
    return {
        "metadata": {"name": name, **(meta or {})},
        "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], **spec},
        "status": {"phase": phase},
    }


def test_the_smallest_sufficient_volume_is_chosen() -> None:
    volumes = [a_volume("a", "50Gi"), a_volume("b", "6Gi"), a_volume("c", "4Gi"), a_volume("d", "6Gi")]
    found = smallest_match(a_claim(), volumes)
    assert found is not None and found["metadata"]["name"] == "b"


@pytest.mark.parametrize(
    "volume",
    [
        a_volume(size="4Gi"),
        a_volume(phase="Released"),
        a_volume(phase=""),
        a_volume(volumeMode="Block"),
        a_volume(storageClassName="fast"),
        a_volume(meta={"annotations": {"volume.beta.kubernetes.io/storage-class": "fast"}}),
        a_volume(accessModes=["ReadOnlyMany"]),
        a_volume(volumeAttributesClassName="gold"),
        a_volume(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        a_volume(claimRef={"namespace": "default", "name": "other"}),
        a_volume(claimRef={"namespace": "elsewhere", "name": "data"}),
        a_volume(claimRef={"namespace": "default", "name": "data", "uid": "u0"}),
    ],
)
def test_mismatches_exclude_a_volume(volume: Obj) -> None:
    assert smallest_match(a_claim(), [volume]) is None


def test_a_reserved_volume_takes_precedence() -> None:
    reserved = a_volume("mine", "90Gi", "Pending", claimRef={"namespace": "default", "name": "data"})
    volumes = [a_volume("a"), reserved, a_volume("b")]
    assert smallest_match(a_claim(), volumes) is reserved
    assert smallest_match(a_claim(), volumes, only_reserved=True) is reserved
    assert smallest_match(a_claim(), [a_volume()], only_reserved=True) is None
    # Reserved, but out of reach: then no other will do.
    assert smallest_match(a_claim(), volumes, reaches=lambda volume: volume is not reserved) is None


def test_selector_reachability_and_exclusion() -> None:
    claim = a_claim(selector={"matchLabels": {"tier": "fast"}})
    plain, fast = a_volume("plain"), a_volume("fast", "9Gi", meta={"labels": {"tier": "fast"}})
    assert smallest_match(claim, [plain, fast]) is fast
    assert smallest_match(claim, [plain, fast], excluded={"fast"}) is None
    assert smallest_match(a_claim(), [plain, fast], reaches=lambda volume: volume is fast) is fast


@pytest.mark.parametrize(
    ("volume", "reason"),
    [
        (a_volume(), ""),
        (a_volume(meta={"deletionTimestamp": "now"}), 'the volume is marked for deletion "disk"'),
        (a_volume(size="1Gi"), "requested PV is too small"),
        (a_volume(storageClassName="fast"), "storageClassName does not match"),
        (a_volume(volumeAttributesClassName="gold"), "volumeAttributesClassName does not match"),
        (a_volume(volumeMode="Block"), "incompatible volumeMode"),
        (a_volume(accessModes=["ReadOnlyMany"]), "incompatible accessMode"),
    ],
)
def test_mismatch_reasons_of_a_named_volume(volume: Obj, reason: str) -> None:
    assert mismatch_reason(volume, a_claim()) == reason


sizes = st.lists(st.integers(1, 12), max_size=8)


@given(sizes, st.integers(1, 12))
def test_no_smaller_volume_matches(found: list[int], asked: int) -> None:
    claim = a_claim(resources={"requests": {"storage": f"{asked}Gi"}})
    best = smallest_match(claim, [a_volume(f"v{i}", f"{size}Gi") for i, size in enumerate(found)])
    fitting = [size for size in found if size >= asked]
    assert (best is None) == (not fitting)
    if best is not None:
        assert best["spec"]["capacity"]["storage"] == f"{min(fitting)}Gi"


def test_a_reservation_without_uid_matches_by_name() -> None:
    claim = a_claim()
    assert is_reserved_for(a_volume(claimRef={"namespace": "default", "name": "data"}), claim)
    assert is_reserved_for(a_volume(claimRef={"namespace": "default", "name": "data", "uid": "u1"}), claim)
    assert not is_reserved_for(a_volume(), claim)
