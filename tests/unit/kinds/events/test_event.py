from __future__ import annotations

from typing import Any

import pytest

from setpoint.kinds.events.event import from_core, to_core

TIME = "2029-12-31T00:00:00.000000Z"
META = {"name": "x", "namespace": "ns"}
NEW = {
    "kind": "Event",
    "apiVersion": "events.k8s.io/v1",
    "metadata": META,
    "regarding": {"namespace": "ns", "kind": "Pod", "name": "p"},
    "eventTime": TIME,
    "type": "Normal",
    "reason": "R",
    "reportingController": "a.b/c",
    "reportingInstance": "i",
    "action": "A",
    "note": "hello",
}


@pytest.fixture
def core_events(lifecycle: Any) -> Any:
    return lifecycle("v1", "Event")


@pytest.fixture
def events(lifecycle: Any) -> Any:
    return lifecycle("events.k8s.io/v1", "Event")


def untyped(obj: dict[str, Any]) -> dict[str, Any]:
    """Return the object without kind and apiVersion, as objects are stored."""
    return {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}


def test_conversion_between_both_event_versions(core_events: Any, events: Any) -> None:
    new = untyped(events.created({**NEW, "series": {"count": 2, "lastObservedTime": TIME}}))
    core = to_core(new)
    assert core == core_events.decoded(core)  # every field that v1 always writes is there, in its place
    assert list(core) == list(core_events.decoded(core))
    assert (core["message"], core["reportingComponent"]) == ("hello", "a.b/c")
    assert from_core(core) == new
    assert list(from_core(core)) == list(new)


def test_a_v1_event_converted_to_events_v1(core_events: Any, events: Any) -> None:
    old = untyped(
        core_events.created(
            {
                "kind": "Event",
                "apiVersion": "v1",
                "metadata": META,
                "involvedObject": {"namespace": "ns"},
                "count": 3,
                "source": {"component": "c"},
                "firstTimestamp": "2026-01-01T00:00:00Z",
            }
        )
    )
    new = from_core(old)
    assert new == events.decoded(new)
    assert new["deprecatedCount"] == 3 and new["deprecatedSource"] == {"component": "c"}
    assert "reportingController" not in new
    assert to_core(new) == old


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"involvedObject": {"namespace": "ns"}}, []),
        (
            {"involvedObject": {"namespace": "other"}},
            ['involvedObject.namespace: Invalid value: "other": does not match event.namespace'],
        ),
        (
            {"involvedObject": {"namespace": "ns"}, "eventTime": TIME},
            [
                "reportingComponent: Required value",
                'reportingComponent: Invalid value: "": name part must be non-empty',
                'reportingComponent: Invalid value: "": name part must consist of alphanumeric characters, '
                "'-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or "
                "'123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
                "reportingInstance: Required value",
                "action: Required value",
                "reason: Required value",
            ],
        ),
    ],
)
def test_rules_of_v1(core_events: Any, body: dict[str, Any], expected: list[str]) -> None:
    assert core_events.errors({**body, "metadata": META}) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"type": "Odd"}, ['type: Invalid value: "": has invalid value: Odd']),
        (
            {"series": {"count": 1}},
            ['series.count: Invalid value: "": should be at least 2', "series.lastObservedTime: Required value"],
        ),
        ({"deprecatedCount": 3}, ['count: Invalid value: "": needs to be unset']),
        ({"note": "x" * 1025}, ['message: Invalid value: "": can have at most 1024 characters']),
    ],
)
def test_rules_of_events_v1(events: Any, change: dict[str, Any], expected: list[str]) -> None:
    assert events.errors({**NEW, **change}) == expected


def test_only_the_series_of_an_events_v1_event_may_change(events: Any) -> None:
    old = events.created(NEW)
    assert events.put(old, {**NEW, "series": {"count": 2, "lastObservedTime": TIME}})[1] == []
    assert events.put(old, {**NEW, "note": "other"})[1] == ['message: Invalid value: "other": field is immutable']
    assert events.put(old, {**NEW, "regarding": {"namespace": "ns", "name": "q"}})[1] == [
        'involvedObject: Invalid value: {"Kind":"","Namespace":"ns","Name":"q","UID":"","APIVersion":"",'
        '"ResourceVersion":"","FieldPath":""}: field is immutable'
    ]


def test_rows_and_fields(core_events: Any, events: Any) -> None:
    new = events.created(NEW)
    row = events.cells(new)
    assert row == core_events.cells(to_core(new))
    assert (row["Last Seen"], row["Object"], row["Source"], row["Count"]) == ("24h", "pod/p", "a.b/c, i", 1)
    assert events.strategy.selectable_fields(new)["regarding.name"] == "p"
    fields = core_events.strategy.selectable_fields(to_core(new))
    assert fields["source"] == fields["reportingComponent"] == "a.b/c"
    assert "deprecatedSource" not in events.strategy.field_labels
    assert events.strategy.selectable_fields(new).keys() <= events.strategy.field_labels
