"""Sessions of the page: one-time codes, keys, expiry, revocation, limits.

A code lets one browser in, once, within ten minutes. The browser trades it for a key, of which the server keeps a hash
only. A session ends twelve hours after its last use, a week after it began, or when it is revoked. Sessions outlive the
server's process if a file for them is given.
"""

from __future__ import annotations

from base64 import b32encode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol

import orjson

from setpoint.meta.clock import Clock
from setpoint.meta.errors import TooManyRequests, Unauthorized
from setpoint.meta.times import format_micro, parse_time
from setpoint.meta.token_bucket import TokenBucket
from setpoint.web.secret_digests import digest_of, same_digest

CODE_LIFETIME: Final = timedelta(minutes=10)
IDLE_LIFETIME: Final = timedelta(hours=12)
LIFETIME: Final = timedelta(days=7)
MAX_TABS: Final = 16
"""Number of open tabs of one session."""
_MAX_CODES, _MAX_SESSIONS, _MAX_USED = 16, 64, 64
"""Numbers after which the oldest codes, the sessions that were idle for longest, and the oldest used codes are
dropped."""
_MAX_ATTEMPTS, _PAUSE = 20, 60.0
"""Number of wrong codes after which further ones are answered with 429 for so many seconds."""
_SAVE_INTERVAL: Final = timedelta(minutes=10)
"""Time after which a use of a session is written to the file."""
_CODE_BYTES, _KEY_BYTES, _ID_BYTES = 16, 32, 4


class PageUser(NamedTuple):
    """The user as whom a session acts."""

    name: str
    groups: tuple[str, ...] = ()


class SessionFile(Protocol):
    """Keeps the sessions over restarts. It holds no key, but only its owner may read it."""

    def read(self) -> bytes:
        """Return what was written last; empty if there is nothing."""
        ...

    def write(self, data: bytes) -> None: ...


class CodeRefused(Unauthorized):
    """The code of a link is not valid: it was used, it has expired, or it never was one."""


@dataclass(slots=True, eq=False)
class Session:
    id: str
    """A short identifier, which logs and audit records may show."""
    user: PageUser
    digest: bytes
    """SHA-256 of the key."""
    created: datetime
    used: datetime
    tabs: set[Callable[[], None]] = field(default_factory=set)
    """Functions that close the open tabs of the session because it has ended."""
    openings: TokenBucket | None = None
    """Limits how often tabs are opened; None before the first."""
    uploads: TokenBucket | None = None
    """Limits how much its tabs send, in large pieces; None before the first."""

    @property
    def expires(self) -> datetime:
        return min(self.used + IDLE_LIFETIME, self.created + LIFETIME)


class _Code(NamedTuple):
    digest: bytes
    user: PageUser
    expires: datetime


