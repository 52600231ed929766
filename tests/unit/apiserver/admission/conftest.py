from __future__ import annotations

import pytest
from admission_attributes import FixedIds, ManualClock, ObjectReader


@pytest.fixture
def reader() -> ObjectReader:
    found = ObjectReader()
    found.put("", "namespaces", "", "ns", status={"phase": "Active"})
    return found


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ids() -> FixedIds:
    return FixedIds()
