from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from stopped_clock import StoppedClock

from setpoint.node.cri.enums import ContainerState, SandboxState
from setpoint.node.cri.messages import CLASSES
from setpoint.node.host.observed_state import ObservedContainer, ObservedState, Sandbox
from setpoint.node.runtime.interface import ContainerRecord

LISTED_SANDBOX, LISTED_CONTAINER = CLASSES["PodSandbox"], CLASSES["Container"]
SANDBOX_STATUS, CONTAINER_STATUS = CLASSES["PodSandboxStatus"], CLASSES["ContainerStatus"]
BEGAN = 1_900_000_000_000_000_000


def listed_sandbox(identifier: str, state: int = SandboxState.READY, uid: str = "uid", attempt: int = 0) -> Any:
    meta = {"name": "web", "namespace": "default", "uid": uid, "attempt": attempt}
    return LISTED_SANDBOX(id=identifier, metadata=meta, state=state, created_at=BEGAN)


def listed_container(identifier: str, state: int, sandbox: str = "s", attempt: int = 0, name: str = "main") -> Any:
    meta = {"name": name, "attempt": attempt}
    return LISTED_CONTAINER(id=identifier, pod_sandbox_id=sandbox, metadata=meta, state=state, created_at=BEGAN)


def status(identifier: str, state: int, code: int = 0, reason: str = "") -> Any:
    ended = state == ContainerState.EXITED
    return CONTAINER_STATUS(
        id=identifier,
        state=state,
        started_at=BEGAN + 1_000_000_000,
        finished_at=BEGAN + 2_500_000_000 if ended else 0,
        exit_code=code,
        reason=reason,
        image={"image": "busybox:1"},
        image_ref="busybox@sha256:1",
    )


@pytest.fixture
def state() -> ObservedState:
    made = ObservedState(StoppedClock())
    made.runtime_name = "containerd"
    return made


def observe(state: ObservedState, *containers: Any) -> list[str]:
    with state.observation() as number:
        return state.merge_lists([listed_sandbox("s")], containers, number)


def container_of(state: ObservedState, identifier: str) -> ObservedContainer:
    found = state.container(identifier)
    assert found is not None
    return found


def test_the_user_is_reported_if_the_runtime_reports_it(state: ObservedState) -> None:
    observe(state, listed_container("old", ContainerState.RUNNING), listed_container("c", ContainerState.RUNNING))
    found = status("c", ContainerState.RUNNING)
    found.user.linux.uid, found.user.linux.gid = 1000, 3000
    found.user.linux.supplemental_groups.extend((3000, 4000))
    state.apply_container_status(container_of(state, "c"), found)
    record = container_of(state, "c").record
    assert record is not None and record.user == {"uid": 1000, "gid": 3000, "supplementalGroups": [3000, 4000]}
    state.apply_container_status(container_of(state, "old"), status("old", ContainerState.RUNNING))
    record = container_of(state, "old").record
    assert record is not None and record.user is None


def test_a_record_has_the_ids_and_times_of_the_runtime(state: ObservedState) -> None:
    assert observe(state, listed_container("c", ContainerState.RUNNING)) == ["s", "c"]
    state.apply_container_status(container_of(state, "c"), status("c", ContainerState.RUNNING))
    record = state.records("uid").current["main"]
    assert (record.id, record.image, record.image_id) == ("containerd://c", "busybox:1", "busybox@sha256:1")
    assert (record.started_at, record.finished_at, record.attempt) == (BEGAN / 1e9 + 1, None, 0)
    state.apply_container_status(container_of(state, "c"), status("c", ContainerState.EXITED, 3), "message")
    assert state.records("uid").current["main"] is record
    assert (record.exit_code, record.reason, record.message) == (3, "Error", "message")
    assert record.finished_at == BEGAN / 1e9 + 2.5


@pytest.mark.parametrize(
    ("code", "reported", "shown"),
    [(0, "", "Completed"), (1, "", "Error"), (137, "OOMKilled", "OOMKilled"), (0, "OOMKilled", "OOMKilled")],
)
def test_the_reason_of_an_exit(state: ObservedState, code: int, reported: str, shown: str) -> None:
    observe(state, listed_container("c", ContainerState.EXITED))
    state.apply_container_status(container_of(state, "c"), status("c", ContainerState.EXITED, code, reported))
    assert state.records("uid").current["main"].reason == shown


