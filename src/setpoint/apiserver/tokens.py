"""Service account tokens: what they claim, and whether a token that comes back is still good.

A token is good as long as its signature, issuer, audience and times are, and the service account and the object it is
bound to are still there under the same uid. The signature is checked once per token; everything else every time, from
the watch caches, so that a deletion counts at once.
"""

from __future__ import annotations

from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from hmac import compare_digest
from typing import Any, NamedTuple

import orjson

from setpoint.apiserver.claimed_issuer import claimed_issuer
from setpoint.apiserver.filters.authenticate import AUTHENTICATED, CREDENTIAL, TokenRefused, Verified
from setpoint.apiserver.filters.impersonate import service_account
from setpoint.apiserver.signing import BadSignature, TokenKeys, UnknownKey
from setpoint.apiserver.token_claims import Claims, read_claims
from setpoint.apiserver.watch_cache import Entry
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.clock import Clock
from setpoint.meta.goformat import quote_all
from setpoint.meta.times import parse_time

LEGACY_ISSUER = "kubernetes/serviceaccount"
_LEGACY_CLAIM = "kubernetes.io/serviceaccount/"
_EXTRA = "authentication.kubernetes.io/"
_LEEWAY = 60.0
"""Clocks differ."""
_REMEMBERED = 4096
_INVALIDATED = "service account token has been invalidated"
_INVALID_SINCE = "kubernetes.io/legacy-token-invalid-since"
LAST_USED = "kubernetes.io/legacy-token-last-used"

Lookup = Callable[[str, str, str], Entry | None]
"""The current object by plural, namespace and name; all are of the core group."""


class Reference(NamedTuple):
    """Something that must still be there, under the same uid, for a token to be good."""

    kind: str
    plural: str
    namespace: str
    name: str
    uid: str


class _Known:
    """A token whose signature was found good."""

    __slots__ = (
        "asked", "audiences", "expires", "fitting", "issued", "problem", "references", "secret", "seen", "starts",
        "user",
    )  # fmt: skip

    def __init__(self, claims: Claims, references: tuple[Reference, ...], user: UserInfo, secret: str = "") -> None:
        self.audiences: tuple[str, ...] = tuple(claims.get("aud", ()))
        self.asked: Sequence[str] = ()
        self.fitting: tuple[str, ...] | None = None
        self.expires, self.starts, self.issued = (claims.get(key) for key in ("exp", "nbf", "iat"))
        self.references = references
        self.user = user
        self.problem = ""
        """What is wrong with its claims; told to those whom it is for."""
        self.secret = secret
        """Of a token of the old make: where it is kept."""
        self.seen: list[Entry | None] = [None] * len(references)
        """Of each reference the state that was last found good: only another one is looked at again."""


class ServiceAccountTokens:
    def __init__(
        self,
        keys: TokenKeys,
        issuers: Sequence[str],
        audiences: Sequence[str],
        lookup: Lookup,
        clock: Clock,
        used: Callable[[str, str], None] = lambda namespace, name: None,
    ) -> None:
        """The first issuer signs, all are good. `used(namespace, name)` hears of the Secrets whose tokens are used,
        until they say on which day they were."""
        self.keys = keys
        self._used = used
        self.issuer = issuers[0]
        self._issuers = frozenset((*issuers, LEGACY_ISSUER))
        self.audiences = tuple(audiences)
        self._lookup = lookup
        self._clock = clock
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def sign(self, claims: Claims) -> str:
        claims = {**claims, "iss": claims.get("iss", self.issuer)}
        return self.keys.signing.sign(orjson.dumps(claims, option=orjson.OPT_SORT_KEYS))

    # -- authenticating -------------------------------------------------------------------------------------------

    def verify(self, token: str, audiences: Sequence[str]) -> Verified | None:
        known = self._known.get(token)
        if known is None:
            known = self._open(token)
            if known is None:
                return None
            self._known[token] = known
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(token)
        if known.fitting is None or known.asked != audiences:
            self._check_audience(known, audiences)
        assert known.fitting is not None
        if known.problem:
            raise TokenRefused(known.problem)
        now = self._clock.now().timestamp()
        if known.secret:
            self._check_secret(known, token)
        else:
            _check_times(known, now)
        self._check_references(known, now)
        return Verified(known.user, known.fitting)

    def _check_audience(self, known: _Known, audiences: Sequence[str]) -> None:
        """Nearly all requests ask for the server's own: the last answer is remembered."""
        meant, asked = known.audiences or self.audiences, audiences or self.audiences
        fitting = tuple(audience for audience in asked if audience in meant)
        if not fitting and self.audiences:
            text = f"token audiences {quote_all(meant)} is invalid for the target audiences {quote_all(asked)}"
            raise TokenRefused(text)
        known.asked, known.fitting = audiences, fitting

    def _open(self, token: str) -> _Known | None:
        if claimed_issuer(token) not in self._issuers:
            return None
        try:
            payload = self.keys.open(token)
        except UnknownKey:
            raise TokenRefused("invalid signature, no keys found") from None
        except BadSignature:
            raise TokenRefused("go-jose/go-jose: error in cryptographic primitive") from None
        if payload is None:
            return None
        claims = read_claims(payload)
        if claims["iss"] != LEGACY_ISSUER:
            return _current(claims)
        try:
            return _legacy(claims)
        except TokenRefused as problem:
            known = _Known(claims, (), UserInfo())
            known.problem = str(problem)
            return known

    def _check_references(self, known: _Known, now: float) -> None:
        for index, reference in enumerate(known.references):
            entry = self._lookup(reference.plural, reference.namespace, reference.name)
            if entry is not None and entry is known.seen[index]:
                continue
            if entry is None:
                raise TokenRefused(_gone(reference))
            meta = entry.obj["metadata"]
            if meta["uid"] != reference.uid:
                raise TokenRefused(_replaced(reference, meta["uid"]))
            deleted = meta.get("deletionTimestamp")
            if deleted is None:
                known.seen[index] = entry
            elif known.secret or parse_time(deleted).timestamp() < now - _LEEWAY:
                raise TokenRefused(_deleted(reference))

    def _check_secret(self, known: _Known, token: str) -> None:
        """A token without an end is good only as long as the secret that it came from holds it."""
        namespace, name = known.references[0].namespace, known.secret
        entry = self._lookup("secrets", namespace, name)
        if entry is None or "deletionTimestamp" in entry.obj["metadata"]:
            raise TokenRefused("Token has been invalidated")
        held = b64decode((entry.obj.get("data") or {}).get("token", ""))
        if not compare_digest(held, token.encode()):
            raise TokenRefused("Token does not match server's copy")
        labels = entry.obj["metadata"].get("labels") or {}
        now = self._clock.now()
        if labels.get(LAST_USED) not in (f"{now:%Y-%m-%d}", f"{now + timedelta(days=1):%Y-%m-%d}"):
            self._used(namespace, name)
        if labels.get(_INVALID_SINCE):
            account = f"{namespace}/{known.references[0].name}"
            raise TokenRefused(
                f"the token in secret {namespace}/{name} for service account {account} has been marked invalid. Use "
                "tokens from the TokenRequest API or manually created secret-based tokens, or remove the "
                f"'{_INVALID_SINCE}' label from the secret to temporarily allow use of this token"
            )


