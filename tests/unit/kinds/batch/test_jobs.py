"""Job and CronJob."""

from __future__ import annotations

from typing import Any

import pytest

UID = "11111111-1111-1111-1111-111111111111"
LABELS = {
    "batch.kubernetes.io/controller-uid": UID,
    "batch.kubernetes.io/job-name": "x",
    "controller-uid": UID,
    "job-name": "x",
}


def template(labels: dict[str, str] | None = None, **pod: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "i:1"}], "restartPolicy": "Never", **pod}
    return {"spec": spec} if labels is None else {"metadata": {"labels": labels}, "spec": spec}


def job(**more: Any) -> dict[str, Any]:
    return {"spec": {"template": template(), **more}}


def indexed(**more: Any) -> dict[str, Any]:
    return job(completionMode="Indexed", completions=3, parallelism=3, **more)


def test_defaults_and_generated_selector(lifecycle: Any) -> None:
    obj, errs, _ = lifecycle("batch/v1", "Job").create(job())
    assert errs == []
    spec = obj["spec"]
    assert {name: spec[name] for name in spec if name not in ("template", "selector")} == {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 6,
        "manualSelector": False,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed",
    }
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": UID}}
    assert spec["template"]["metadata"]["labels"] == obj["metadata"]["labels"] == LABELS


def test_a_job_without_labels_gets_those_of_its_template(lifecycle: Any) -> None:
    jobs = lifecycle("batch/v1", "Job")
    assert jobs.create(job(template=template({"a": "b"})))[0]["metadata"]["labels"] == {"a": "b", **LABELS}
    own, _, _ = jobs.create({**job(template=template({"a": "b"})), "metadata": {"labels": {"o": "p"}}})
    assert own["metadata"]["labels"] == {"o": "p"}


def test_parallelism_alone_means_a_work_queue(lifecycle: Any) -> None:
    obj, _, _ = lifecycle("batch/v1", "Job").create(job(parallelism=2))
    assert "completions" not in obj["spec"]


@pytest.mark.parametrize(
    ("body", "messages"),
    [
        (
            job(completionMode="Indexed", parallelism=1),
            ["spec.completions: Required value: when completion mode is Indexed"],
        ),
        (
            job(backoffLimitPerIndex=1),
            ["spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode"],
        ),
        (
            indexed(maxFailedIndexes=4),
            [
                "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified",
                "spec.maxFailedIndexes: Invalid value: 4: must be less than or equal to completions",
            ],
        ),
        (
            job(managedBy="a"),
            ['spec.managedBy: Invalid value: "a": must be a domain-prefixed path (such as "acme.io/foo")'],
        ),
        (
            job(template=template(restartPolicy="Always")),
            ['spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'],
        ),
        (
            job(podReplacementPolicy="Z"),
            ['spec.podReplacementPolicy: Unsupported value: "Z": supported values: "Failed", "TerminatingOrFailed"'],
        ),
        (
            job(successPolicy={"rules": [{"succeededCount": 1}]}),
            [
                'spec.successPolicy: Invalid value: {"Rules":[{"SucceededIndexes":null,"SucceededCount":1}]}: '
                "requires indexed completion mode"
            ],
        ),
        (
            indexed(successPolicy={"rules": [{"succeededCount": 3, "succeededIndexes": "0-1"}]}),
            [
                "spec.successPolicy.rules[0].succeededCount: Invalid value: 3: must be less than or equal to 2 "
                "(the number of indexes in the specified succeededIndexes field)"
            ],
        ),
        (
            job(
                podFailurePolicy={
                    "rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [0, 3, 2]}}]
                }
            ),
            [
                'spec.podFailurePolicy.rules[0].action: Invalid value: "FailIndex": '
                "requires the backoffLimitPerIndex to be set",
                "spec.podFailurePolicy.rules[0].onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator",
                "spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [0,3,2]: must be ordered",
            ],
        ),
        (
            job(podFailurePolicy={"rules": [{"action": ""}]}),
            [
                "spec.podFailurePolicy.rules[0].action: Required value: valid values: "
                '["Count" "FailIndex" "FailJob" "Ignore"]',
                "spec.podFailurePolicy.rules[0]: Invalid value: "
                "specifying one of OnExitCodes and OnPodConditions is required",
            ],
        ),
        (
            job(selector={"matchLabels": {"a": "b"}}) | {"metadata": {"labels": {"o": "p"}}},
            [
                f'spec.selector: Invalid value: {{"matchLabels":{{"a":"b","batch.kubernetes.io/controller-uid":"{UID}"}}}}'
                ": `selector` not auto-generated",
                "spec.template.metadata.labels: Invalid value: "
                f'{{"batch.kubernetes.io/controller-uid":"{UID}","batch.kubernetes.io/job-name":"x",'
                f'"controller-uid":"{UID}","job-name":"x"}}: `selector` does not match template `labels`',
            ],
        ),
    ],
)
def test_rules(lifecycle: Any, body: dict[str, Any], messages: list[str]) -> None:
    assert lifecycle("batch/v1", "Job").create(body)[1] == messages


