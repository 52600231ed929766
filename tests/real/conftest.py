from __future__ import annotations

from collections.abc import Generator

import pytest
from real_examples import example_images
from real_machine import RealMachine
from real_node import (
    cluster,
    containerd,
    joined,
    joined_pods,
    machine,
    no_stale_machines,
    pods,
    private_registry,
    pushed_images,
    registry,
)

__all__ = [
    "cluster",
    "containerd",
    "example_images",
    "joined",
    "joined_pods",
    "machine",
    "no_stale_machines",
    "pods",
    "private_registry",
    "pushed_images",
    "registry",
]

_LOG_TAIL = 3000


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the ends of the logs of the machines' programs and containers with each test that fails."""
    report = yield
    arguments = getattr(item, "funcargs", {})
    used = [arguments.get("machine"), *arguments.get("machines", ())] if report.failed else []
    for each in [each for each in used if isinstance(each, RealMachine)]:
        containers = each.directory.glob("pod-logs/*/*/*.log")
        for log in [log for log in (*each.logs, *containers) if log.exists()]:
            lines = [line for line in log.read_text(errors="replace").splitlines() if "level=info" not in line]
            title = f"{log.relative_to(each.directory)} of the machine {each.name}"
            report.sections.append((title, "\n".join(lines)[-_LOG_TAIL:]))
    return report
