"""A short run of the robustness suite, and the parts of it that need no machines."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from tests.robustness.etcd_log import commits
from tests.robustness.faults import FAULTS, sequence
from tests.robustness.history import OK, REFUSED, UNKNOWN, Call, Commit, FaultRecord, History
from tests.robustness.report import Pauses, longest_pauses, pauses

_ROOT = Path(__file__).parents[2]
_TIMEOUT = 420.0
"""Seconds after which a run has failed; it takes two to three minutes."""
_MINUTES = "2"
"""No fault begins after this time; the last one, the convergence and the checks take less than a minute more."""


@pytest.mark.alone
def test_faults_violate_nothing(tmp_path: Path) -> None:
    """A dozen faults in three minutes, with few calls."""
    missing = [program for program in ("etcd", "etcdctl") if shutil.which(program) is None]
    if missing and not os.environ.get("SETPOINT_REQUIRE_ETCD"):
        pytest.skip(f"not installed: {', '.join(missing)} (apt-get install etcd-server etcd-client)")
    directory = tmp_path / "run"
    command = [sys.executable, "-m", "tests.robustness", "--faults=13", f"--minutes={_MINUTES}", "--rate=4"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT / "src"), str(_ROOT)])}
    run = subprocess.run(
        [*command, f"--directory={directory}"],
        cwd=_ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT,
    )
    print(run.stdout)  # noqa: T201
    assert run.returncode == 0, f"{run.stdout}\nthe history and the logs are in {directory}"
    shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.parametrize("isolated", [True, False])
def test_sequence_is_that_of_the_seed(isolated: bool) -> None:
    def names(count: int, seed: int) -> list[str]:
        return [each.name for each in sequence(count, Random(seed), isolated=isolated)]

    assert names(60, 7) == names(60, 7) != names(60, 8)
    possible = [each.name for each in FAULTS if isolated or not each.cuts_links]
    assert sorted(names(13, 7)) == sorted(possible[:13])
    assert sorted(names(len(possible), 7)) == sorted(possible)


def test_sequence_of_chosen_faults() -> None:
    chosen = sequence(5, Random(1), isolated=True, only=("kill-apiserver", "compaction"))
    assert {each.name for each in chosen} == {"kill-apiserver", "compaction"}
    with pytest.raises(ValueError, match="no fault link-down here"):
        sequence(5, Random(1), isolated=False, only=("link-down",))


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


def test_commits_of_the_log() -> None:
    """Values are summarized, the causes of revisions name terms, and other keys are left out."""

    def put(key: str, revision: int, value: bytes) -> dict[str, object]:
        return {"kv": {"key": encoded(key.encode()), "mod_revision": revision, "value": encoded(value)}}

    cause = b"x" * 16 + json.dumps({"user": "u", "lease": "kube-system/work/3/me%2F1"}).encode()
    config = json.dumps({"metadata": {"name": "a"}, "data": {"value": "v1"}}).encode()
    lease = json.dumps({"spec": {"holderIdentity": "me/1", "leaseTransitions": 3}}).encode()
    response = {
        "Events": [
            put(
                "/registry/core/configmaps/robust/a", 7, b"~" + len(cause).to_bytes(3, "big") + cause + b"12:" + config
            ),
            put("/registry/coordination.k8s.io/leases/kube-system/work", 8, b"~\0\0\x10" + b"x" * 16 + b"1:" + lease),
            put("/other", 9, b"1"),
            put("/registry/allocation/1", 10, b":not JSON"),
            {"type": 1, "kv": {"key": encoded(b"/registry/core/configmaps/robust/a"), "mod_revision": 11}},
            put("/registry/~cause", 11, cause),
        ]
    }
    assert commits(response) == [
        Commit(7, "core/configmaps/robust/a", "v1", "kube-system/work/3/me/1"),
        Commit(8, "coordination.k8s.io/leases/kube-system/work", "3/me/1"),
        Commit(10, "allocation/1", ""),
        Commit(11, "core/configmaps/robust/a", None, "kube-system/work/3/me/1"),
    ]


def test_pauses() -> None:
    """A wait lasts from the first attempt to the first success, and belongs to the fault that caused it."""

    def call(verb: str, invoked: float, answered: float, outcome: str = OK, code: int = 200) -> Call:
        return Call("c", "m1", verb, "k", invoked, answered, outcome, code)

    first, second = FaultRecord("kill-etcd-leader", "m1", 10, 12, 13), FaultRecord("kill-scheduler", "m1", 20, 22, 23)
    history = History(
        [
            call("create", 9.0, 9.1),
            call("create", 10.1, 11.1, UNKNOWN, 0),
            call("update", 11.2, 11.5, REFUSED, 503),
            call("update", 12.0, 12.6, REFUSED, 409),
            call("update", 13.0, 13.1),
            call("get", 10.1, 10.2),
            call("converge", 24.0, 42.0),
            first,
            second,
        ]
    )
    assert pauses(history) == {first: Pauses(2500, 100, None), second: Pauses(None, None, 18000)}
    lines = list(longest_pauses(history))
    assert lines[1].split() == ["kill-etcd-leader", "1", "2500", "100", "-", "writers", "<=", "3000,", "met"]
    assert lines[2].split() == ["kill-scheduler", "1", "-", "-", "18000", "controllers", "<=", "17000,", "MISSED"]
