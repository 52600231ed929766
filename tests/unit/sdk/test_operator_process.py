"""An operator's process in virtual time: leader election, errors that end it, and its shutdown."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from setpoint.client.kubeconfig import Access
from setpoint.cluster.virtual.link import Link, LinkedClient
from setpoint.meta.errors import Forbidden
from setpoint.meta.exposition import text
from setpoint.sdk import Context, Controller, Kind, Object, Operator, Validate, run
from setpoint.sdk.options import RunOptions
from setpoint.sdk.process import OperatorProcess
from setpoint.system import RandomIds
from setpoint.testing import VirtualCluster, virtual

LEASE = ("coordination.k8s.io/v1", "Lease")


@dataclass
class TeapotSpec:
    cups: int = 4


Teapot = Kind("example.com/v1", "Teapot", spec=TeapotSpec)


def teapot(name: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "example.com/v1", "kind": "Teapot", "metadata": meta, "spec": {}}


class Replica:
    """One of several processes of the same operator."""

    def __init__(self, cluster: VirtualCluster, number: int, operator: Operator, **options: Any) -> None:
        self.link = Link(f"replica {number}")
        self.stop = asyncio.Event()
        client = LinkedClient(cluster.client.named(operator.name), self.link)
        self.process = OperatorProcess(
            operator, RunOptions(**options), Access("https://192.0.2.1"), client, cluster.clock, RandomIds(number)
        )

    async def run(self) -> int:
        return await self.process.run(self.stop)


def who(looks: list[tuple[str, str]], number: int) -> Operator:
    async def brew(ctx: Context[Any, Any], obj: Object[Any, Any]) -> None:
        looks.append((str(number), obj.name))

    return Operator("tea", Controller(Teapot, brew))


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_one_of_two_leads_and_the_other_takes_over(
    cluster: VirtualCluster, caplog: pytest.LogCaptureFixture
) -> None:
    looks: list[tuple[str, str]] = []
    first, second = (Replica(cluster, each, who(looks, each), leader_elect=True) for each in (1, 2))
    async with asyncio.TaskGroup() as tasks:
        one = tasks.create_task(first.run())
        await cluster.sleep(1)
        assert first.process.ready() == ""
        two = tasks.create_task(second.run())
        await cluster.sleep(5)
        await cluster.client.create(teapot("a"))
        await cluster.sleep(1)
        assert looks == [("1", "a")]
        assert second.process.ready() == "", "to stand by is to be ready"
        assert 'leader_election_master_status{name="tea"} 1' in text(first.process.families())
        assert 'leader_election_master_status{name="tea"} 0' in text(second.process.families())

        first.link.severed = True
        await cluster.sleep(40)
        assert one.result() == 1
        assert "no longer holds the lease default/tea; exiting" in caplog.text
        await cluster.client.create(teapot("b"))
        await cluster.sleep(1)
        assert looks[1:] == [("2", "a"), ("2", "b")]

        second.stop.set()
        await cluster.sleep(1)
        assert two.result() == 0
    lease = await cluster.client.get(LEASE, "tea", "default")
    assert lease["spec"]["holderIdentity"] == "", "who ends in order gives it back"


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_running_reconciles_may_finish_at_shutdown(cluster: VirtualCluster) -> None:
    begun: list[str] = []
    done: list[str] = []

    async def slow(ctx: Context[Any, Any], obj: Object[Any, Any]) -> None:
        begun.append(obj.name)
        await ctx.clock.sleep(10)
        done.append(obj.name)

    replica = Replica(cluster, 1, Operator("tea", Controller(Teapot, slow, workers=1)), grace=30.0)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(replica.run())
        await cluster.sleep(1)
        for name in ("a", "b"):
            await cluster.client.create(teapot(name))
        await cluster.sleep(1)
        replica.stop.set()
        await cluster.sleep(8)
        assert not running.done()
        await cluster.sleep(2)
        assert (running.result(), done) == (0, ["a"])
        assert begun == ["a"], "what had not begun does not begin"


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_shutdown_does_not_wait_forever(cluster: VirtualCluster) -> None:
    async def stuck(ctx: Context[Any, Any], obj: Object[Any, Any]) -> None:
        await ctx.clock.sleep(1000)

    replica = Replica(cluster, 1, Operator("tea", Controller(Teapot, stuck)), grace=5.0)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(replica.run())
        await cluster.sleep(1)
        await cluster.client.create(teapot("a"))
        await cluster.sleep(1)
        replica.stop.set()
        await cluster.sleep(6)
        assert running.result() == 0


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_an_unreachable_cluster_is_retried(cluster: VirtualCluster, caplog: pytest.LogCaptureFixture) -> None:
    looks: list[tuple[str, str]] = []
    replica = Replica(cluster, 1, who(looks, 1))
    replica.link.severed = True
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(replica.run())
        await cluster.sleep(8)
        said = [each.getMessage() for each in caplog.records if each.name == "setpoint.operator"]
        assert said == [f"the link is severed; retrying in {pause} s" for pause in (1, 2, 4, 8)]
        assert replica.process.ready() == "the kinds are not served yet"
        replica.link.severed = False
        await cluster.sleep(10)
        await cluster.client.create(teapot("a"))
        await cluster.sleep(1)
        assert looks == [("1", "a")]
        replica.stop.set()
        await running


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_missing_permissions_end_the_process_with_a_message(
    cluster: VirtualCluster, caplog: pytest.LogCaptureFixture
) -> None:
    replica = Replica(cluster, 1, who([], 1))

    async def refuse(write: Any, go: Any) -> None:
        raise Forbidden("customresourcedefinitions is forbidden")

    replica.link.write_interceptor = refuse
    assert await replica.run() == 1
    assert caplog.messages == ["customresourcedefinitions is forbidden; exiting"]


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_definitions_are_not_installed_if_disabled_or_in_a_dry_run(
    cluster: VirtualCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "setpoint.operator")
    looks: list[tuple[str, str]] = []
    definitions = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    for options in ({"install": False}, {"dry_run": True}):
        replica = Replica(cluster, 1, who(looks, 1), leader_elect=True, **options)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(replica.run())
            await cluster.sleep(10)
            assert (await cluster.client.list(definitions)).items == []
            replica.stop.set()
            assert await running == 0
    assert "would create CustomResourceDefinition teapots.example.com" in caplog.text


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_a_dry_run_without_definitions_ends(cluster: VirtualCluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "setpoint.operator")
    replica = Replica(cluster, 1, who([], 1), dry_run=True)
    async with asyncio.timeout(60):
        assert await replica.run() == 0
    assert "teapots.example.com: not installed, so there is nothing to reconcile." in caplog.text


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_webhooks_without_a_reachable_address_are_rejected(
    cluster: VirtualCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(review: Any, obj: Any) -> None: ...

    replica = Replica(cluster, 1, Operator("tea", Validate(Teapot, check)))
    assert await replica.run() == 1
    assert "set --webhook-url or --webhook-service; exiting" in caplog.text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "the kubeconfig {} does not exist"),
        ("{}", "the kubeconfig has no current context: choose one of its contexts"),
        ("[]", "the kubeconfig {} is not a mapping of settings"),
    ],
)
def test_no_cluster_is_configured(
    content: str | None, said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kubeconfig = tmp_path / "config"
    if content is not None:
        kubeconfig.write_text(content)
    with pytest.raises(SystemExit) as ended:
        run(who([], 1), ["--kubeconfig", str(kubeconfig)])
    assert (ended.value.code, caplog.messages) == (1, [said.format(kubeconfig)])
