"""Components as files in a data directory, and as static Pods."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Sequence
from contextlib import aclosing, suppress
from pathlib import Path

import pytest
from stopped_clock import StoppedClock

from setpoint.cluster import component_files as files
from setpoint.cluster.component_files import ComponentPods, FileLog, component_files
from setpoint.node.static_pods import StaticPod

log = logging.getLogger("setpoint.scheduler")


async def pods_of(directory: Path, clock: StoppedClock) -> list[StaticPod]:
    found: list[StaticPod] = []

    def changed(pods: Sequence[StaticPod]) -> None:
        found[:] = pods

    following = asyncio.ensure_future(ComponentPods(directory, clock).follow(changed))
    await asyncio.sleep(0)
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following
    return found


async def test_a_component_is_a_pod_while_it_runs(tmp_path: Path) -> None:
    clock = StoppedClock()
    with component_files(tmp_path, "kube-scheduler", clock):
        log.info("one")
        log.error("two")
        (pod,) = await pods_of(tmp_path, clock)
        assert pod.component == "kube-scheduler" and pod.image.startswith("setpoint.dev/kube-scheduler:v")
        first, second = pod.log.lines()
        assert first.text[0] == "I" and first.text.endswith("] one\n")
        assert second.text[0] == "E" and second.at == clock.now().timestamp()
        assert {path.stat().st_mode & 0o777 for path in (tmp_path / "components").iterdir()} == {0o600}
    assert await pods_of(tmp_path, clock) == []
    assert not list((tmp_path / "components").iterdir())


async def test_files_of_ended_processes_are_ignored(tmp_path: Path) -> None:
    clock, folder = StoppedClock(), tmp_path / "components"
    folder.mkdir()
    manifest = {"component": "kube-scheduler", "pid": 2**22 + 1, "command": [], "started": "2026-01-01T00:00:00Z"}
    (folder / "kube-scheduler.1.json").write_text(json.dumps(manifest))
    (folder / "kube-scheduler.1.log").write_text("")
    (folder / "broken.json").write_text("{")
    assert await pods_of(tmp_path, clock) == []
    with component_files(tmp_path, "kube-scheduler", clock):
        assert not (folder / "kube-scheduler.1.log").exists()
        assert len(await pods_of(tmp_path, clock)) == 1


async def test_a_log_is_bounded_and_can_be_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_MAX_LOG_BYTES", 2000)
    clock = StoppedClock()
    with component_files(tmp_path, "kube-scheduler", clock):
        path = tmp_path / "components" / f"kube-scheduler.{os.getpid()}.log"
        seen: list[str] = []

        async def follow() -> None:
            async with aclosing(FileLog(path, clock).follow()) as lines:  # type: ignore[type-var]
                async for line in lines:
                    seen.append(line.text.split("] ")[1].strip())

        log.info("0")
        following = asyncio.ensure_future(follow())
        for number in range(1, 200):
            log.info("%d", number)
            await clock.advance(0.5)
        assert seen == [str(number) for number in range(200)]
        assert sum(each.stat().st_size for each in (tmp_path / "components").iterdir()) < 6000
        following.cancel()


def test_without_a_data_directory_nothing_is_written(tmp_path: Path) -> None:
    clock = StoppedClock()
    with component_files(None, "kube-scheduler", clock), component_files(tmp_path / "no", "kube-scheduler", clock):
        log.info("unheard")
    assert not list(tmp_path.iterdir())