def test_a_container_that_is_only_created_is_not_a_run(state: ObservedState) -> None:
    assert observe(state, listed_container("c", ContainerState.CREATED)) == ["s"]
    assert state.records("uid").current == {}
    assert [each.id for each in state.containers("uid")] == ["c"]


def test_the_newest_run_is_current(state: ObservedState) -> None:
    for attempt in (2, 0, 1):
        observe(state, listed_container(f"c{attempt}", ContainerState.EXITED, attempt=attempt))
        found = container_of(state, f"c{attempt}")
        state.apply_container_status(found, status(found.id, ContainerState.EXITED))
    records = state.records("uid")
    assert records.current["main"].attempt == 2 and records.previous["main"].attempt == 1


def test_messages_are_truncated_to_whole_characters(state: ObservedState) -> None:
    state.message_limit = lambda uid: 5
    observe(state, listed_container("c", ContainerState.EXITED))
    state.apply_container_status(container_of(state, "c"), status("c", ContainerState.EXITED), "äöü")
    assert state.records("uid").current["main"].message == "äö"


def test_a_killed_container_has_the_reason_of_the_agent(state: ObservedState) -> None:
    observe(state, listed_container("c", ContainerState.RUNNING))
    container = container_of(state, "c")
    state.apply_container_status(container, status("c", ContainerState.RUNNING))
    container.kill_reason = "RestartingAllContainers"
    state.apply_container_status(container, status("c", ContainerState.EXITED, 137))
    assert state.records("uid").current["main"].reason == "RestartingAllContainers"


def test_an_unknown_container_has_ended(state: ObservedState) -> None:
    observe(state, listed_container("c", ContainerState.UNKNOWN))
    state.apply_container_status(container_of(state, "c"), status("c", ContainerState.UNKNOWN))
    record = state.records("uid").current["main"]
    assert (record.reason, record.exit_code, record.running) == ("ContainerStatusUnknown", 137, False)


def test_a_sandbox_works_when_it_has_an_address_or_the_network_of_the_host(state: ObservedState) -> None:
    observe(state)
    assert state.ready_sandbox("uid") is None
    sandbox = state.sandbox("s")
    assert sandbox is not None
    network = {"ip": "10.0.0.2", "additional_ips": [{"ip": "fd00::2"}]}
    state.apply_sandbox_status(sandbox, SANDBOX_STATUS(id="s", network=network))
    assert state.ready_sandbox("uid") is sandbox and sandbox.ips == ("10.0.0.2", "fd00::2")
    state.apply_sandbox_status(sandbox, SANDBOX_STATUS(id="s", state=SandboxState.NOT_READY))
    assert state.ready_sandbox("uid") is None
    with state.observation() as number:
        state.merge_lists([listed_sandbox("s"), listed_sandbox("s2", attempt=1)], [], number)
    second = state.sandbox("s2")
    assert second is not None
    state.apply_sandbox_status(second, SANDBOX_STATUS(id="s2", linux={"namespaces": {"options": {"network": 2}}}))
    assert state.ready_sandbox("uid") is second


def test_what_was_added_during_an_observation_stays(state: ObservedState) -> None:
    with state.observation() as number:
        state.add_sandbox(Sandbox("s", "uid", "default", "web", 0, 1.0, ready=True))
        state.add_container(ObservedContainer("c", "uid", "s", "main", 0, 1.0))
        state.remove_unlisted(set(), number)
    assert state.uids() == {"uid"}
    with state.observation() as number:
        state.remove_unlisted(set(), number)
    assert state.uids() == set() and not state.is_known("c") and not state.is_known("s")


def test_what_was_removed_during_an_observation_does_not_come_back(state: ObservedState) -> None:
    observe(state, listed_container("c", ContainerState.RUNNING))
    with state.observation() as number:
        state.forget_sandbox("s")
        listed = [listed_container("c", ContainerState.RUNNING)]
        assert state.merge_lists([listed_sandbox("s")], listed, number) == []
    assert state.uids() == set() and state._removed == {}


def test_containers_of_unlisted_sandboxes_are_ignored(state: ObservedState) -> None:
    observe(state, listed_container("c", ContainerState.RUNNING, sandbox="foreign"))
    assert not state.is_known("c")


# -- random orders ---------------------------------------------------------------------------------------------------


@dataclass
class Truth:
    """The container runtime: what exists, and in which state."""

    sandboxes: dict[str, int]
    containers: dict[str, tuple[str, int]]
    """Sandbox and state by id."""


