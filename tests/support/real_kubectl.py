"""kubectl at a cluster with a real node: manifests of Pods, waiting, and sessions that stay open."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from kubectl_environment import kubectl_environment
from kubectl_runner import Kubectl, until

Manifest = dict[str, Any]
_END_TIMEOUT = 30.0


def pod(name: str, image: str, *command: str, container: Mapping[str, Any] | None = None, **spec: Any) -> Manifest:
    """Return a Pod with one container `main`. It ends within a second, also if its program ignores SIGTERM."""
    main = {"name": "main", "image": image, **({"command": list(command)} if command else {}), **(container or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [main], **spec},
    }


class PodClient:
    """kubectl in a namespace of one test."""

    def __init__(self, kubectl: Kubectl) -> None:
        self.kubectl = kubectl

    def apply(self, *manifests: Manifest) -> None:
        items = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(items))

    def get(self, name: str) -> Any:
        return self.kubectl.get("pod", name)

    def status(self, name: str, container: str = "main") -> Any:
        """Return the status of a container of a Pod; empty if there is none yet."""
        status = self.get(name).get("status", {})
        lists = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
        found = [each for key in lists for each in status.get(key, []) if each["name"] == container]
        return found[0] if found else {}

    def run(self, manifest: Manifest, seconds: float = 60.0) -> Any:
        """Create a Pod, wait until it is ready and return it."""
        self.apply(manifest)
        name = manifest["metadata"]["name"]
        self.wait_ready(name, seconds)
        return self.get(name)

    def wait_ready(self, name: str, seconds: float = 60.0) -> None:
        waiting = ("wait", f"pod/{name}", "--for=condition=Ready", f"--timeout={seconds:g}s")
        result = self.kubectl.run(*waiting, timeout=seconds + 30.0)
        assert result.code == 0, f"{name} is not ready: {result.err} {self.get(name).get('status')} {self.events(name)}"

    def wait_phase(self, name: str, phase: str, seconds: float = 60.0) -> Any:
        until(lambda: self.get(name).get("status", {}).get("phase") == phase, seconds)
        return self.get(name)

    def wait_waiting(self, name: str, *reasons: str, seconds: float = 60.0) -> str:
        """Wait until the container is in the waiting state with one of the reasons, and return the message."""

        def message() -> str:
            waiting = self.status(name).get("state", {}).get("waiting", {})
            return str(waiting.get("message", "no message")) if waiting.get("reason") in reasons else ""

        return str(until(message, seconds))

    def events(self, name: str) -> list[tuple[str, str]]:
        """Return reason and message of the Events of a Pod, oldest first, repeated ones as often as they occurred."""
        items = self.kubectl.get("events", f"--field-selector=involvedObject.name={name}")["items"]
        items.sort(key=lambda event: event.get("firstTimestamp") or event["metadata"]["creationTimestamp"])
        return [(event["reason"], event["message"]) for event in items for _ in range(event.get("count") or 1)]

    def has_event(self, name: str, reason: str, text: str = "", seconds: float = 30.0) -> None:
        """Wait for an Event of a Pod."""
        until(lambda: any(found == reason and text in message for found, message in self.events(name)), seconds)

    def execute(self, name: str, script: str, container: str = "main") -> str:
        """Return what a shell script prints in a container. It must succeed."""
        return self.kubectl("exec", name, "-c", container, "--", "sh", "-c", script)

    def delete(self, name: str, *options: str) -> None:
        self.kubectl("delete", "pod", name, *options)

    @contextmanager
    def session(self, *args: str) -> Iterator[subprocess.Popen[str]]:
        """Run kubectl with pipes until the end of the block."""
        command = [str(self.kubectl.binary), "--kubeconfig", str(self.kubectl.kubeconfig)]
        process = subprocess.Popen(
            [*command, "-n", self.kubectl.namespace, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=kubectl_environment(self.kubectl.home),
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def terminal(self, *args: str) -> Terminal:
        return Terminal(self.kubectl, *args)


class Terminal:
    """kubectl on a terminal of its own."""

    def __init__(self, kubectl: Kubectl, *args: str) -> None:
        command = [str(kubectl.binary), "--kubeconfig", str(kubectl.kubeconfig), "-n", kubectl.namespace, *args]
        self.pid, self._descriptor = pty.fork()
        if not self.pid:
            os.execve(command[0], command, kubectl_environment(kubectl.home, TERM="dumb"))
        self.seen = ""

    def until(self, text: str, seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < deadline, self.seen
            self._read()

    def type(self, keys: str) -> None:
        self.seen = ""
        os.write(self._descriptor, keys.encode())

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def end(self) -> int:
        """Wait for the end and return the exit code; negative is the signal that ended it."""
        deadline = time.monotonic() + _END_TIMEOUT
        while True:
            self._read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self._descriptor)
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise AssertionError(f"it did not end: {self.seen}")

    def _read(self) -> None:
        if select.select([self._descriptor], [], [], 0.1)[0]:
            with suppress(OSError):  # the other end is closed
                self.seen += os.read(self._descriptor, 4096).decode(errors="replace")