@pytest.mark.parametrize(
    ("indexes", "problem"),
    [
        ("2,1", "non-increasing order, previous: 2, current: 1"),
        ("a", 'cannot convert string to integer for index: "a"'),
        ("0-9", 'too large index: "9"'),
        (
            "0-1-2",
            'the fragment "0-1-2" violates the requirement that an index interval can have at most two parts '
            "separated by '-'",
        ),
    ],
)
def test_lists_of_indexes(lifecycle: Any, indexes: str, problem: str) -> None:
    _, errs, _ = lifecycle("batch/v1", "Job").create(indexed(successPolicy={"rules": [{"succeededIndexes": indexes}]}))
    path = "spec.successPolicy.rules[0].succeededIndexes"
    shown = '"' + indexes + '"'
    assert errs == [f"{path}: Invalid value: {shown}: error parsing succeededIndexes: {problem}"]


def test_names_of_indexed_jobs_must_allow_the_index_suffix(lifecycle: Any) -> None:
    _, errs, _ = lifecycle("batch/v1", "Job").create(indexed(), name="a.b")
    assert errs == ['metadata.name: Invalid value: "a.b": will not able to create pod with invalid DNS label: a.b-2']


def test_template_of_a_running_job_is_immutable(lifecycle: Any) -> None:
    jobs = lifecycle("batch/v1", "Job")
    obj, _, _ = jobs.create(job())
    _, (message,), _ = jobs.update(obj, spec={"template": template(LABELS, nodeSelector={"a": "b"})})
    assert message.startswith('spec.template: Invalid value: {"labels":{"batch.kubernetes.io/controller-uid"')
    assert '"Spec":{"Volumes":null' in message and message.endswith(": field is immutable")


def test_scheduling_of_a_suspended_job_may_change(lifecycle: Any) -> None:
    jobs = lifecycle("batch/v1", "Job")
    obj, _, _ = jobs.create(job(suspend=True))
    steered = template({**LABELS, "more": "x"}, nodeSelector={"a": "b"}, tolerations=[{"operator": "Exists"}])
    steered["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    affinity = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [{"key": "k", "operator": "Exists"}]}}
            ]
        }
    }
    steered["spec"]["affinity"] = affinity
    new, errs, _ = jobs.update(obj, spec={"template": steered})
    assert (errs, new["metadata"]["generation"]) == ([], 2)
    steered["spec"]["containers"][0]["image"] = "other"
    _, (message,), _ = jobs.update(obj, spec={"template": steered})
    assert message.startswith("spec.template.spec: Invalid value: ")


def test_completions_follow_parallelism(lifecycle: Any) -> None:
    jobs = lifecycle("batch/v1", "Job")
    obj, _, _ = jobs.create(indexed())
    assert jobs.update(obj, spec={"completions": 4, "parallelism": 4})[1] == []
    assert jobs.update(obj, spec={"completions": 4})[1] == [
        "spec.completions: Invalid value: 4: can only be modified in tandem with spec.parallelism"
    ]


def conditions(*kinds: str) -> list[dict[str, str]]:
    return [{"type": kind, "status": "True"} for kind in kinds]


START, END = "2029-01-01T00:00:00Z", "2029-01-01T01:00:00Z"


