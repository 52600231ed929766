"""The members of etcd on the machines, and `etcdctl`."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.robustness.network import MACHINES, Network

CLIENT_PORT, PEER_PORT = 2379, 2380
_BALLAST = "/robustness/"
QUOTA = 128 * 1024 * 1024
"""Bytes of the database of a member at which it raises an alarm."""
_DISK_SIZE = 768 * 1024 * 1024
"""Bytes of the file system of a member, if it has one of its own; etcd allocates its log in files of 64 MiB."""


class EtcdctlFailed(Exception):
    pass


class EtcdMembers:
    def __init__(self, network: Network, directory: Path) -> None:
        self._network = network
        self._directory = directory
        self._generation = dict.fromkeys(MACHINES, 0)
        """How often each member was replaced. A new member has a new data directory."""
        self._joining: dict[str, str] = {}
        """The value of --initial-cluster of the members that joined later."""

    def url(self, machine: str, port: int = CLIENT_PORT) -> str:
        return f"http://{self._network.address(machine)}:{port}"

    def urls(self, first: str = MACHINES[0]) -> list[str]:
        """Return the client URLs of all members, with the one of the machine `first` in front."""
        return [self.url(each) for each in sorted(MACHINES, key=lambda machine: machine != first)]

    def disk(self, machine: str) -> Path:
        return self._directory / machine / "etcd"

    async def mount_disks(self) -> None:
        """Give each member a file system of its own, so that it can be filled up."""
        for machine in MACHINES:
            self.disk(machine).mkdir(parents=True)
            options = ["-t", "tmpfs", "-o", f"size={_DISK_SIZE}", "none", str(self.disk(machine))]
            process = await asyncio.create_subprocess_exec("mount", *options)
            if await process.wait():
                raise RuntimeError("a tmpfs cannot be mounted")

    def command(self, machine: str) -> list[str]:
        client, peer = self.url(machine), self.url(machine, PEER_PORT)
        state = "existing" if machine in self._joining else "new"
        everyone = ",".join(f"{each}={self.url(each, PEER_PORT)}" for each in MACHINES)
        data = self.disk(machine) / f"data-{self._generation[machine]}"
        command = ["etcd", "--name", machine, "--data-dir", str(data), "--log-level", "warn"]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", self._joining.get(machine, everyone), "--initial-cluster-state", state]
        command += ["--max-txn-ops", "1024", "--max-request-bytes", str(4 << 20)]
        # Small, so that members send each other snapshots, the disk of a member suffices, and the quota can be reached.
        command += ["--snapshot-count", "2000", "--max-wals", "1", "--max-snapshots", "1"]
        command += ["--quota-backend-bytes", str(QUOTA)]
        # Processes are killed, not the kernel: what is written to a file is not lost.
        return [*command, "--unsafe-no-fsync"]

    async def remove(self, machine: str) -> None:
        """Remove the member of a machine, whose process has ended, from the cluster."""
        others = [each for each in MACHINES if each != machine]
        found = await self.etcdctl("member", "list", machines=others)
        for member in found["members"]:
            if member.get("name") == machine:
                await self.etcdctl("member", "remove", f"{member['ID']:x}", machines=others, text=True)

    async def add_learner(self, machine: str) -> None:
        """Add a new, empty member for a machine, which does not vote; its process must be started then."""
        others = [each for each in MACHINES if each != machine]
        peer = self.url(machine, PEER_PORT)
        await self.etcdctl("member", "add", machine, "--learner", f"--peer-urls={peer}", machines=others, text=True)
        shutil.rmtree(self.disk(machine) / f"data-{self._generation[machine]}", ignore_errors=True)
        self._generation[machine] += 1
        found = await self.etcdctl("member", "list", machines=others)
        names = [(member.get("name") or machine, member["peerURLs"][0]) for member in found["members"]]
        self._joining[machine] = ",".join(f"{name}={url}" for name, url in names)

    async def promote(self, machine: str) -> None:
        """Let a learner vote. Raises EtcdctlFailed if it has not caught up yet."""
        others = [each for each in MACHINES if each != machine]
        found = await self.etcdctl("member", "list", machines=others)
        learner = next(each for each in found["members"] if self.url(machine, PEER_PORT) in each["peerURLs"])
        if learner.get("isLearner"):
            await self.etcdctl("member", "promote", f"{learner['ID']:x}", machines=others, text=True)

    async def ballast(self, machines: Sequence[str], blocks: Iterable[bytes]) -> bool:
        """Write blocks through some of the members; return whether they reject them because the quota is reached."""
        for number, block in enumerate(blocks):
            try:
                await self.etcdctl("put", f"{_BALLAST}{number}", machines=machines, text=True, content=block)
            except EtcdctlFailed as problem:
                if "space exceeded" in str(problem):
                    return True
        return False

    async def remove_ballast(self, machines: Sequence[str]) -> None:
        await self.etcdctl("del", "--prefix", _BALLAST, machines=machines, text=True)

    async def leader(self) -> str:
        """Return the machine of the leader."""
        for machine in MACHINES:
            try:
                (found,) = await self.etcdctl("endpoint", "status", machines=[machine])
            except EtcdctlFailed:
                continue
            status = found["Status"]
            if status.get("leader") == status["header"]["member_id"]:
                return machine
        raise EtcdctlFailed("no member leads")

    async def revision(self) -> int:
        """Return the current revision by a linearizable read."""
        return int((await self.etcdctl("get", "--limit=1", "--keys-only", "/"))["header"]["revision"])

    async def etcdctl(
        self,
        *arguments: str,
        machines: Sequence[str] = MACHINES,
        text: bool = False,
        content: bytes = b"",
        timeout: int = 5,
    ) -> Any:
        """Return the output of etcdctl for this input, from JSON unless `text` is set. Raises EtcdctlFailed."""
        command = [
            "etcdctl",
            "--endpoints",
            ",".join(map(self.url, machines)),
            f"--command-timeout={timeout}s",
            "--dial-timeout=2s",
        ]
        if not text:
            command += ["--write-out=json"]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, *arguments, stdin=pipe, stdout=pipe, stderr=pipe)
        try:
            async with asyncio.timeout(2 * timeout):
                output, problem = await process.communicate(content)
        except TimeoutError:
            raise EtcdctlFailed(f"etcdctl {' '.join(arguments)} does not end") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise EtcdctlFailed(f"etcdctl {' '.join(arguments)}: {problem.decode().strip()[-300:]}")
        return output.decode() if text else json.loads(output)
