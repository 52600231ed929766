"""Chains of causes in a busy cluster: each leads back to an input, and none claims what is not recorded."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from effort import tries
from why_scenarios import changed, job, plain, pod, workload

from setpoint.apiserver.history.reader import HistoryReader
from setpoint.apiserver.why.facts import ServerFacts, Sources
from setpoint.cluster.components import MASTERS
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.cause import WriteCause
from setpoint.testing import VirtualCluster, run_virtual, virtual_cluster
from setpoint.view.why.answer import Answer
from setpoint.view.why.facts import Written
from setpoint.view.why.steps import change_of
from setpoint.view.why.walk import follow

Check = Callable[[VirtualCluster, ServerFacts, int], Awaitable[None]]
MUTATIONS = tries(1, 10)


class Forgetful(ServerFacts):
    """Facts in which triggers of reconciles are missing at random."""

    def __init__(self, sources: Sources, seed: int) -> None:
        super().__init__(sources, UserInfo("admin", groups=(MASTERS,)))
        self._random = random.Random(seed)
        self._changed: dict[int, WriteCause] = {}

    async def write(self, revision: int) -> Written | None:
        found = await super().write(revision)
        if found is None or found.cause is None or not found.cause.claim.triggers:
            return found
        if revision not in self._changed:
            claim = found.cause.claim
            kept = tuple(each for each in claim.triggers if self._random.random() < 0.5)
            forgotten = claim._replace(triggers=kept, besides=claim.besides if self._random.random() < 0.5 else "")
            self._changed[revision] = found.cause._replace(claim=forgotten)
        return found._replace(cause=self._changed[revision])


def in_a_busy_cluster(check: Check) -> None:
    """Run `check` after much has happened; it gets the facts, and the revision before the first input."""

    async def main() -> None:
        async with virtual_cluster() as cluster:
            clients = cluster.embedded.components.clients
            alice = clients.copying_client("alice", (MASTERS,), agent="kubectl")
            before = cluster.embedded.store.revision
            web = workload("Deployment", "web", 3)
            await alice.create(web)
            await alice.create(workload("StatefulSet", "db", 2))
            await alice.create(workload("DaemonSet", "agent"))
            await alice.create(job("task", 0, ttlSecondsAfterFinished=1))
            await alice.create(
                plain("v1", "Service", "web", spec={"selector": {"app": "web"}, "ports": [{"port": 80}]})
            )
            await alice.create(pod("alone"))
            await cluster.settle()
            await changed(alice, web, lambda obj: obj["spec"].update(replicas=5))
            await cluster.settle()
            image = {"image": "nginx:1.28"}
            await changed(alice, web, lambda obj: obj["spec"]["template"]["spec"]["containers"][0].update(image))
            await alice.delete(("v1", "Pod"), "db-0", "default")
            await cluster.settle()
            patch = {"metadata": {"annotations": {"simulate.setpoint.dev/state": "stopped"}}}
            await alice.patch(("v1", "Node"), "node-2", patch)
            await cluster.sleep(70)
            await alice.delete(("apps/v1", "Deployment"), "web", "default")
            await cluster.settle()
            await check(cluster, ServerFacts(_sources(cluster), UserInfo("admin", groups=(MASTERS,))), before)

    run_virtual(main)


def _sources(cluster: VirtualCluster) -> Sources:
    api = cluster.embedded.api
    assert api.parts.watchers is not None
    return Sources(api.resources, HistoryReader(cluster.embedded.store), api.parts.authorizer, api.parts.watchers)


async def _writes(facts: ServerFacts, after: int) -> list[Written]:
    found: list[Written] = []
    while len(page := await facts._reader.writes(found[-1].revision if found else after, 500)) == 500:
        found += [Written(*each) for each in page]
    return [*found, *(Written(*each) for each in page)]


async def _chain(facts: ServerFacts, write: Written) -> Answer:
    answer = Answer({}, facts.now)
    change = await change_of(facts, write, write.keys[0])
    await follow(facts, answer, change, depth=40, every=False)
    return answer


def test_chains_of_a_busy_cluster() -> None:
    """One cluster serves both checks, because it takes longer than they do."""

    async def check(cluster: VirtualCluster, facts: ServerFacts, before: int) -> None:
        await every_chain_leads_to_an_input(facts, before)
        for seed in range(1, MUTATIONS + 1):
            await missing_triggers_never_make_a_certain_claim_wrong(cluster, facts, before, seed)

    in_a_busy_cluster(check)


async def every_chain_leads_to_an_input(facts: ServerFacts, before: int) -> None:
    unexplained, writes = [], await _writes(facts, before)
    for write in writes:
        answer = await _chain(facts, write)
        revisions = [step.revision for step in answer.chain]
        assert revisions == sorted(set(revisions), reverse=True), answer
        assert all(step.actor and step.object for step in answer.chain)
        assert not any(step.inferred for step in answer.chain), answer
        last = answer.chain[-1]
        if last.actor not in ("alice (kubectl)", "kube-apiserver") and not last.besides and last.revision > before:
            unexplained.append((write.keys[0], last.actor, last.action, last.object, answer.origin))
    assert unexplained == []
    assert len(writes) > 150


async def missing_triggers_never_make_a_certain_claim_wrong(
    cluster: VirtualCluster, facts: ServerFacts, before: int, seed: int
) -> None:
    recorded = {each.revision: each for each in await _writes(facts, facts.oldest - 1)}
    forgetful = Forgetful(_sources(cluster), seed)
    probable = certain = 0
    for write in [each for each in recorded.values() if each.revision > before]:
        known = await forgetful.write(write.revision)
        assert known is not None
        answer = await _chain(forgetful, known)
        for effect, trigger in zip(answer.chain, answer.chain[1:], strict=False):
            if trigger.inferred:
                probable += 1
            elif not effect.completes:
                certain += 1
                assert _leads_to(recorded, trigger.revision, effect.revision), (effect, trigger)
        if any(step.inferred for step in answer.chain):
            assert not answer.origin.startswith("Origin:")
    assert probable > 10, probable
    assert certain > 100, certain


def _leads_to(recorded: dict[int, Written], trigger: int, effect: int) -> bool:
    """Return whether the record connects a trigger with an effect, directly or through a controller's own writes."""
    waiting, seen = [effect], set[int]()
    while waiting:
        revision = waiting.pop()
        write = recorded.get(revision)
        if write is None or write.cause is None or revision in seen:
            continue
        seen.add(revision)
        if trigger in write.cause.claim.triggers:
            return True
        waiting += write.cause.claim.triggers
    return False
