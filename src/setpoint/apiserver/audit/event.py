"""One event of the audit log: an audit.k8s.io/v1 Event as it is written and sent."""

from __future__ import annotations

import orjson

from setpoint.apiserver.audit.policy import GROUP_VERSION, REQUEST
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj

_HEAD = b'{"kind":"Event","apiVersion":"' + GROUP_VERSION.encode() + b'",'
_TRUNCATED = "audit.k8s.io/truncated"


class AuditEvent:
    """An encoded audit event."""

    __slots__ = ("item", "level")

    def __init__(self, item: bytes, level: int) -> None:
        self.item = item
        """The event as in an EventList: JSON in one line, without kind and apiVersion."""
        self.level = level
        """Index in LEVELS."""

    @property
    def fields(self) -> Obj:
        """The decoded event, decoded again with each access."""
        found: Obj = orjson.loads(self.item)
        return found

    @property
    def line(self) -> bytes:
        return _HEAD + self.item[1:] + b"\n"

    @property
    def size(self) -> int:
        return len(_HEAD) + len(self.item)

    @property
    def has_objects(self) -> bool:
        """Whether the event may contain request and response objects."""
        return self.level >= REQUEST

    def truncated(self) -> AuditEvent:
        """Return the event without request and response objects."""
        fields = {name: value for name, value in self.fields.items() if name not in ("requestObject", "responseObject")}
        fields["annotations"] = {**fields.get("annotations", {}), _TRUNCATED: "true"}
        return AuditEvent(orjson.dumps(fields), self.level)

    @property
    def text(self) -> str:
        """The legacy format: one line of text, without a newline."""
        fields = self.fields
        user, impersonated = fields["user"], fields.get("impersonatedUser")
        name, groups = user.get("username") or "<none>", "<none>"
        if user.get("username") and user.get("groups"):
            groups = _quoted(user["groups"])
        as_user, as_groups = "<self>", "<lookup>"
        if impersonated is not None:
            as_user = impersonated.get("username", "")
            as_groups = _quoted(impersonated["groups"]) if "groups" in impersonated else as_groups
        status = fields.get("responseStatus")
        shown = (
            ("id", fields["auditID"]),
            ("stage", fields["stage"]),
            ("ip", (fields.get("sourceIPs") or ["<unknown>"])[0]),
            ("method", fields["verb"]),
            ("user", name),
            ("groups", groups),
            ("as", as_user),
            ("asgroups", as_groups),
            ("user-agent", fields.get("userAgent", "")),
            ("namespace", fields.get("objectRef", {}).get("namespace") or "<none>"),
            ("uri", fields["requestURI"]),
        )
        response = "<deferred>" if status is None else status.get("code", 0)
        pairs = " ".join(f"{key}={quote(value)}" for key, value in shown)
        return f'{_nano(fields["requestReceivedTimestamp"])} AUDIT: {pairs} response="{response}"'


def _quoted(texts: list[str]) -> str:
    return ",".join(map(quote, texts))


def _nano(micro: str) -> str:
    """Format a time as Go's RFC3339Nano, without trailing zeros."""
    whole, _, fraction = micro[:-1].partition(".")
    fraction = fraction.rstrip("0")
    return f"{whole}.{fraction}Z" if fraction else f"{whole}Z"


def event_list(events: list[AuditEvent]) -> bytes:
    head = b'{"kind":"EventList","apiVersion":"%b","metadata":{},"items":[' % GROUP_VERSION.encode()
    return head + b",".join(event.item for event in events) + b"]}\n"
