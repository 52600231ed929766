"""Event (of the core group).

Generated from the field tables by `tools/make_typed_kinds.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from typing_extensions import ReadOnly

    from setpoint.kinds.typed.metadata import ObjectMeta, ObjectReference


class Event(TypedDict, total=False):
    kind: ReadOnly[str]
    apiVersion: ReadOnly[str]
    metadata: ReadOnly[ObjectMeta]
    involvedObject: ReadOnly[ObjectReference]
    reason: ReadOnly[str]
    message: ReadOnly[str]
    source: ReadOnly[EventSource]
    firstTimestamp: ReadOnly[str]
    lastTimestamp: ReadOnly[str]
    count: ReadOnly[int]
    type: ReadOnly[str]
    eventTime: ReadOnly[str]
    series: ReadOnly[EventSeries]
    action: ReadOnly[str]
    related: ReadOnly[ObjectReference]
    reportingComponent: ReadOnly[str]
    reportingInstance: ReadOnly[str]


class EventSeries(TypedDict, total=False):
    count: ReadOnly[int]
    lastObservedTime: ReadOnly[str]


class EventSource(TypedDict, total=False):
    component: ReadOnly[str]
    host: ReadOnly[str]
