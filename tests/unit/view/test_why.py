"""Answers from a history that is written down in the test, without a server."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Coroutine
from pathlib import Path
from typing import Any

import pytest

from setpoint.meta.cause import Claim, WriteCause
from setpoint.meta.objects import ObjView
from setpoint.view.actors import actor_name, actor_of
from setpoint.view.why import wording
from setpoint.view.why.answer import Answer, ContainerLog, Finding, Step
from setpoint.view.why.facts import ObjectVersion, Ref, Written
from setpoint.view.why.question import NoHistory, Question, conflicts, why
from setpoint.view.why.walk import besides_text

START = 1_767_225_600_000


def done(answer: Coroutine[Any, Any, Answer]) -> Answer:
    """Return the result of a coroutine that never suspends."""
    with pytest.raises(StopIteration) as stopped:
        answer.send(None)
    result: Answer = stopped.value.value
    return result


class Recorded:
    """A history in memory; revision N is written at N seconds."""

    oldest = 0

    def __init__(self, hidden: Collection[str] = (), watches: Collection[str] = ()) -> None:
        self._writes: dict[int, Written] = {}
        self._versions: dict[str, list[ObjectVersion]] = {}
        self._hidden, self._watches = hidden, watches

    def add(self, place: str, obj: dict[str, Any] | None, user: str, agent: str = "kubectl", **claim: Any) -> int:
        revision = len(self._writes) + 1
        cause = WriteCause(START + 1000 * revision, claim.pop("verb", "update"), user, agent, Claim(**claim))
        self._writes[revision] = Written(revision, cause, [place])
        versions = self._versions.setdefault(place, [])
        exists = versions and versions[-1].obj is not None
        created = 0 if obj is None else versions[-1].created if exists else revision
        stored = None if obj is None else {"metadata": {"name": place.rpartition("/")[2], "uid": place}, **obj}
        versions.append(ObjectVersion(revision, created, stored))
        return revision

    @property
    def now(self) -> int:
        return START + 1000 * len(self._writes) + 60_000

    @property
    def newest(self) -> int:
        return len(self._writes)

    def ref(self, key: str) -> Ref:
        group, plural, namespace, name = key.split("/")
        kinds = {"horizontalpodautoscalers": "HorizontalPodAutoscaler"}
        return Ref(group, plural, kinds.get(plural, plural[:-1].capitalize()), namespace, name)

    async def may_read(self, key: str) -> bool:
        return key not in self._hidden

    async def write(self, revision: int) -> Written | None:
        return self._writes.get(revision) if revision >= self.oldest else None

    async def versions(self, key: str, before: int, limit: int) -> list[ObjectVersion]:
        found = [each for each in self._versions.get(key, ()) if not before or each.revision < before]
        return found[::-1][:limit]

    async def at(self, key: str, revision: int) -> ObjView | None:
        found = await self.versions(key, revision + 1, 1)
        return found[0].obj if found else None

    async def recent(self, before: int, since: int, limit: int) -> list[Written]:
        found = [each for each in self._writes.values() if each.revision < before]
        return [each for each in found if each.cause is not None and each.cause.at >= since][::-1][:limit]

    def watched(self, cause: WriteCause) -> Collection[str]:
        return self._watches


WEB, SET, POD = "apps/deployments/default/web", "apps/sets/default/web-1", "core/pods/default/web-1-a"


def scaled_down(**options: Any) -> Recorded:
    history = Recorded(**options)
    history.add(WEB, {"spec": {"replicas": 2}}, "alice", verb="create")
    history.add(
        SET,
        {"spec": {"replicas": 2}},
        "system:kube-x",
        "manager",
        reconcile="web/1.1",
        key="default/web",
        triggers=(1,),
    )
    history.add(POD, {}, "system:kube-x", "manager", reconcile="set/1.1", key="default/web-1", triggers=(2,))
    history.add(WEB, {"spec": {"replicas": 1}}, "bob")
    history.add(
        SET,
        {"spec": {"replicas": 1}},
        "system:kube-x",
        "manager",
        reconcile="web/1.2",
        key="default/web",
        triggers=(4,),
    )
    gone = {"reconcile": "set/1.2", "key": "default/web-1", "triggers": (5,), "reason": "2 Pods, 1 wanted"}
    history.add(POD, None, "system:kube-x", "manager", verb="delete", **gone)
    return history


def test_a_deletion_is_followed_to_the_person() -> None:
    answer = done(why(scaled_down(), Question(POD)))
    assert wording.text(answer) == (
        "Pod web-1-a was deleted 60s ago by set: 2 Pods, 1 wanted.\n\n"
        "  00:00:06.000  set deleted pod/web-1-a                                                       rev 6\n"
        '      "2 Pods, 1 wanted"\n'
        "    in a reconcile of default/web-1, triggered by\n"
        "  00:00:05.000  web changed set/web-1: spec.replicas 2 -> 1                                   rev 5\n"
        "    in a reconcile of default/web, triggered by\n"
        "  00:00:04.000  bob (kubectl) changed deployment/web: spec.replicas 2 -> 1                    rev 4\n\n"
        "Origin: bob (kubectl).\n"
        "To undo it: setpoint undo 4\n"
    )


def test_objects_of_one_name_are_not_confused() -> None:
    """An autoscaler has the name of the Deployment that it scales."""
    history, scaler = Recorded(), "autoscaling/horizontalpodautoscalers/default/web"
    history.add(WEB, {"spec": {"replicas": 1}}, "alice")
    history.add(scaler, {"spec": {}}, "alice")
    run = {"reconcile": "horizontal-pod-autoscaler-controller/1.1", "key": "default/web"}
    history.add(WEB, {"spec": {"replicas": 2}}, "system:kube-x", **run, triggers=(1,))
    history.add(WEB, {"spec": {"replicas": 3}}, "system:kube-x", **run, triggers=(2,))
    assert done(why(history, Question(WEB, at=3))).chain[0].reconciled == ""
    assert done(why(history, Question(WEB))).chain[0].reconciled == "horizontalpodautoscaler/web"


def test_json_is_the_same_answer() -> None:
    answer = done(why(scaled_down(), Question(POD)))
    answer.findings.append(Finding("rule", "A sentence."))
    assert Answer.from_json(answer.to_json()) == answer
    newer = answer.to_json() | {"added": 1}
    assert Answer.from_json(newer) == answer
    with pytest.raises(ValueError, match="version 2"):
        Answer.from_json(newer | {"version": 2})


def test_all_fields_of_the_json_form_are_documented() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "why.md").read_text().partition("## The answer as JSON")[2]
    fields = [field.name for cls in (Answer, Step, Finding, ContainerLog) for field in dataclasses.fields(cls)]
    assert [name for name in fields if f"`{name}`" not in page] == []


def test_dot_has_arrows_from_trigger_to_effect() -> None:
    text = wording.dot(done(why(scaled_down(), Question(POD))))
    assert "  r5 -> r6;\n  r4 -> r5;\n" in text
    assert r'label="set deleted pod/web-1-a\nrev 6"' in text


def test_objects_that_may_not_be_read_are_hidden() -> None:
    answer = done(why(scaled_down(hidden=(SET,)), Question(POD)))
    hidden = answer.chain[1]
    assert (hidden.kind, hidden.actor, hidden.object, hidden.changes, hidden.reconciled) == ("hidden", "", "", [], "")
    assert "a change of an object that you may not read" in wording.text(answer)
    assert "web-1 " not in wording.text(answer).replace("web-1-a ", "")


def test_the_depth_is_limited() -> None:
    answer = done(why(scaled_down(), Question(POD, depth=2)))
    assert [each.revision for each in answer.chain] == [6, 5]
    assert answer.origin == "The chain goes on; --depth 4 shows more."


def test_an_earlier_moment_can_be_asked_for() -> None:
    answer = done(why(scaled_down(), Question(WEB, at=3)))
    assert answer.sentence == "Deployment web was created 65s ago by alice (kubectl)."
    assert done(why(scaled_down(), Question(WEB, since=START + 5000))).sentence == (
        "Deployment web has not changed in that time."
    )


def test_an_unknown_object_has_no_answer() -> None:
    with pytest.raises(NoHistory):
        why(scaled_down(), Question("core/pods/default/other")).send(None)


def test_a_field_names_its_earlier_values() -> None:
    answer = done(why(scaled_down(), Question(WEB, "spec.replicas")))
    assert answer.sentence == "spec.replicas of Deployment web became 1 (before: 2) 62s ago by bob (kubectl)."
    assert [(each.changes, each.actor) for each in answer.earlier] == [(["2"], "alice (kubectl)")]


def test_a_field_of_the_spec_can_be_named_without_it() -> None:
    history = Recorded()
    history.add(WEB, {"spec": {"replicas": 2, "paused": True}}, "alice", "kubectl")
    history.add(WEB, {"spec": {"replicas": 1}}, "bob", "kubectl")
    history.add(WEB, {"spec": {"replicas": 1}, "status": {"replicas": 1, "phase": "Fine"}}, "carol", "kubectl")
    answer = done(why(history, Question(WEB, "replicas")))
    assert answer.sentence.startswith("spec.replicas of Deployment web became 1 (before: 2) ")
    assert answer.notes == [], "who writes the status does not write this field"
    # Fields that the spec does not have now are found wherever they are.
    assert done(why(history, Question(WEB, "phase"))).sentence.startswith("status.phase of Deployment web became Fine ")
    assert done(why(history, Question(WEB, "paused"))).sentence.startswith("spec.paused of Deployment web was removed ")


def test_a_deletion_outranks_a_status_change() -> None:
    history = Recorded()
    history.add(POD, {"status": {"phase": "Pending"}}, "kubelet", "kubelet")
    history.add(POD, {"status": {"phase": "Running"}}, "kubelet", "kubelet")
    history.add(POD, None, "bob", verb="delete")
    history.add(
        SET, {"spec": {}}, "system:kube-x", "manager", reconcile="set/1.1", key="default/web-1", triggers=(2, 3)
    )
    answer = done(why(history, Question(SET)))
    assert [each.revision for each in answer.chain] == [4, 3]
    assert "triggered by this and 1 more:" in wording.text(answer)
    every = done(why(history, Question(SET, every=True)))
    assert [each.revision for each in every.chain[1].others] == [2]
    assert "    also 00:00:02.000" in wording.text(every)


def test_own_writes_of_a_controller_are_passed_over() -> None:
    history = Recorded()
    run = {"reconcile": "set/1.1", "key": "default/web-1"}
    history.add(WEB, {"spec": {}}, "alice")
    history.add(SET, {"status": {"seen": 1}}, "system:kube-x", "manager", triggers=(1,), **run)
    history.add(SET, {"status": {"seen": 2}}, "system:kube-x", "manager", triggers=(2,), **run)
    history.add(POD, {}, "system:kube-x", "manager", triggers=(3,), **run)
    assert [each.revision for each in done(why(history, Question(POD))).chain] == [4, 1]


def test_triggers_before_the_history_are_unknown() -> None:
    history = scaled_down()
    history.oldest = 5
    answer = done(why(history, Question(POD)))
    assert [each.revision for each in answer.chain] == [6, 5]
    assert answer.origin == "The trigger (revision 4) is older than the history, which begins at revision 5."


@pytest.mark.parametrize("triggers", [(9,), (6,)])
def test_triggers_that_cannot_be_are_unknown(triggers: tuple[int, ...]) -> None:
    history = Recorded()
    history.add(WEB, {"spec": {}}, "robot", "robot", triggers=triggers)
    answer = done(why(history, Question(WEB)))
    assert answer.origin == "The client names a trigger that is not recorded."


def test_records_of_earlier_versions_name_the_author() -> None:
    history = Recorded()
    history.add(WEB, {"spec": {}}, "system:kube-scheduler", "kube-scheduler")
    write = history._writes[1]
    history._writes[1] = write._replace(cause=WriteCause(0, "update", "system:kube-scheduler", "kube-scheduler"))
    answer = done(why(history, Question(WEB)))
    assert answer.sentence == "Deployment web was created at an unknown time by kube-scheduler."
    assert answer.origin == "The trigger of this write is not recorded: an earlier version of the server made it."
    history._writes[1] = write._replace(cause=None)
    assert done(why(history, Question(WEB))).origin == "No cause is recorded for this write."


def test_a_client_without_triggers_probably_acts_on_its_watch() -> None:
    history = Recorded(watches=("apps/deployments/",))
    history.add(WEB, {"spec": {"replicas": 2}}, "alice")
    history.add("apps/deployments/default/other", {"spec": {}}, "alice")
    owner = {"metadata": {"name": "web-1", "ownerReferences": [{"uid": WEB, "name": "web", "kind": "Deployment"}]}}
    history.add(SET, owner, "robot", "robot")
    answer = done(why(history, Question(SET)))
    assert [each.revision for each in answer.chain] == [3, 1]
    assert answer.origin == "Probable origin: alice (kubectl)."
    assert answer.hints == []
    line = "probably triggered by (no record: robot names no trigger; its watch reported this change 2.0 s before)"
    assert f"≈ {line}\n" in wording.text(answer)
    assert f"~ {line}\n" in wording.text(answer, ascii_only=True)
    assert "style=dashed" in wording.dot(answer)


def test_what_a_person_watches_is_no_trigger() -> None:
    history = Recorded(watches=("apps/deployments/",))
    history.add(WEB, {"spec": {"replicas": 2}}, "alice")
    history.add(WEB, {"spec": {"replicas": 3}}, "bob")
    answer = done(why(history, Question(WEB)))
    assert [each.revision for each in answer.chain] == [2]


def test_conflicts_are_found() -> None:
    history = Recorded()
    for _ in range(3):
        history.add(WEB, {"spec": {"level": "info"}}, "gitops", "")
        history.add(WEB, {"spec": {"level": "debug"}}, "debug", "")
    answer = done(conflicts(history, Question(WEB, "spec.level")))
    assert answer.sentence == "debug and gitops revert each other's changes of spec.level of Deployment web: 4 times."
    assert answer.findings[0].evidence == [
        'debug writes "debug"',
        'gitops writes "info"',
        answer.findings[0].evidence[2],
    ]
    quiet = done(conflicts(history, Question(WEB, "spec.other")))
    assert quiet.sentence == "No two clients revert each other's changes of spec.other of Deployment web."


@pytest.mark.parametrize(
    ("user", "agent", "name"),
    [
        ("alice", "kubectl", "alice (kubectl)"),
        ("robot", "robot", "robot"),
        ("system:serviceaccount:kube-system:replicaset-controller", "x", "replicaset-controller"),
        ("system:serviceaccount:tea:kettle", "x", "service account tea/kettle"),
        ("system:node:node-1", "kubelet", "kubelet node-1"),
        ("system:kube-scheduler", "kube-scheduler", "kube-scheduler"),
        ("system:apiserver", "", "kube-apiserver"),
        ("alice<admin", "kubectl", "alice (kubectl), impersonated by admin"),
        ("", "", "an unknown client"),
    ],
)
def test_names_of_authors(user: str, agent: str, name: str) -> None:
    assert actor_name(user, agent) == name
    assert actor_of(WriteCause(0, "", user, agent)) == name


def test_a_controller_is_named_as_it_claims() -> None:
    claim = Claim(reconcile="teapots/1f.2")
    own = "system:serviceaccount:kube-system:node-controller"
    users = (own, "jane", "system:serviceaccount:tea:kettle", "system:node:node-1")
    assert [actor_of(WriteCause(0, "", user, "x", claim)) for user in users] == [
        "teapots",
        "teapots (jane)",
        "teapots (service account tea/kettle)",
        "kubelet node-1",
    ]
    assert actor_of(None) == "an unknown client"


@pytest.mark.parametrize(
    ("besides", "text"),
    [
        ("timer:600", "a timer (600 s)"),
        ("timer:0.440942", "a timer (0.44 s)"),
        ("timer:60.1", "a timer (60.1 s)"),
        ("timer:soon", "a timer (soon s)"),
        ("retry:3", "retry 3"),
        ("start", "the start of the controller"),
        ("exit:137", "a container that exited with code 137"),
        ("probe:liveness", "a probe (liveness)"),
        ("silent:50", "50 s without a heartbeat"),
        ("event:NodeAdd", "cluster event NodeAdd"),
        ("something else", "something else"),
    ],
)
def test_other_triggers_in_words(besides: str, text: str) -> None:
    assert besides_text(besides) == text


def test_an_object_whose_earlier_versions_are_not_kept() -> None:
    """A Lease is renewed all the time, and the history does not keep that: nothing more is claimed."""
    place, history = "coordination.k8s.io/leases/kube-node-lease/node", Recorded()
    for second in range(3):
        history.add(place, {"spec": {"renewTime": f"2026-01-01T00:00:0{second}Z"}}, "system:node:node", "kubelet")
    history._versions[place] = history._versions[place][-2:]
    renewed = done(why(history, Question(place)))
    assert renewed.sentence.startswith("Lease node was changed 60s ago by kubelet node: ")
    history._versions[place] = history._versions[place][-1:]
    for question in (Question(place), Question(place, "spec.renewTime")):
        assert done(why(history, question)).sentence.endswith(
            "is known. Earlier versions than that of revision 3 are not kept."
        )
    history.oldest = 3
    assert done(why(history, Question(place))).sentence == (
        "Lease node has not changed since the history began, at revision 3."
    )
