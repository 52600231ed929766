"""Settings of the kernel are changed with a record of the former values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.network.kernel_settings import FORWARDING, KernelSettings

IPV4, IPV6 = FORWARDING[4], FORWARDING[6]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for path, value in ((IPV4, "0\n"), (IPV6, "1\n")):
        (tmp_path / "sys" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys" / path).write_text(value)
    return tmp_path / "sys"


@pytest.fixture
def settings(root: Path) -> Iterator[KernelSettings]:
    pool = BlockingPool(1)
    yield KernelSettings(root.parent / "state" / "kernel.json", pool, root)
    pool.close()


async def test_values_are_restored_after_a_restart(settings: KernelSettings, root: Path) -> None:
    assert await settings.apply({IPV4: "1", IPV6: "1"}) == []
    assert (root / IPV4).read_text() == "1"
    # The agent starts again: the value it finds is its own.
    assert await settings.apply({IPV4: "1", IPV6: "1"}) == []
    assert await settings.restore() == []
    assert (root / IPV4).read_text() == "0"
    assert (root / IPV6).read_text() == "1\n", "it was on before"
    assert not (root.parent / "state" / "kernel.json").exists()


async def test_a_value_that_another_program_changed_stays(settings: KernelSettings, root: Path) -> None:
    await settings.apply({IPV4: "1"})
    (root / IPV4).write_text("2")
    assert await settings.restore() == []
    assert (root / IPV4).read_text() == "2"


async def test_what_cannot_be_set_is_reported_and_an_interface_may_be_gone(
    settings: KernelSettings, root: Path
) -> None:
    assert await settings.apply({"net/missing": "1", IPV4: "1"}) == [
        "cannot set net/missing to 1: No such file or directory"
    ]
    (root / IPV4).unlink()
    assert await settings.restore() == []


async def test_a_damaged_record_is_not_fatal(
    settings: KernelSettings, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (root.parent / "state").mkdir()
    (root.parent / "state" / "kernel.json").write_text("{")
    assert await settings.apply({IPV4: "1"}) == []
    assert "is damaged" in caplog.text and (root / IPV4).read_text() == "1"
