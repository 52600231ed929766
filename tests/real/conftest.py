from __future__ import annotations

from collections.abc import Generator

import pytest
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
    """Show the ends of the logs of the machines' programs with each test that fails."""
    report = yield
    arguments = getattr(item, "funcargs", {})
    used = [arguments.get("machine"), *arguments.get("machines", ())] if report.failed else []
    for log in [log for each in used if isinstance(each, RealMachine) for log in each.logs if log.exists()]:
        lines = [line for line in log.read_text(errors="replace").splitlines() if "level=info" not in line]
        title = f"{log.relative_to(log.parent.parent)} of the machine"
        report.sections.append((title, "\n".join(lines)[-_LOG_TAIL:]))
    return report