def _check_times(known: _Known, now: float) -> None:
    if known.starts is not None and now + _LEEWAY < known.starts:
        raise TokenRefused("service account token is not valid yet")
    if known.expires is not None and now - _LEEWAY > known.expires:
        raise TokenRefused("service account token has expired")
    if known.issued is not None and now + _LEEWAY < known.issued:
        raise TokenRefused("service account token is issued in the future")


def _groups(namespace: str) -> tuple[str, ...]:
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)


def _current(claims: Claims) -> _Known:
    private: Mapping[str, Any] = claims.get("kubernetes.io") or {}
    namespace, account = private.get("namespace", ""), private.get("serviceaccount") or {}
    name, uid = account.get("name", ""), account.get("uid", "")
    references = [Reference("service account", "serviceaccounts", namespace, name, uid)]
    extra: dict[str, tuple[str, ...]] = {}
    if claims.get("jti"):
        extra[CREDENTIAL] = (f"JTI={claims['jti']}",)
    node, pod, secret = (private.get(kind) for kind in ("node", "pod", "secret"))
    if node:
        extra[f"{_EXTRA}node-name"] = (node.get("name", ""),)
        if node.get("uid"):
            extra[f"{_EXTRA}node-uid"] = (node["uid"],)
    if secret:
        references.append(Reference("secret", "secrets", namespace, secret.get("name", ""), secret.get("uid", "")))
    if pod:
        references.append(Reference("pod", "pods", namespace, pod.get("name", ""), pod.get("uid", "")))
        extra[f"{_EXTRA}pod-name"], extra[f"{_EXTRA}pod-uid"] = (pod.get("name", ""),), (pod.get("uid", ""),)
    elif node:
        # Of a token bound to a Pod, the node is only told.
        references.append(Reference("node", "nodes", "", node.get("name", ""), node.get("uid", "")))
    user = UserInfo(f"system:serviceaccount:{namespace}:{name}", uid, _groups(namespace), extra)
    return _Known(claims, tuple(references), user)


def _legacy(claims: Claims) -> _Known:
    """Raises TokenRefused."""
    subject = claims.get("sub")
    if not subject:
        raise TokenRefused("sub claim is missing")
    found: dict[str, str] = {}
    for claim, shown in (
        ("namespace", "namespace"), ("secret.name", "secretName"),
        ("service-account.name", "serviceAccountName"), ("service-account.uid", "serviceAccountUID"),
    ):  # fmt: skip
        found[shown] = claims.get(_LEGACY_CLAIM + claim, "")
        if not found[shown]:
            raise TokenRefused(f"{shown} claim is missing")
    namespace, name, uid = found["namespace"], found["serviceAccountName"], found["serviceAccountUID"]
    if service_account(subject) != (namespace, name):
        raise TokenRefused("sub claim is invalid")
    user = UserInfo(subject, uid, _groups(namespace))
    reference = Reference("ServiceAccount", "serviceaccounts", namespace, name, uid)
    return _Known(claims, (reference,), user, found["secretName"])


def _gone(reference: Reference) -> str:
    if reference.plural != "serviceaccounts":
        return _INVALIDATED
    if not reference.name:
        return "resource name may not be empty"
    if not reference.namespace:
        return "the server could not find the requested resource"
    return f'serviceaccounts "{reference.name}" not found'


def _replaced(reference: Reference, uid: str) -> str:
    kind = reference.kind
    if reference.plural == "serviceaccounts":
        return f"{kind} UID ({uid}) does not match claim ({reference.uid})"
    return f"{kind} UID ({uid}) does not match service account {kind} ref claim ({reference.uid})"


def _deleted(reference: Reference) -> str:
    if reference.plural == "serviceaccounts":
        return f"{reference.kind} {reference.namespace}/{reference.name} has been deleted"
    return _INVALIDATED