def snapshot(truth: Truth) -> tuple[list[Any], list[Any]]:
    sandboxes = [listed_sandbox(each, state, uid=f"uid-{each[1]}") for each, state in truth.sandboxes.items()]
    containers = [
        listed_container(each, state, sandbox, name=each) for each, (sandbox, state) in truth.containers.items()
    ]
    return sandboxes, containers


@pytest.mark.parametrize("seed", range(200))
def test_the_state_converges_whatever_the_order_of_answers(seed: int) -> None:
    """Lists and statuses are taken at random moments and arrive later, in a random order. States never go back, there
    is one record for each container, and a last list makes the state equal to the truth."""
    random = Random(seed)
    state = ObservedState(StoppedClock())
    truth = Truth({}, {})
    changed: set[str] = set()
    state.on_change = changed.add
    records: dict[str, ContainerRecord] = {}
    final: dict[str, tuple[int, str]] = {}
    states: dict[str, int] = {}
    lists: list[tuple[AbstractContextManager[int], int, tuple[list[Any], list[Any]]]] = []
    statuses: list[Any] = []
    created = 0

    def check() -> None:
        for uid in state.uids():
            for container in state.containers(uid):
                assert container.state >= states.get(container.id, ContainerState.CREATED)
                states[container.id] = container.state
                record = container.record
                if record is None:
                    continue
                assert records.setdefault(container.id, record) is record
                if not record.running:
                    assert final.setdefault(container.id, (record.exit_code, record.reason)) == (
                        record.exit_code,
                        record.reason,
                    )
                assert container.id not in final or not record.running

    def deliver(status_message: Any) -> None:
        container = state.container(status_message.id)
        if container is not None:
            state.apply_container_status(container, status_message)

    for _ in range(120):
        match random.randrange(8):
            case 0 if len(truth.sandboxes) < 3:
                created += 1
                truth.sandboxes[f"s{created}"] = SandboxState.READY
            case 1 if truth.sandboxes:
                created += 1
                name, sandbox = f"c{created}", random.choice([*truth.sandboxes])
                truth.containers[name] = (sandbox, ContainerState.CREATED)
                if random.random() < 0.5:  # by this agent
                    uid = f"uid-{sandbox[1]}"
                    if state.sandbox(sandbox) is not None:
                        state.add_container(ObservedContainer(name, uid, sandbox, name, 0, 1.0))
            case 2 | 3 if truth.containers:
                name = random.choice([*truth.containers])
                sandbox, old = truth.containers[name]
                truth.containers[name] = (sandbox, min(old + 1, ContainerState.EXITED))
            case 4:
                opened = state.observation()
                lists.append((opened, opened.__enter__(), snapshot(truth)))
            case 5 if lists:
                observation, number, (sandboxes, containers) = lists.pop(random.randrange(len(lists)))
                for each in state.merge_lists(sandboxes, containers, number):
                    if each in truth.containers:
                        statuses.append(status(each, truth.containers[each][1], code=1))
                    elif state.container(each) is not None:
                        state.forget_container(each)
                ids = {each.id for each in (*sandboxes, *containers)}
                state.remove_unlisted(ids, number)
                observation.__exit__(None, None, None)
            case 6 if statuses:
                deliver(statuses.pop(random.randrange(len(statuses))))
            case 7 if truth.containers and random.random() < 0.3:
                name = random.choice([*truth.containers])
                del truth.containers[name]
                if random.random() < 0.5:  # by this agent
                    state.forget_container(name)
        check()
    for observation, _, _ in lists:
        observation.__exit__(None, None, None)
    for pending in statuses:
        deliver(pending)
    with state.observation() as number:
        sandboxes, containers = snapshot(truth)
        for identifier in state.merge_lists(sandboxes, containers, number):
            if identifier in truth.containers:
                deliver(status(identifier, truth.containers[identifier][1], code=1))
        state.remove_unlisted(set(truth.sandboxes) | set(truth.containers), number)
    check()
    seen = {each.id: each.state for uid in state.uids() for each in state.containers(uid)}
    assert seen == {each: at for each, (_, at) in truth.containers.items()}
    assert {each.id for uid in state.uids() for each in state.sandboxes(uid)} == set(truth.sandboxes)
    assert all(not records[each].running for each in records if each not in truth.containers)
    assert state._removed == {} and set(state._uids) == set(truth.sandboxes) | set(truth.containers)
