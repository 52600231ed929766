"""The checks of a machine before it becomes a node."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from setpoint.node.host import preflight
from setpoint.node.host.preflight import Check, Options, Outcome, checks, install_command, passed

PROGRAMS = {
    "containerd": "containerd github.com/containerd/containerd 1.7.2 x",
    "runc": "runc version 1.1.5\ncommit: x",
    "ctr": "ctr x",
    "ip": "ip utility",
    "nft": "nftables v1.0.6",
    "conntrack": "conntrack v1.4",
}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    """A machine on which everything is right."""
    root, plugins = tmp_path / "machine", tmp_path / "cni"
    for path, content in {
        "proc/self/status": "CapEff:\t000001ffffffffff\n",
        "proc/self/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
        "proc/self/mountinfo": "1 0 8:1 / / rw shared:1 - ext4 /dev/sda rw\n",
        "proc/filesystems": "nodev\toverlay\n\text4\n",
        "proc/sys/net/ipv4/ip_forward": "1\n",
        "proc/meminfo": "MemTotal: 1 kB\nSwapTotal: 0 kB\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    mount = tmp_path / "cgroup"
    mount.mkdir()
    (mount / "cgroup.controllers").write_text("cpu memory pids\n")
    (root / "proc/self/mounts").write_text(f"cgroup2 {mount} cgroup2 rw 0 0\n")
    plugins.mkdir()
    for name in ("loopback", "ptp", "host-local"):
        (plugins / name).touch(mode=0o755)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(preflight, "_has_call", lambda number: True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return Options(port, cni_directories=(str(tmp_path / "none"), str(plugins)), root=root, run=programs())


def programs(**changes: str | None) -> Callable[[Sequence[str]], str | None]:
    available = {**PROGRAMS, **changes}

    def run(command: Sequence[str]) -> str | None:
        return available.get(command[0])

    return run


def problems(options: Options) -> dict[str, Check]:
    return {check.name: check for check in checks(options) if check.outcome is not Outcome.OK}


def test_a_machine_on_which_everything_is_right(machine: Options) -> None:
    assert problems(machine) == {}
    assert passed(checks(machine)) and install_command(checks(machine)) == ""


def test_every_check_has_a_sentence(machine: Options) -> None:
    for check in checks(machine):
        assert check.message[0].isupper() or check.message.startswith(("containerd", "runc", "ip", "nft", "conntrack"))
        assert check.message.endswith(".")


@pytest.mark.parametrize(
    ("path", "content", "name", "outcome", "message"),
    [
        ("proc/self/status", "CapEff:\t00000000a80425fb\n", "privileges", "failed", "CAP_NET_ADMIN, CAP_SYS_PTRACE"),
        ("proc/self/status", "CapEff:\t000001fffeffffff\n", "oom scores", "warning", "CAP_SYS_RESOURCE"),
        ("proc/self/mounts", "", "cgroups", "failed", "No cgroup file system"),
        ("proc/self/mounts", "cgroup /c cgroup cpu 0 0", "cgroups", "failed", "The memory controller"),
        ("proc/filesystems", "ext4", "overlayfs", "failed", "overlayfs"),
        ("proc/sys/net/ipv4/ip_forward", "0", "ip forwarding", "warning", "net.ipv4.ip_forward"),
        ("proc/self/mountinfo", "1 0 8:1 / / rw - ext4 x rw\n", "mount propagation", "warning", "--make-rshared /"),
        ("proc/meminfo", "SwapTotal: 5 kB\n", "swap", "warning", "swapoff -a"),
    ],
)
def test_problems_of_the_machine(
    machine: Options, path: str, content: str, name: str, outcome: str, message: str
) -> None:
    (machine.root / path).write_text(content)
    found = problems(machine)
    assert found[name].outcome.value == outcome and message in found[name].message
    assert passed(found.values()) == (outcome == "warning")


@pytest.mark.parametrize(
    ("program", "output", "message", "package"),
    [
        ("containerd", None, "containerd is not installed.", "containerd"),
        (
            "containerd",
            "containerd x 1.6.14",
            "containerd 1.6.14 is too old; 1.6.15 or later is required.",
            "containerd",
        ),
        ("containerd", "?", "containerd does not print its version.", "containerd"),
        ("runc", None, "runc is not installed.", "runc"),
        ("ctr", None, "ctr, a program of containerd, is not installed.", "containerd"),
        ("nft", None, "nft is not installed: Services, host ports and network policies do not work.", "nftables"),
        ("conntrack", None, "conntrack is not installed: ", "conntrack"),
    ],
)
def test_missing_programs(machine: Options, program: str, output: str | None, message: str, package: str) -> None:
    found = problems(machine._replace(run=programs(**{program: output})))
    assert found[program].message.startswith(message)
    assert found[program].packages == (package,)
    command = install_command(found.values(), fedora=False)
    assert command == f"apt-get install -y --no-install-recommends {package}"


def test_the_command_installs_everything_at_once(machine: Options) -> None:
    found = checks(machine._replace(run=lambda command: None, cni_directories=("/none",)))
    assert install_command(found, fedora=False).split()[4:] == [
        "conntrack",
        "containerd",
        "containernetworking-plugins",
        "iproute2",
        "nftables",
        "runc",
    ]
    assert install_command(found, fedora=True) == (
        "dnf install -y conntrack-tools containerd containernetworking-plugins iproute nftables runc"
    )


def test_an_existing_runtime_needs_no_programs(machine: Options) -> None:
    found = problems(machine._replace(own_containerd=False, run=programs(containerd=None, runc=None)))
    assert found == {}


def test_plugins(machine: Options) -> None:
    directory = Path(machine.cni_directories[1])
    (directory / "ptp").unlink()
    found = problems(machine)["network plugins"]
    assert found.message == f"The CNI plugins ptp are in none of {', '.join(machine.cni_directories)}."
    (directory / "ptp").touch(mode=0o644)
    assert problems(machine)["network plugins"].outcome is Outcome.FAILED


def test_a_port_in_use(machine: Options) -> None:
    with socket.socket() as listener:
        listener.bind(("0.0.0.0", 0))
        listener.listen()
        port = listener.getsockname()[1]
        found = problems(machine._replace(port=port))["port"]
    assert found.message.startswith(f"Port {port}, on which the API server reaches the node, is not free: ")


def test_without_root(machine: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert problems(machine)["privileges"].message == "The agent must run as root: run the command with sudo."


def test_a_kernel_without_the_calls(machine: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "_has_call", lambda number: number == 428)
    assert "openat2; Linux 5.6" in problems(machine)["kernel"].message


def test_calls_of_this_kernel() -> None:
    assert preflight._has_call(100_000) is False
