"""The child process of etcd: its end is explained, and it never outlives Setpoint."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from setpoint.cluster.certificates import CertificateFiles
from setpoint.cluster.config import ConfigError
from setpoint.cluster.etcd_process import REMOVED, EtcdExited, EtcdProcess, etcd_flags, find_etcd

STARTS_A_CHILD = """
import asyncio, sys
from pathlib import Path
from setpoint.cluster.etcd_process import EtcdProcess
asyncio.run(EtcdProcess(["sh", "-c", "echo $$ > pid; exec sleep 600"], Path("log")).run())
"""
FATAL = '{"level":"fatal","msg":"discovery failed","error":"listen tcp: address already in use"}'


async def ended(tmp_path: Path, script: str) -> EtcdProcess:
    process = EtcdProcess(["sh", "-c", script], tmp_path / "etcd.log")
    process.started.set()
    with pytest.raises(EtcdExited):
        await process.run()
    assert process.exited.is_set()
    return process


async def test_the_reason_of_an_end_is_the_last_error_of_the_log(tmp_path: Path) -> None:
    process = await ended(tmp_path, f"echo '{FATAL}'; echo '{{\"level\":\"info\"}}'; echo x; exit 1")
    assert process.error == "discovery failed: listen tcp: address already in use"


async def test_an_error_of_an_earlier_process_is_not_the_reason(tmp_path: Path) -> None:
    (tmp_path / "etcd.log").write_text(f"{FATAL}\n")
    assert (await ended(tmp_path, "exit 3")).error == "exit code 3"


async def test_etcd_ends_without_an_error_if_its_member_was_removed(tmp_path: Path) -> None:
    assert (await ended(tmp_path, "exit 0")).error == REMOVED


async def test_a_process_that_ends_before_it_has_started_is_not_restarted(tmp_path: Path) -> None:
    process = EtcdProcess(["sh", "-c", "exit 3"], tmp_path / "etcd.log")
    task = asyncio.ensure_future(process.run())
    await process.exited.wait()
    await asyncio.sleep(0)
    assert not task.done()
    assert process.error == "exit code 3"
    process.started.set()
    with pytest.raises(EtcdExited):
        await task


async def test_a_large_log_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "etcd.log").write_bytes(b"\n" * (11 * 1024 * 1024))
    await ended(tmp_path, "exit 3")
    assert (tmp_path / "etcd.log").stat().st_size == 0
    assert (tmp_path / "etcd.log.1").stat().st_size > 0


async def test_cancelling_stops_the_process(tmp_path: Path) -> None:
    process = EtcdProcess(["sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 600"], tmp_path / "etcd.log")
    task = asyncio.ensure_future(process.run())
    child = await asyncio.to_thread(wait_for_pid, tmp_path / "pid")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_running(child)


def test_the_process_dies_with_its_parent(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", STARTS_A_CHILD], cwd=tmp_path)
    try:
        child = wait_for_pid(tmp_path / "pid")
    finally:
        parent.kill()
        parent.wait()
    deadline = time.monotonic() + 20
    while is_running(child):
        assert time.monotonic() < deadline, "the child has outlived its parent"
        time.sleep(0.01)


def wait_for_pid(path: Path) -> int:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with suppress(OSError, ValueError):
            return int(path.read_text())
        time.sleep(0.01)
    raise AssertionError("the child did not start")


def is_running(pid: int) -> bool:
    """A process that has ended and that nobody has waited for does not run."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_a_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(os.environ, "PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="apt-get install etcd-server"):
        find_etcd()


def test_clients_and_members_need_certificates() -> None:
    files = CertificateFiles.within(Path("/pki"))
    urls = ["https://127.0.0.1:2379", "https://10.0.0.1:2379"]
    flags = etcd_flags(name="a", data_dir=Path("d"), files=files, client_urls=urls, peer_url="https://10.0.0.1:2380")
    for flag in (
        "--client-cert-auth=true",
        "--peer-client-cert-auth=true",
        "--trusted-ca-file=/pki/ca.crt",
        "--listen-client-urls=https://127.0.0.1:2379,https://10.0.0.1:2379",
        "--advertise-client-urls=https://10.0.0.1:2379",
        "--initial-cluster=a=https://10.0.0.1:2380",
        "--initial-cluster-state=new",
        "--max-txn-ops=1024",
    ):
        assert flag in flags
