"""Log lines of several containers, with their prefixes."""

from __future__ import annotations

from pathlib import Path

from command_line import Result, surroundings

from setpoint.cli.main import run_within
from setpoint.client import Client
from setpoint.client.kubeconfig import Access
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual


def pod(name: str, **spec: object) -> Obj:
    say = [{"name": part, "image": "busybox", "command": ["sh", "-c", f"echo {name} {part}; exit 0"]} for part in "ab"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "talk"}},
        "spec": {"containers": say, "restartPolicy": "Never", **spec},
    }


@virtual(nodes=1)
async def test_lines_of_all_containers_have_prefixes(cluster: VirtualCluster, tmp_path: Path) -> None:
    for name in ("one", "two"):
        await cluster.client.create(pod(name))

    async def typed(line: str) -> Result:
        def connect(_: Access, __: float) -> Client:
            return cluster.client.named("cli")

        io, result = surroundings(tmp_path, cluster.clock, "", {}, connect)
        return result(await run_within(["--server", "https://local", *line.split()], io))

    await cluster.sleep(5)
    done = await typed("logs -l app=talk --all-containers --prefix")
    assert done.out.splitlines() == [
        "[pod/one/a] one a",
        "[pod/one/b] one b",
        "[pod/two/a] two a",
        "[pod/two/b] two b",
    ]
    followed = await typed("logs -l app=talk --all-containers --prefix -f")
    assert sorted(followed.out.splitlines()) == done.out.splitlines()
    assert (
        "maximum allowed concurrency is 3"
        in (await typed("logs -l app=talk --all-containers -f --max-log-requests=3")).err
    )
    told = await typed("logs one")
    assert (told.out, told.err) == ("one a\n", 'Defaulted container "a" out of: a, b\n')