class Sessions:
    """The codes and sessions of one page server."""

    def __init__(
        self,
        clock: Clock,
        entropy: Callable[[int], bytes],
        file: SessionFile | None = None,
        may_continue: Callable[[PageUser], bool] = lambda user: True,
        most: int = _MAX_SESSIONS,
    ) -> None:
        """`entropy` returns so many unguessable bytes. A session from the file continues if `may_continue` returns True
        for its user: the settings of the server may have changed. `most` is the number of sessions."""
        self._most = most
        self._clock = clock
        self._entropy = entropy
        self._file = file
        self._may_continue = may_continue
        self._codes: list[_Code] = []
        self._used: list[bytes] = []
        """Digests of codes that were used: a used link is distinguished from an unknown one."""
        self._sessions: list[Session] | None = None
        """None until the file was read: most starts of a server are not followed by a visit."""
        self._saved = clock.now()
        self._wrong = 0
        self._paused_until = float("-inf")

    def new_code(self, user: PageUser) -> str:
        """Return a code that lets one browser in as this user."""
        code = b32encode(self._entropy(_CODE_BYTES)).decode().rstrip("=").lower()
        self._codes.append(_Code(digest_of(code), user, self._clock.now() + CODE_LIFETIME))
        del self._codes[:-_MAX_CODES]
        return code

    def redeem(self, code: str) -> tuple[str, Session]:
        """Return the key of a new session. Raises CodeRefused, or TooManyRequests after many wrong codes; a right one
        is accepted all the same, so that a guesser cannot lock the user out."""
        digest, now = digest_of(code), self._clock.now()
        # Every code is compared, in constant time: how long it takes does not depend on which one is right.
        matches = [each for each in self._codes if same_digest(each.digest, digest)]
        if not matches:
            if [each for each in self._used if same_digest(each, digest)]:
                raise CodeRefused("This link was used already. `setpoint page` prints a new one.")
            self._count_wrong()
            raise CodeRefused("This link is not valid. `setpoint page` prints a new one.")
        found = matches[0]
        self._codes.remove(found)
        if found.expires <= now:
            raise CodeRefused("This link has expired. `setpoint page` prints a new one.")
        self._wrong = 0
        self._used = [*self._used, digest][-_MAX_USED:]
        return self.begin(found.user)

    def begin(self, user: PageUser) -> tuple[str, Session]:
        """Return the key of a new session of a user who was let in. The session that was idle for longest ends if there
        are too many."""
        now = self._clock.now()
        key = urlsafe_b64encode(self._entropy(_KEY_BYTES)).decode().rstrip("=")
        session = Session(self._entropy(_ID_BYTES).hex(), user, digest_of(key), now, now)
        sessions = self._current()
        if len(sessions) >= self._most:
            self.end(min(sessions, key=lambda each: (bool(each.tabs), each.used)))
        sessions.append(session)
        self._save()
        return key, session

    def find(self, key: str) -> Session | None:
        """Return the session of a key, and note that it is used; None if there is none."""
        digest, now = digest_of(key), self._clock.now()
        matches = [each for each in self._current() if same_digest(each.digest, digest)]
        if not matches:
            return None
        self.touch(matches[0], now)
        return matches[0]

    def touch(self, session: Session, now: datetime | None = None) -> None:
        """Note that a session is used."""
        session.used = now or self._clock.now()
        if session.used - self._saved >= _SAVE_INTERVAL:
            self._save()

    def is_over(self, session: Session) -> bool:
        return session not in self._current()

    def end(self, session: Session) -> None:
        """End a session and close its tabs."""
        sessions = self._loaded()
        if session in sessions:
            sessions.remove(session)
            self._save()
        for close in tuple(session.tabs):
            close()

    def end_of(self, user: PageUser) -> None:
        """End all sessions of a user."""
        for session in [each for each in self._current() if each.user == user]:
            self.end(session)

    def revoke(self) -> int:
        """End all sessions, close all tabs, and forget all codes. Return the number of sessions."""
        sessions = self._current()
        ended = tuple(sessions)
        sessions.clear()
        self._codes.clear()
        self._save()
        for session in ended:
            self.end(session)
        return len(ended)

    def save(self) -> None:
        """Write the file, if the sessions were ever read."""
        if self._sessions is not None:
            self._save()

    def _count_wrong(self) -> None:
        """Count a wrong code. Raises TooManyRequests for a while after many of them."""
        left = self._paused_until - self._clock.monotonic()
        if left > 0:
            raise TooManyRequests.of("Too many links were wrong. Wait a minute and try again.", int(left) + 1)
        self._wrong += 1
        if self._wrong >= _MAX_ATTEMPTS:
            self._wrong = 0
            self._paused_until = self._clock.monotonic() + _PAUSE

    def _current(self) -> list[Session]:
        """Return the sessions that have not expired."""
        sessions, now = self._loaded(), self._clock.now()
        for session in [each for each in sessions if each.expires <= now]:
            self.end(session)
        return sessions

    def _loaded(self) -> list[Session]:
        if self._sessions is None:
            self._sessions = _decoded(self._file.read() if self._file is not None else b"")[-self._most :]
            self._sessions = [each for each in self._sessions if self._may_continue(each.user)]
        return self._sessions

    def _save(self) -> None:
        self._saved = self._clock.now()
        if self._file is not None:
            self._file.write(_encoded(self._loaded()))


def _encoded(sessions: list[Session]) -> bytes:
    return orjson.dumps(
        [
            {
                "id": each.id,
                "user": each.user.name,
                "groups": each.user.groups,
                "digest": each.digest.hex(),
                "created": format_micro(each.created),
                "used": format_micro(each.used),
            }
            for each in sessions
        ],
        option=orjson.OPT_APPEND_NEWLINE,
    )


def _decoded(data: bytes) -> list[Session]:
    """Return the sessions of a file; a damaged file has none."""
    try:
        return [
            Session(
                str(each["id"]),
                PageUser(str(each["user"]), tuple(map(str, each["groups"]))),
                bytes.fromhex(each["digest"]),
                parse_time(each["created"]),
                parse_time(each["used"]),
            )
            for each in (orjson.loads(data) if data else [])
        ]
    except (ValueError, LookupError, TypeError):
        return []
