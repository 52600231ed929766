"""Requests generated from the server's own schema with random values: no internal error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from effort import tries
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from mutation_detector import MutationDetector
from server_harness import ServerHarness

schemathesis = pytest.importorskip("schemathesis")


@pytest.fixture
def served(
    mutation_detector: MutationDetector, quiet_log: pytest.LogCaptureFixture
) -> Iterator[tuple[asyncio.Runner, ServerHarness]]:
    runner = asyncio.Runner()
    harness = runner.run(ServerHarness.open())
    yield runner, harness
    runner.run(harness.close())
    runner.close()


@pytest.mark.slow
@pytest.mark.parametrize("document", ["api/v1", "apis/batch/v1", "apis/apps/v1"][: tries(1, 3)])
def test_requests_generated_from_the_schema(served: tuple[asyncio.Runner, ServerHarness], document: str) -> None:
    runner, harness = served
    described = runner.run(harness.get(f"/openapi/v3/{document}"))
    assert described.status == 200
    loaded = schemathesis.openapi.from_dict(orjson.loads(described.body))
    operations = [found.ok() for found in loaded.get_all_operations()]
    written = [each for each in operations if each.method in ("post", "put") and "/proxy" not in each.path]
    assert written
    cases = st.sampled_from(written).flatmap(lambda operation: operation.as_strategy())

    @settings(
        max_examples=tries(12, 100),
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(case=cases)
    def play(case: Any) -> None:
        path = case.formatted_path.replace("{", "").replace("}", "")
        body = (
            b""
            if case.body is schemathesis.core.NOT_SET
            else json.dumps(case.body, default=str).encode("utf-8", "replace")
        )
        reply = runner.run(harness.request(case.method, f"{path}?dryRun=All", body))
        assert reply.status < 500 or reply.json.get("reason", "") == "" or reply.status == 501, (path, reply.body)

    play()
