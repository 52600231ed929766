"""Codes and sessions, with a clock that the test moves."""

from __future__ import annotations

from datetime import timedelta
from hmac import compare_digest

import pytest
from page_harness import ADMIN, CountingEntropy
from stopped_clock import StoppedClock

from setpoint.meta.errors import TooManyRequests
from setpoint.web.sessions import CodeRefused, PageUser, Sessions

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


class File:
    def __init__(self, data: bytes = b"") -> None:
        self.data = data
        self.writes = 0

    def read(self) -> bytes:
        return self.data

    def write(self, data: bytes) -> None:
        self.data = data
        self.writes += 1


def sessions(clock: StoppedClock | None = None, file: File | None = None) -> Sessions:
    return Sessions(clock or StoppedClock(), CountingEntropy(), file)


def test_a_code_lets_one_browser_in() -> None:
    found = sessions()
    code = found.new_code(ADMIN)
    key, session = found.redeem(code)
    assert session.user == ADMIN and found.find(key) is session
    with pytest.raises(CodeRefused, match="was used already"):
        found.redeem(code)


def test_secrets_are_long_and_fit_into_urls() -> None:
    found = sessions()
    code = found.new_code(ADMIN)
    key, _ = found.redeem(code)
    assert len(code) * 5 >= 128 and code.isalnum() and code.islower()
    assert len(key) * 6 >= 256 and key.replace("-", "").replace("_", "").isalnum()


async def test_a_code_expires_after_ten_minutes() -> None:
    clock = StoppedClock()
    found = sessions(clock)
    early, late = found.new_code(ADMIN), found.new_code(ADMIN)
    await clock.advance(10 * MINUTE - 1)
    found.redeem(early)
    await clock.advance(1)
    with pytest.raises(CodeRefused, match="has expired"):
        found.redeem(late)


async def test_twenty_wrong_codes_pause_for_a_minute() -> None:
    clock = StoppedClock()
    found = sessions(clock)
    code = found.new_code(ADMIN)
    for number in range(20):
        with pytest.raises(CodeRefused, match="is not valid"):
            found.redeem(f"guess-{number}")
    with pytest.raises(TooManyRequests) as refused:
        found.redeem("guess-20")
    assert refused.value.retry_after == 61
    found.redeem(code)  # the owner of the link is not kept out
    await clock.advance(60)
    with pytest.raises(CodeRefused, match="is not valid"):
        found.redeem("guess-21")


def test_a_used_link_is_no_guess() -> None:
    found = sessions()
    code = found.new_code(ADMIN)
    found.redeem(code)
    for _ in range(40):
        with pytest.raises(CodeRefused, match="was used already"):
            found.redeem(code)
    found.redeem(found.new_code(ADMIN))


async def test_a_session_ends_twelve_hours_after_its_last_use() -> None:
    clock = StoppedClock()
    found = sessions(clock)
    key, _ = found.redeem(found.new_code(ADMIN))
    for _ in range(3):
        await clock.advance(11 * HOUR)
        assert found.find(key) is not None
    await clock.advance(12 * HOUR)
    assert found.find(key) is None


async def test_a_session_ends_after_a_week_however_much_it_is_used() -> None:
    clock = StoppedClock()
    found = sessions(clock)
    key, session = found.redeem(found.new_code(ADMIN))
    closed = []
    session.tabs.add(lambda: closed.append("tab"))
    for _ in range(27):
        await clock.advance(6 * HOUR)
        assert found.find(key) is session
    await clock.advance(6 * HOUR)
    assert found.find(key) is None and closed == ["tab"]


def test_revocation_closes_tabs_and_voids_codes() -> None:
    found = sessions()
    key, session = found.redeem(found.new_code(ADMIN))
    code, closed = found.new_code(ADMIN), []
    session.tabs.add(lambda: closed.append("tab"))
    assert found.revoke() == 1
    assert closed == ["tab"] and found.find(key) is None and found.is_over(session)
    with pytest.raises(CodeRefused):
        found.redeem(code)


def test_the_file_has_no_secret_and_keeps_sessions_over_restarts() -> None:
    file = File()
    found = sessions(file=file)
    code = found.new_code(ADMIN)
    key, _ = found.redeem(code)
    found.new_code(ADMIN)
    assert key.encode() not in file.data and code.encode() not in file.data
    again = sessions(file=file).find(key)
    assert again is not None and again.user == ADMIN


def test_a_session_of_another_user_does_not_continue() -> None:
    """The settings of the server may have changed: sessions of an administrator must not survive `--page-user`."""
    file = File()
    found = sessions(file=file)
    key, _ = found.redeem(found.new_code(ADMIN))
    viewer = PageUser("viewer")
    assert Sessions(StoppedClock(), CountingEntropy(), file, lambda user: user == viewer).find(key) is None


@pytest.mark.parametrize(
    "data", [b"{", b"[1]", b'[{"id":"x"}]', b"\xff", b'[{"id":"x","user":"u","groups":[],"digest":"zz"}]']
)
def test_a_damaged_file_has_no_sessions(data: bytes) -> None:
    found = sessions(file=File(data))
    assert found.find("key") is None
    found.redeem(found.new_code(ADMIN))


async def test_uses_are_written_rarely() -> None:
    clock, file = StoppedClock(), File()
    found = sessions(clock, file)
    key, _ = found.redeem(found.new_code(ADMIN))
    before = file.writes
    for _ in range(600):
        await clock.advance(1)
        found.find(key)
    assert file.writes == before + 1


async def test_codes_and_sessions_are_bounded() -> None:
    clock = StoppedClock()
    found = sessions(clock)
    first = found.new_code(ADMIN)
    for _ in range(16):
        found.new_code(ADMIN)
    with pytest.raises(CodeRefused):
        found.redeem(first)
    keys = []
    for _ in range(65):
        keys.append(found.redeem(found.new_code(ADMIN))[0])
        await clock.advance(1)
    assert found.find(keys[0]) is None, "the session that was idle for longest is dropped"
    assert all(found.find(key) for key in keys[1:])


def test_an_open_tab_protects_a_session_from_newer_ones() -> None:
    found = sessions()
    key, session = found.redeem(found.new_code(ADMIN))
    session.tabs.add(lambda: None)
    for _ in range(70):
        found.redeem(found.new_code(ADMIN))
    assert found.find(key) is session


def test_every_comparison_is_made_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes of codes are compared, all of them, whichever is right: time says nothing about a code."""
    compared: list[tuple[int, int]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return compare_digest(one, other)

    monkeypatch.setattr("setpoint.web.secret_digests.compare_digest", compare)
    for position in range(3):
        found = sessions()
        codes = [found.new_code(ADMIN) for _ in range(3)]
        compared.clear()
        found.redeem(codes[position])
        assert compared == [(32, 32)] * 3
    with pytest.raises(CodeRefused):
        found.redeem(codes[0][:-1])


def test_expiry_is_known() -> None:
    clock = StoppedClock()
    found = sessions(clock)
    _, session = found.redeem(found.new_code(ADMIN))
    assert session.expires == clock.now() + timedelta(hours=12)
