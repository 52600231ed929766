from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from numbered_causes import NumberedCauses

from setpoint.store.cause_log import CauseLog
from setpoint.store.interface import Cause


def test_causes_are_encoded_once_in_order_and_not_with_every_write() -> None:
    log, numbers = CauseLog(), NumberedCauses(joins=False)
    for number in range(1, 201):
        log.append(number, numbers.note(number))
    encoded = [each for each in numbers.calls if each.startswith("encode")]
    assert encoded == [f"encode {number}" for number in range(1, 193)]
    numbers.calls.clear()
    for _ in range(2):
        assert [*log.after(198)] == [Cause(199, b"199"), Cause(200, b"200")]
        assert numbers.calls == [f"encode {number}" for number in range(193, 201)]
    fork = log.fork()
    fork.append(201, b"fork")
    log.append(201, b"original")
    assert [each.cause for log in (log, fork) for each in log.after(200)] == [b"original", b"fork"]


def test_noted_causes_are_joined_if_they_can_be() -> None:
    log, numbers = CauseLog(), NumberedCauses(unjoinable=64)
    for number in range(200):
        log.append(number + 1, numbers.note(number))
    assert numbers.calls == ["join 64", "join 64", *(f"encode {each}" for each in range(64, 128)), "join 64"]
    assert [*log.after(0)] == [Cause(number + 1, b"%d" % number) for number in range(200)]
    # What was read is bytes already.
    numbers.calls.clear()
    for number in range(200, 256):
        log.append(number + 1, numbers.note(number))
    assert numbers.calls == [f"encode {each}" for each in range(200, 256)]
    log.pack(1_000)
    assert [*log.after(100)] == [Cause(number + 1, b"%d" % number) for number in range(100, 256)]


def test_causes_of_several_encoders_are_not_joined() -> None:
    log, first, second = CauseLog(), NumberedCauses(), NumberedCauses()
    for number in range(64):
        log.append(number + 1, (first, second)[number % 2].note(number))
    assert first.calls == [f"encode {number}" for number in range(0, 64, 2)]
    assert [*log.after(62)] == [Cause(63, b"62"), Cause(64, b"63")]


def test_empty_causes_are_kept() -> None:
    """Transactions without a cause, and those that a replica missed, have an empty one."""
    log, numbers = CauseLog(), NumberedCauses()
    for number in range(64):
        log.append(number + 1, numbers.note(number) if number % 3 else b"")
    assert [*log.after(60)] == [Cause(61, b""), Cause(62, b"61"), Cause(63, b"62"), Cause(64, b"")]


def test_all_but_the_latest_blocks_are_compressed() -> None:
    log, causes = (
        CauseLog(),
        [Cause(number, b'[2,%d,"create @replicaset-controller"]' % number) for number in range(1, 901)],
    )
    for cause in causes:
        log.append(*cause)
    fork, small = log.fork(), sum(len(block._data) for block in log._blocks[-8:])
    for _ in range(7):
        log.pack(10)
    assert sum(len(block._data) for block in log._blocks) < small + small // 4
    for each in (log, fork):
        assert [*each.after(0)] == causes
        each.drop(500)
        assert [*each.after(700)] == causes[700:]


@given(
    st.lists(st.integers(1, 5), max_size=300),
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 3000)), min_size=1, max_size=8),
)
def test_it_returns_what_was_appended_and_not_dropped(steps: list[int], reads: list[tuple[int, int]]) -> None:
    log, model, revision, dropped = CauseLog(), list[Cause](), 0, 0
    for step in steps * 4:
        revision += step
        model.append(Cause(revision, b"x" * (revision % 7)))
        log.append(*model[-1])
    for after, through in reads:
        log.pack(100)
        after = max(after, dropped)
        assert [*log.after(after)] == [each for each in model if each.revision > after]
        dropped = max(dropped, min(through, revision))
        log.drop(dropped)
