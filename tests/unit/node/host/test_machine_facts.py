"""What a node reads of its machine, from a prepared /proc and /sys."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from setpoint.node.host.machine import (
    go_architecture,
    has_capability,
    read_boot_time,
    read_cpu_seconds,
    read_filesystem,
    read_machine,
    read_memory,
    read_processes,
)


def write(root: Path, path: str, content: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(content)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for path, content in {
        "proc/meminfo": "MemTotal: 1000 kB\nMemFree: 200 kB\nMemAvailable: 700 kB\nSwapTotal: 64 kB\nSwapFree: 60 kB\n",
        "proc/sys/kernel/random/boot_id": "boot-1\n",
        "proc/sys/kernel/osrelease": "6.1.0-test\n",
        "proc/sys/kernel/pid_max": "4194304\n",
        "proc/sys/kernel/threads-max": "5000\n",
        "proc/loadavg": "0.10 0.20 0.30 2/345 6789\n",
        "proc/stat": "cpu  100 20 30 4000 50 6 7 8 9 10\ncpu0 1 2 3\nbtime 1700000000\n",
        "proc/self/status": "Name:\tx\nCapEff:\t0000000000200001\n",
        "sys/devices/system/cpu/online": "0-2,5\n",
        "sys/class/dmi/id/product_uuid": "uuid-1\n",
        "etc/machine-id": "machine-1\n",
        "etc/os-release": 'NAME="X"\nPRETTY_NAME="X 12 (y)"\n',
        "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "3\n",
    }.items():
        write(tmp_path, path, content)
    return tmp_path


def test_facts(root: Path) -> None:
    facts = read_machine(root)
    assert (facts.cpus, facts.memory_bytes, facts.swap_bytes) == (4, 1000 * 1024, 64 * 1024)
    assert (facts.machine_id, facts.system_uuid, facts.boot_id) == ("machine-1", "uuid-1", "boot-1")
    assert (facts.kernel, facts.os_image) == ("6.1.0-test", "X 12 (y)")
    assert facts.huge_pages == {2 << 20: 6 << 20}
    assert facts.architecture == go_architecture(os.uname().machine)


def test_memory_processes_and_time(root: Path) -> None:
    memory = read_memory(root)
    assert (memory.available, memory.free, memory.working_set) == (700 * 1024, 200 * 1024, 300 * 1024)
    assert read_processes(root) == (345, 5000)
    assert read_cpu_seconds(root) == (100 + 20 + 30 + 6 + 7 + 8) / os.sysconf("SC_CLK_TCK")
    assert read_boot_time(root) == 1_700_000_000
    assert has_capability(21, root) and has_capability(0, root) and not has_capability(24, root)


def test_a_machine_without_any_of_the_files(tmp_path: Path) -> None:
    facts = read_machine(tmp_path)
    assert (facts.cpus, facts.memory_bytes, facts.machine_id, facts.os_image) == (1, 0, "", "Linux")
    assert read_processes(tmp_path) == (0, 0)


def test_processors_of_a_kernel_without_sysfs(root: Path) -> None:
    (root / "sys/devices/system/cpu/online").unlink()
    write(root, "proc/cpuinfo", "processor\t: 0\nmodel\t: x\n\nprocessor\t: 1\n")
    assert read_machine(root).cpus == 2


def test_a_machine_without_a_uuid_has_its_machine_id(root: Path) -> None:
    (root / "sys/class/dmi/id/product_uuid").unlink()
    assert read_machine(root).system_uuid == "machine-1"


@pytest.mark.parametrize(("machine", "name"), [("x86_64", "amd64"), ("aarch64", "arm64"), ("other", "other")])
def test_architectures_have_the_names_of_go(machine: str, name: str) -> None:
    assert go_architecture(machine) == name


def test_a_file_system(tmp_path: Path) -> None:
    found = read_filesystem(tmp_path)
    assert found.device == tmp_path.stat().st_dev
    assert 0 < found.available_bytes <= found.capacity_bytes
    assert found.available_bytes + found.used_bytes <= found.capacity_bytes
    with pytest.raises(FileNotFoundError):
        read_filesystem(tmp_path / "missing")
