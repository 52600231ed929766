"""A person with kubectl: creates objects and reads them, and takes the next machine's kubeconfig when one fails."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.robustness.history import Violation

_REPEATED_FOR = 60.0
"""Seconds for which a command is repeated; no fault makes all machines unavailable for so long."""
_PAUSE = 1.0
_TIMEOUT = 5


class KubectlLoop:
    def __init__(self, kubeconfigs: Sequence[Path], home: Path, clock: Callable[[], float]) -> None:
        self._kubeconfigs = [*kubeconfigs]
        self._home = home
        self._clock = clock
        self.created: list[str] = []
        self.violations: list[Violation] = []
        self.longest = 0.0
        """The longest time in seconds that one command took, with its repetitions."""
        self.repeated = 0
        """How many attempts failed and were repeated."""

    async def run(self) -> None:
        """Create and read objects until cancelled."""
        number = 0
        while True:
            number += 1
            name = f"kubectl-{number}"
            if await self._done("create", "configmap", name, f"--from-literal=value={number}"):
                self.created.append(name)
                found = await self._done("get", "configmap", name, "--output=jsonpath={.data.value}")
                if found is not None and found != str(number):
                    self._report(f"kubectl get configmap {name} returned {found!r} and not {number}")
            await asyncio.sleep(_PAUSE)

    async def finish(self) -> None:
        """Compare what exists with what was created."""
        found = await self._done("get", "configmaps", "--output=name")
        names = set(re.findall(r"configmap/(kubectl-\d+)", found or ""))
        if missing := [name for name in self.created if name not in names]:
            self._report(f"missing at the end: {', '.join(missing)}")

    async def _done(self, *command: str) -> str | None:
        """Return the output of a command, which is repeated on one machine after the other; None if all attempts
        failed."""
        began, attempts = self._clock(), 0
        while True:
            code, output, problem = await self._kubectl(*command)
            attempts += 1
            # An earlier attempt may have succeeded without an answer.
            if code == 0 or (attempts > 1 and "already exists" in problem):
                self.longest = max(self.longest, self._clock() - began)
                return output or "created"
            if self._clock() - began > _REPEATED_FOR:
                self._report(f"kubectl {' '.join(command)} failed {attempts} times: {problem}")
                return None
            self.repeated += 1
            self._kubeconfigs.append(self._kubeconfigs.pop(0))
            await asyncio.sleep(0.2)

    async def _kubectl(self, *command: str) -> tuple[int, str, str]:
        flags = ["--kubeconfig", str(self._kubeconfigs[0]), f"--request-timeout={_TIMEOUT}s", "--namespace=default"]
        environment = {"HOME": str(self._home), "PATH": os.environ["PATH"], "GOGC": "400"}
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            "kubectl", *flags, *command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=environment
        )
        try:
            async with asyncio.timeout(3 * _TIMEOUT):
                output, problem = await process.communicate()
        except TimeoutError:
            return 1, "", "it did not end"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return process.returncode, output.decode(), problem.decode().strip()

    def _report(self, message: str) -> None:
        self.violations.append(Violation("kubectl", message))
