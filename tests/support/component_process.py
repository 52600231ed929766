"""`setpoint controller-manager`, `scheduler` and `nodes`, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def component_process(name: str, kubeconfig: Path, *flags: str) -> Iterator[str]:
    """What it said when it was at work, with its own kubeconfig, which is beside the administrator's. It ends in order.
    Its harness is closed unless a flag opens it: several may run on this machine."""
    kubeconfig = kubeconfig.with_name("node-fleet.kubeconfig" if name == "nodes" else f"{name}.kubeconfig")
    if name == "controller-manager":
        flags = ("--use-service-account-credentials", *flags)
    if name != "nodes" and not any(flag.startswith("--secure-port") for flag in flags):
        flags = ("--secure-port=0", *flags)
    command = [sys.executable, "-m", "setpoint", name, "--kubeconfig", str(kubeconfig), *flags]
    with open(kubeconfig.parent / f"{name}.log", "ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        assert said.startswith(f"setpoint {name}: "), (kubeconfig.parent / f"{name}.log").read_text()
        yield said
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