@pytest.mark.parametrize(
    ("status", "messages"),
    [
        ({"startTime": START, "completionTime": END, "conditions": conditions("SuccessCriteriaMet", "Complete")}, []),
        ({"startTime": START, "conditions": conditions("FailureTarget", "Failed")}, []),
        (
            {"conditions": conditions("Failed")},
            [
                "status.conditions: Invalid value: "
                "cannot set Failed=True condition without the FailureTarget=true condition",
                "status.startTime: Required value: startTime is required for finished job",
            ],
        ),
        (
            {"completionTime": END},
            [
                'status.completionTime: Invalid value: "2029-01-01T01:00:00Z": '
                "cannot set completionTime when there is no Complete=True condition",
            ],
        ),
        ({"active": 1, "ready": 2}, ["status.ready: Invalid value: 2: cannot set more ready pods than active"]),
        (
            {"completedIndexes": "0"},
            [
                'status.completedIndexes: Invalid value: "0": '
                "cannot set non-empty completedIndexes when non-indexed completion mode",
            ],
        ),
        (
            {"uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["a"]}},
            ['status.uncountedTerminatedPods.failed[0]: Duplicate value: "a"'],
        ),
    ],
)
def test_status_rules(lifecycle: Any, status: dict[str, Any], messages: list[str]) -> None:
    jobs = lifecycle("batch/v1", "Job")
    obj, _, _ = jobs.create(job())
    assert jobs.update(obj, "status", status=status)[1] == messages


def test_status_cannot_be_reverted(lifecycle: Any) -> None:
    jobs = lifecycle("batch/v1", "Job")
    obj, _, _ = jobs.create(job())
    obj["status"] = {"startTime": START, "failed": 2, "conditions": conditions("FailureTarget")}
    assert jobs.update(obj, "status", status={"startTime": END, "failed": 1, "conditions": None})[1] == [
        "status.conditions: Invalid value: cannot disable the terminal FailureTarget=True condition",
        "status.failed: Invalid value: 1: cannot decrease the failed counter",
        'status.startTime: Invalid value: "2029-01-01T01:00:00Z": field is immutable for unsuspended job once set',
    ]


def test_job_cells(lifecycle: Any) -> None:
    jobs = lifecycle("batch/v1", "Job")
    obj, _, _ = jobs.create(job(parallelism=2))
    assert (jobs.cells(obj)["Completions"], jobs.cells(obj)["Duration"]) == ("0/1 of 2", "")
    obj["status"] = {
        "startTime": START,
        "completionTime": END,
        "succeeded": 1,
        "conditions": conditions("Complete"),
    }
    cells = jobs.cells(obj)
    assert (cells["Status"], cells["Duration"]) == ("Complete", "60m")
    assert jobs.strategy.selectable_fields(obj) == {"status.successful": "1"}


# -- CronJob -----------------------------------------------------------------------------------------------------------


def cron(**more: Any) -> dict[str, Any]:
    return {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template()}}, **more}}


def test_cronjob_defaults(lifecycle: Any) -> None:
    crons = lifecycle("batch/v1", "CronJob")
    obj, errs, _ = crons.create(cron())
    assert errs == []
    spec = obj["spec"]
    assert (spec["concurrencyPolicy"], spec["suspend"]) == ("Allow", False)
    assert (spec["successfulJobsHistoryLimit"], spec["failedJobsHistoryLimit"]) == (3, 1)
    assert "parallelism" not in spec["jobTemplate"]["spec"], "a Job gets its own defaults when it is made"
    assert crons.cells(obj) == {
        "Name": "x",
        "Schedule": "* * * * *",
        "Timezone": "<none>",
        "Suspend": "False",
        "Active": 0,
        "Last Schedule": "<none>",
        "Age": "24h",
        "Containers": "c",
        "Images": "i:1",
        "Selector": "<none>",
    }


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        ({"schedule": "bogus"}, ['spec.schedule: Invalid value: "bogus": expected exactly 5 fields, found 1: [bogus]']),
        (
            {"schedule": "", "concurrencyPolicy": "X"},
            [
                'spec.concurrencyPolicy: Unsupported value: "X": supported values: "Allow", "Forbid", "Replace"',
                "spec.schedule: Required value",
            ],
        ),
        (
            {"schedule": "TZ=UTC * * * * *"},
            [
                'spec.schedule: Invalid value: "TZ=UTC * * * * *": '
                "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
            ],
        ),
        ({"timeZone": "Mars/Base"}, ['spec.timeZone: Invalid value: "Mars/Base": unknown time zone Mars/Base']),
        ({"timeZone": "../etc"}, ['spec.timeZone: Invalid value: "../etc": unknown time zone ../etc']),
        (
            {"timeZone": "Local"},
            [
                'spec.timeZone: Invalid value: "Local": '
                "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
            ],
        ),
        (
            {"jobTemplate": {"spec": {"template": template(), "manualSelector": True}}},
            ['spec.jobTemplate.spec.manualSelector: Unsupported value: true: supported values: "nil", "false"'],
        ),
    ],
)
def test_cronjob_rules(lifecycle: Any, changes: dict[str, Any], messages: list[str]) -> None:
    assert lifecycle("batch/v1", "CronJob").create(cron(**changes))[1] == messages


def test_cronjob_names_must_allow_the_time_suffix(lifecycle: Any) -> None:
    crons = lifecycle("batch/v1", "CronJob")
    (message,) = crons.create(cron(), name="a" * 53)[1]
    assert message.endswith("must be no more than 52 characters")
    assert crons.create(cron(), name="a" * 52)[1] == []
