"""`scale`."""

from __future__ import annotations

import json

from command_line import Typed


async def size(typed: Typed, name: str = "web") -> int:
    return int(json.loads(await typed(f"get deployment {name} -o json"))["spec"]["replicas"])


async def test_sizes_and_conditions(typed: Typed) -> None:
    await typed("create deployment web --image=i")
    assert await typed("scale deploy/web --replicas=3") == "deployment.apps/web scaled\n"
    assert await size(typed) == 3
    assert await typed("scale deploy/web --replicas=5 --current-replicas=3") == "deployment.apps/web scaled\n"
    assert await typed.refused("scale deploy/web --replicas=1 --current-replicas=3") == (
        "error: Expected replicas to be 3, was 5\n"
    )
    refused = await typed.refused("scale deploy/web --replicas=1 --resource-version=1")
    assert refused.startswith("error: Expected resource version to be 1, was ")
    assert await size(typed) == 5


async def test_dry_runs_change_nothing(typed: Typed) -> None:
    await typed("create deployment web --image=i")
    assert await typed("scale deploy/web --replicas=3 --dry-run=server") == (
        "deployment.apps/web scaled (server dry run)\n"
    )
    printed = json.loads(await typed("scale deploy/web --replicas=3 --dry-run=client -o json"))
    assert (printed["spec"]["replicas"], await size(typed)) == (3, 1)


async def test_missing_objects_do_not_stop_the_others(typed: Typed) -> None:
    await typed("create deployment web --image=i")
    done = await typed.run("scale deploy/web deploy/no --replicas=2")
    assert (done.code, done.out) == (1, "deployment.apps/web scaled\n")
    assert done.err == 'Error from server (NotFound): deployments.apps "no" not found\n'
    assert await typed.refused("scale deploy -l a=b --replicas=2") == "error: no objects passed to scale\n"


async def test_waiting_ends_when_scaled_or_at_the_timeout(typed: Typed) -> None:
    await typed("create deployment web --image=i --replicas=0")
    assert await typed("scale deploy/web --replicas=0 --timeout=10s") == "deployment.apps/web scaled\n"
    done = await typed.while_time_passes("scale deploy/web --replicas=2 --timeout=500ms", 1)
    assert (done.code, done.err) == (1, 'error: timed out waiting for "web" to be synced\n')


async def test_record_writes_the_change_cause(typed: Typed) -> None:
    await typed("create deployment web --image=i")
    await typed("scale deploy/web --replicas=2 --record")
    cause = json.loads(await typed("get deploy web -o json"))["metadata"]["annotations"]["kubernetes.io/change-cause"]
    assert "setpoint scale deploy/web" in cause and "--replicas=2" in cause
