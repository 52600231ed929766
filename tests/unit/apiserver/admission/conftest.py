from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from admission_world import FixedIds, ManualClock, World


@pytest.fixture
def world() -> World:
    found = World()
    found.put("", "namespaces", "", "ns", status={"phase": "Active"})
    return found


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ids() -> FixedIds:
    return FixedIds()
