"""The pure steps of the Job controller."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.controllers.job.job_pods import (
    FAILURES,
    FINALIZER,
    IGNORED_FAILURES,
    INDEX,
    Indexes,
    finished_at,
    set_job_condition,
)
from setpoint.controllers.job.manage import indexed_name, missing, pending_indexes, too_many
from setpoint.controllers.job.progress import (
    FailureBackoff,
    apply_failure_policy,
    observe,
    remaining_for_index,
    success_message,
)
from setpoint.controllers.job.tally import MAX_UNCOUNTED, count_released, finish, record_ended
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_time

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> str:
    return format_time(NOW + timedelta(seconds=seconds))


def a_job(status: Obj | None = None, **spec: Any) -> Any:
    return {
        "metadata": {"name": "work", "namespace": "default", "uid": "job"},
        "spec": {
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 6,
            "template": {"spec": {"containers": []}},
            **spec,
        },
        "status": {"startTime": at(0), **(status or {})},
    }


def a_pod(
    uid: str,
    phase: str = "Running",
    *,
    index: int | None = None,
    tracked: bool = True,
    ended: float | None = None,
    code: int = 1,
    **more: Any,
) -> Any:
    annotations = {} if index is None else {INDEX: str(index)}
    meta: Obj = {
        "name": uid,
        "namespace": "default",
        "uid": uid,
        "creationTimestamp": at(-100),
        "annotations": annotations,
    }
    if tracked:
        meta["finalizers"] = [FINALIZER]
    meta.update(more.pop("meta", {}))
    status: Obj = {"phase": phase, **more.pop("status", {})}
    if ended is not None:
        state = {"terminated": {"exitCode": code, "finishedAt": at(ended)}}
        status["containerStatuses"] = [{"name": "c", "state": state}]
    return {"metadata": meta, "spec": {"containers": [{"name": "c"}], **more}, "status": status}


# -- indexes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "completions", "written"),
    [
        ("", 10, ""),
        ("3", 10, "3"),
        ("1,2", 10, "1,2"),
        ("1-3", 10, "1-3"),
        ("1,2,3", 10, "1-3"),
        ("0-2,4,6-9", 10, "0-2,4,6-9"),
        ("0-5,7", 5, "0-4"),
        ("3,5-7", 6, "3,5"),
        ("a,2,3-b,4", 10, "2,4"),
        ("5", 5, ""),
    ],
)
def test_indexes_are_read_and_written(text: str, completions: int, written: str) -> None:
    assert str(Indexes.parse(text, completions)) == written


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)), st.integers(0, 20), st.integers(0, 70))
def test_indexes_are_sets(one: set[int], other: set[int], count: int, completions: int) -> None:
    left, right = Indexes.of(one), Indexes.of(other)
    assert len(left | right) == len(one | other)
    assert left.common(right) == len(one & other)
    assert all((number in left) == (number in one) for number in range(-1, 62))
    assert Indexes.parse(str(left), 100) == left
    assert left.first_missing(count, completions) == [n for n in range(completions) if n not in one][:count]


# -- back-off ---------------------------------------------------------------------------------------------------------


def ends(*times: float) -> list[Any]:
    return [a_pod(f"{time}", "Failed", ended=time) for time in times]


@pytest.mark.parametrize(
    ("before", "succeeded", "failed", "failures", "last"),
    [
        (FailureBackoff(), [], [], 0, None),
        (FailureBackoff(), [], [5, 3], 2, 5),
        (FailureBackoff(2, NOW), [], [9], 3, 9),
        (FailureBackoff(3, NOW), [9], [], 0, None),
        (FailureBackoff(3, NOW), [6], [5, 7, 8], 2, 8),
        (FailureBackoff(3, NOW), [9], [5, 9], 0, None),
        (FailureBackoff(3, NOW), [], [], 3, 0),
    ],
)
def test_consecutive_failures(
    before: FailureBackoff, succeeded: list[float], failed: list[float], failures: int, last: Any
) -> None:
    after = before.after(ends(*succeeded), ends(*failed))
    assert after == FailureBackoff(failures, None if last is None else NOW + timedelta(seconds=last))


@pytest.mark.parametrize(
    ("failures", "since", "left"),
    [(0, 0, 0), (1, 0, 10), (1, 4, 6), (1, 11, 0), (2, 0, 20), (3, 5, 35), (6, 0, 320), (7, 0, 600), (500, 0, 600)],
)
def test_backoff_doubles_up_to_ten_minutes(failures: int, since: float, left: float) -> None:
    now = NOW + timedelta(seconds=since)
    assert FailureBackoff(failures, NOW).remaining(now) == left
    if failures:
        counts = {FAILURES: str(failures - 1)}
        pod = a_pod("p", "Failed", ended=0, meta={"annotations": counts})
        assert remaining_for_index(pod, now) == left
        counts = {FAILURES: "0", IGNORED_FAILURES: str(failures - 1)}
        pod = a_pod("p", "Failed", ended=0, meta={"annotations": counts})
        assert remaining_for_index(pod, now) == left


def test_when_a_pod_ended() -> None:
    assert finished_at(a_pod("p", ended=5)) == NOW + timedelta(seconds=5)
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": at(7)}
    assert finished_at(a_pod("p", status={"conditions": [ready]})) == NOW + timedelta(seconds=7)
    gone = {"deletionTimestamp": at(30), "deletionGracePeriodSeconds": 30}
    assert finished_at(a_pod("p", meta=gone)) == NOW
    assert finished_at(a_pod("p")) == NOW - timedelta(seconds=100)
    # A sidecar ends after all others.
    sidecar = {"name": "s", "state": {"terminated": {"finishedAt": at(9)}}}
    pod = a_pod("p", ended=5, initContainers=[{"name": "s", "restartPolicy": "Always"}])
    pod["status"]["initContainerStatuses"] = [sidecar, {"name": "other", "state": {"running": {}}}]
    assert finished_at(pod) == NOW + timedelta(seconds=9)


# -- policies ---------------------------------------------------------------------------------------------------------


def with_rules(*rules: Obj) -> Any:
    return a_job(podFailurePolicy={"rules": list(rules)})


def on_codes(action: str, operator: str, *values: int, name: str | None = None) -> Any:
    return {"action": action, "onExitCodes": {"containerName": name, "operator": operator, "values": list(values)}}


@pytest.mark.parametrize(
    ("rules", "code", "action"),
    [
        ([on_codes("FailJob", "In", 1, 5)], 5, "FailJob"),
        ([on_codes("FailJob", "In", 1, 5)], 2, ""),
        ([on_codes("FailJob", "NotIn", 1)], 2, "FailJob"),
        ([on_codes("FailJob", "NotIn", 1)], 0, ""),
        ([on_codes("FailJob", "In", 5, name="other")], 5, ""),
        ([on_codes("Ignore", "In", 5), on_codes("FailJob", "In", 5)], 5, "Ignore"),
        ([on_codes("Count", "In", 5), on_codes("Ignore", "In", 5)], 5, "Count"),
        ([on_codes("FailIndex", "In", 5)], 5, "FailIndex"),
    ],
)
def test_the_first_matching_exit_code_rule_applies(rules: list[Obj], code: int, action: str) -> None:
    verdict = apply_failure_policy(with_rules(*rules), a_pod("p", "Failed", ended=0, code=code))
    assert verdict.action == action
    assert verdict.counts == (action != "Ignore")
    assert bool(verdict.message) == (action == "FailJob")


def test_a_rule_for_pod_conditions() -> None:
    rule = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    pod = a_pod("p", "Failed", status={"conditions": [{"type": "DisruptionTarget", "status": "True"}]})
    text = "Pod default/p has condition DisruptionTarget matching FailJob rule at index 0"
    assert apply_failure_policy(with_rules(rule), pod).message == text
    assert apply_failure_policy(with_rules(rule), a_pod("p", "Failed")).action == ""


@pytest.mark.parametrize(
    ("rules", "succeeded", "message"),
    [
        ([{"succeededCount": 2}], "0,5", "Matched rules at index 0"),
        ([{"succeededCount": 3}], "0,5", ""),
        ([{"succeededIndexes": "0-2"}], "0-3", "Matched rules at index 0"),
        ([{"succeededIndexes": "0-2"}], "0,1", ""),
        ([{"succeededIndexes": "0-2", "succeededCount": 2}], "0,2,7", "Matched rules at index 0"),
        ([{"succeededIndexes": "9"}, {"succeededIndexes": "5"}], "5", "Matched rules at index 1"),
        ([{"succeededCount": 1}], "", ""),
    ],
)
def test_when_the_success_policy_is_met(rules: list[Obj], succeeded: str, message: str) -> None:
    job = a_job(completions=10, successPolicy={"rules": rules})
    assert success_message(job, Indexes.parse(succeeded, 10)) == message


# -- which Pods -------------------------------------------------------------------------------------------------------


def test_duplicate_and_unindexed_pods_are_deleted_first() -> None:
    job = a_job(completionMode="Indexed", completions=3)
    pods = [
        a_pod("a", index=0),
        a_pod("b", "Pending", index=0),
        a_pod("c", index=1),
        a_pod("d"),
        a_pod("e", index=7),
    ]
    assert [pod["metadata"]["uid"] for pod in too_many(job, pods, 0)] == ["d", "e", "b"]
    assert len(too_many(job, pods, 4)) == 4


def test_the_least_advanced_pods_are_deleted_first() -> None:
    up = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(-50)}]}
    lately = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(-5)}]}
    pods = [
        a_pod("ready", status=up, nodeName="n"),
        a_pod("lately", status=lately, nodeName="n"),
        a_pod("running", nodeName="n"),
        a_pod("bound", "Pending", nodeName="n"),
        a_pod("new", "Pending"),
    ]
    gone = [pod["metadata"]["uid"] for pod in too_many(a_job(), pods, 5)]
    assert gone == ["new", "bound", "running", "lately", "ready"]


@pytest.mark.parametrize(
    ("spec", "status", "pods", "count"),
    [
        ({"parallelism": 3, "completions": 5}, {}, [], 3),
        ({"parallelism": 3, "completions": 5}, {"succeeded": 3}, [], 2),
        ({"parallelism": 3, "completions": 5}, {"succeeded": 7}, [], 0),
        ({"parallelism": 3, "completions": None}, {}, [], 3),
        ({"parallelism": 3, "completions": None}, {"succeeded": 1}, [a_pod("a")], 0),
        ({"parallelism": 2, "completions": 2}, {}, [a_pod("a", meta={"deletionTimestamp": at(0)})], 2),
        (
            {"parallelism": 2, "completions": 2, "podReplacementPolicy": "Failed"},
            {},
            [a_pod("a", meta={"deletionTimestamp": at(0)})],
            1,
        ),
    ],
)
def test_number_of_missing_pods(spec: Obj, status: Obj, pods: list[Any], count: int) -> None:
    assert missing(observe(a_job(status, **spec), pods, FailureBackoff(), NOW)) == count


def test_pending_indexes() -> None:
    job = a_job(
        {"completedIndexes": "0", "failedIndexes": "2"},
        completionMode="Indexed",
        completions=6,
        parallelism=6,
        backoffLimitPerIndex=0,
    )
    pods = [a_pod("a", index=1), a_pod("b", "Succeeded", index=4)]
    assert pending_indexes(observe(job, pods, FailureBackoff(), NOW), 10) == [3, 5]


def test_long_names_are_truncated_for_the_index() -> None:
    job: Any = {"metadata": {"name": "x" * 63}}
    assert indexed_name(job, 12) == "x" * 54 + "-12-"
    assert indexed_name({"metadata": {"name": "x"}}, 0) == "x-0-"


# -- counting ---------------------------------------------------------------------------------------------------------


def test_ended_pods_are_recorded_then_counted() -> None:
    job = a_job(parallelism=3, completions=3)
    pods = [a_pod("s", "Succeeded"), a_pod("f", "Failed"), a_pod("r")]
    seen = observe(job, pods, FailureBackoff(), NOW)
    assert (seen.succeeded, seen.failed) == (1, 1)
    noted = record_ended(seen)
    assert noted.changed and noted.complete
    assert [pod["metadata"]["uid"] for pod in noted.release] == ["s", "f"]
    assert seen.status["uncountedTerminatedPods"] == {"succeeded": ["s"], "failed": ["f"]}
    assert count_released(seen.status, {"r", "f"})
    assert (seen.status["succeeded"], seen.status.get("failed", 0)) == (1, 0)
    assert seen.status["uncountedTerminatedPods"] == {"failed": ["f"]}
    assert not finish(seen)


def test_recorded_pods_are_not_recorded_again() -> None:
    job = a_job({"uncountedTerminatedPods": {"succeeded": ["s"]}}, completions=3)
    seen = observe(job, [a_pod("s", "Succeeded")], FailureBackoff(), NOW)
    assert seen.succeeded == 1
    noted = record_ended(seen)
    assert not noted.changed and len(noted.release) == 1


def test_a_pod_recorded_as_failed_stays_failed() -> None:
    job = a_job({"uncountedTerminatedPods": {"failed": ["p"]}}, completions=3)
    seen = observe(job, [a_pod("p", "Succeeded")], FailureBackoff(), NOW)
    record_ended(seen)
    assert seen.status["uncountedTerminatedPods"] == {"failed": ["p"]}


def test_the_number_of_uncounted_pods_is_limited() -> None:
    pods = [a_pod(f"p{number}", "Succeeded") for number in range(MAX_UNCOUNTED + 20)]
    seen = observe(a_job(completions=9999), pods, FailureBackoff(), NOW)
    noted = record_ended(seen)
    assert len(noted.release) == MAX_UNCOUNTED and not noted.complete


def test_a_smaller_indexed_job_drops_indexes_beyond_its_size() -> None:
    job = a_job({"completedIndexes": "0-5", "succeeded": 6}, completionMode="Indexed", completions=3, parallelism=3)
    seen = observe(job, [], FailureBackoff(), NOW)
    assert record_ended(seen).changed
    assert (seen.status["completedIndexes"], seen.status["succeeded"]) == ("0-2", 3)


def test_an_earlier_outcome_stands() -> None:
    met = {"type": "SuccessCriteriaMet", "status": "True", "reason": "SuccessPolicy", "message": "m"}
    seen = observe(a_job({"conditions": [met], "failed": 100}), [], FailureBackoff(), NOW)
    assert seen.outcome == met
    target = {"type": "FailureTarget", "status": "True", "reason": "R", "message": "m"}
    seen = observe(a_job({"conditions": [target]}), [], FailureBackoff(), NOW)
    assert seen.outcome is not None
    assert (seen.outcome["type"], seen.outcome["reason"], seen.outcome["message"]) == ("Failed", "R", "m")
    false = {**target, "status": "False"}
    assert observe(a_job({"conditions": [false]}), [], FailureBackoff(), NOW).outcome is None


def test_backoff_is_recomputed_from_the_pods() -> None:
    counted = [a_pod("a", "Failed", ended=1, tracked=False), a_pod("b", "Failed", ended=5, tracked=False)]
    assert observe(a_job(), counted, None, NOW).backoff == FailureBackoff(2, NOW + timedelta(seconds=5))


def test_an_absent_condition_is_not_added_as_false() -> None:
    status: Obj = {}
    assert not set_job_condition(status, {"type": "Suspended", "status": "False", "reason": "r", "message": "m"})
    assert status == {}
    assert set_job_condition(status, {"type": "Suspended", "status": "True", "reason": "r", "message": "m"})
    assert not set_job_condition(status, {"type": "Suspended", "status": "True", "reason": "r", "message": "m"})
    assert set_job_condition(status, {"type": "Suspended", "status": "False", "reason": "r", "message": "m"})
    assert [each["status"] for each in status["conditions"]] == ["False"]
