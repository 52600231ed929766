"""What protection costs: Secrets created and read on servers that differ in nothing but RBAC, audit log and encryption.

    python bench/protection.py [--seconds 2] [--rounds 3] [--size 1024] [NAME ...]

The servers are started by the benchmark, over TLS and on the SQLite store, and take turns, so that a noisy machine is
noisy for all. The CPU time that a request takes is the number to compare: the best of all rounds. The last column is
that of the server over that of the first."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import uvloop
from load import Result, Target, connect, run

SECRETS = "/api/v1/namespaces/default/secrets"
READ = 200
ADMIN, USER = "admin-token", "bench-token"
KINDS = {
    "nothing": "",
    "RBAC": "rbac",
    "audit Metadata": "rbac Metadata",
    "audit Metadata, batch": "rbac Metadata batch",
    "audit RequestResponse": "rbac RequestResponse",
    "aesgcm": "rbac aesgcm",
    "aescbc": "rbac aescbc",
    "secretbox": "rbac secretbox",
    "Metadata and aesgcm": "rbac Metadata aesgcm",
}


def flags(directory: Path, kind: str) -> list[str]:
    words = kind.split()
    (directory / "tokens.csv").write_text(f"{ADMIN},admin,admin,system:masters\n{USER},bench,bench,benchers\n")
    found = ["--token-auth-file", str(directory / "tokens.csv"), "--disable-admission-plugins", "ServiceAccount"]
    found += ["--authorization-mode", "Node,RBAC" if "rbac" in words else "AlwaysAllow"]
    for level in {"Metadata", "RequestResponse"} & set(words):
        policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": level}]}
        (directory / "policy").write_text(json.dumps(policy))
        found += ["--audit-policy-file", str(directory / "policy"), "--audit-log-path", str(directory / "audit.log")]
        if "batch" in words:
            found += ["--audit-log-mode", "batch"]
    for provider in {"aesgcm", "aescbc", "secretbox"} & set(words):
        key = {"name": "key", "secret": b64encode(os.urandom(32)).decode()}
        configuration = {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "EncryptionConfiguration",
            "resources": [{"resources": ["secrets"], "providers": [{provider: {"keys": [key]}}]}],
        }
        (directory / "encryption").write_text(json.dumps(configuration))
        found += ["--encryption-provider-config", str(directory / "encryption")]
    return found


def start(name: str, directory: Path, later: ExitStack) -> Target:
    command = [sys.executable, "-m", "setpoint", "apiserver", "--port", "0", "--data-dir", str(directory / "data")]
    server = subprocess.Popen(
        [*command, *flags(directory, KINDS[name])], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    later.callback(server.wait)
    later.callback(server.terminate)
    assert server.stdout is not None
    line = server.stdout.readline()
    url = next((word for word in line.split() if word.startswith("https://")), "")
    if not url:
        raise RuntimeError(f"{name}: {line}{server.stdout.read()}")
    return Target(name, url, USER, (server.pid,))


def secret(name: str, size: int) -> bytes:
    data = b64encode(os.urandom(size)).decode()
    return json.dumps({"metadata": {"name": name}, "data": {"password": data}}).encode()


async def prepare(target: Target, size: int) -> None:
    admin = Target(target.name, target.url, ADMIN)
    connection = await connect(target)
    binding = {
        "metadata": {"name": "bench"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bench"}],
    }
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    requests = [admin.request("POST", path, json.dumps(binding).encode())]
    requests += [target.request("POST", SECRETS, secret(f"read-{number}", size)) for number in range(READ)]
    for request in requests:
        status, _ = await connection.send(request)
        assert status in (200, 201), (target.name, status, request[:200])


async def bench_get(target: Target, seconds: float, size: int) -> Result:
    requests = [target.request("GET", f"{SECRETS}/read-{number}") for number in range(READ)]
    return await run(target, lambda _: itertools.cycle(requests), connections=16, seconds=seconds)


async def bench_create(target: Target, seconds: float, size: int) -> Result:
    run_id = f"{time.time_ns() % 10**9:x}"

    def make(number: int) -> Iterator[bytes]:
        return (target.request("POST", SECRETS, secret(f"c{run_id}-{number}-{at}", size)) for at in itertools.count())

    return await run(target, make, connections=16, seconds=seconds)


async def main(arguments: argparse.Namespace) -> None:
    with ExitStack() as later:
        targets = []
        for number, name in enumerate(arguments.names or KINDS):
            directory = Path(later.enter_context(tempfile.TemporaryDirectory(prefix=f"protection-{number}-")))
            targets.append(start(name, directory, later))
        for target in targets:
            await prepare(target, arguments.size)
        print(f"{'':7} {'server':24} {'per second':>11} {'CPU us each':>12} {'p99 ms':>8}  CPU", flush=True)
        for title, bench in (("get", bench_get), ("create", bench_create)):
            best: dict[str, Result] = {}
            for _, target in itertools.product(range(arguments.rounds), targets):
                result = await bench(target, arguments.seconds, arguments.size)
                if target.name not in best or result.cpu_each < best[target.name].cpu_each:
                    best[target.name] = result
            first = best[targets[0].name].cpu_each
            for name, result in best.items():
                print(
                    f"{title:7} {name:24} {result.rate:11,.0f} {result.cpu_each:12,.1f} {result.p99 * 1e3:8.2f}  "
                    f"{result.cpu_each / first:.2f}x",
                    flush=True,
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=1024, help="bytes in a Secret")
    parser.add_argument("names", nargs="*", help=", ".join(KINDS))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(parser.parse_args()))
