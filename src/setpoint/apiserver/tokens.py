"""Service account tokens: their keys, their claims, and whether a presented token is valid.

A token is valid while its signature, issuer, audience and times are, and while the service account and the object that
it is bound to exist with the same uid. The signature is verified once per token; everything else is checked each time
against the watch caches, so that a deletion takes effect at once.

The signing key is generated at its first use, and stored in a file that only its owner can read, or only in memory.
"""

from __future__ import annotations

import os
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from hmac import compare_digest
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.filters.authenticate import AUTHENTICATED, CREDENTIAL, TokenRefused, Verified
from setpoint.apiserver.filters.impersonate import service_account
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.clock import Clock
from setpoint.meta.decode_report import describe
from setpoint.meta.goformat import quote_all
from setpoint.meta.jose import BadSignature, TokenKey, UnknownKey, VerifyingKey, base64url_decode
from setpoint.meta.json_syntax import DuplicateKey, read_strictly
from setpoint.meta.times import parse_time

_LEGACY_CLAIM = "kubernetes.io/serviceaccount/"
_MAX_SECONDS = 2.0**63
"""Limit of a 64-bit number of seconds."""
LEGACY_ISSUER = "kubernetes/serviceaccount"
_EXTRA = "authentication.kubernetes.io/"
_LEEWAY = 60.0
"""Tolerated clock skew in seconds."""
_MAX_CACHED_TOKENS = 4096
_INVALIDATED = "service account token has been invalidated"
_INVALID_SINCE = "kubernetes.io/legacy-token-invalid-since"
LAST_USED = "kubernetes.io/legacy-token-last-used"


class SigningKey(TokenKey):
    """The signing key. A generated key is RSA, which every client supports."""

    def __init__(self, path: Path | None, *, generate: bool = True) -> None:
        """The key exists only in memory if `path` is None. A missing file is created if `generate` is set."""
        super().__init__(self.pem)
        self._path = path
        self._generate = generate
        self._in_memory = b""

    def pem(self) -> bytes:
        if self._path is None:
            self._in_memory = self._in_memory or _generated_key()
            return self._in_memory
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            if not self._generate:
                raise
            return self._make(self._path)

    def _make(self, path: Path) -> bytes:
        pem = _generated_key()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        temporary.unlink(missing_ok=True)  # a leftover file may have any mode
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())
        try:
            # Unlike a rename, a link never replaces the key that another server has just created.
            os.link(temporary, path)
        except FileExistsError:
            pem = path.read_bytes()
        finally:
            temporary.unlink()
        return pem


def _generated_key() -> bytes:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

    return generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


class TokenKeys:
    """The signing key, and all keys that verify tokens: also earlier ones, and those of other issuers."""

    def __init__(self, signing: TokenKey, verifying_keys: Callable[[], Sequence[VerifyingKey]] | None = None) -> None:
        """`verifying_keys` is called at the first use; None means that only the signing key verifies tokens."""
        self.signing = signing
        self._verifying_keys = verifying_keys

    @cached_property
    def verifying(self) -> tuple[VerifyingKey, ...]:
        return (self.signing,) if self._verifying_keys is None else tuple(self._verifying_keys())

    def open(self, token: str) -> bytes | None:
        """Return the claims of a token with a valid signature, or None if it is no JWT. Raises UnknownKey,
        BadSignature."""
        refusal: UnknownKey | BadSignature = UnknownKey()
        for key in self.verifying:
            try:
                return key.open(token)
            except UnknownKey:
                continue
            except BadSignature as error:
                refusal = error
        raise refusal

    @property
    def published(self) -> list[dict[str, str]]:
        return [key.published for key in self.verifying]

    @property
    def algorithms(self) -> list[str]:
        return sorted({key.algorithm for key in self.verifying})


def claimed_issuer(token: str) -> str:
    """Return the issuer that a token claims, unverified, or "" if it is no JWT."""
    parts = token.split(".", 3)
    try:
        claims = orjson.loads(base64url_decode(parts[1])) if len(parts) == 3 else None
    except ValueError:
        claims = None
    issuer = claims.get("iss") if isinstance(claims, dict) else None
    return issuer if isinstance(issuer, str) else ""


Claims = dict[str, Any]


def _read_claims(payload: bytes) -> Claims:
    """Decode the claims and check their types. Raises TokenRefused."""
    try:
        claims = read_strictly(payload)
    except DuplicateKey as key:
        raise TokenRefused(f"json: duplicate key '{key}' in object") from None
    except ValueError:
        raise TokenRefused("go-jose/go-jose: error in cryptographic primitive") from None
    if not isinstance(claims, dict):
        raise _type_error(claims, "jwt.Claims")
    for name in claims:
        if name in ("iss", "sub", "jti") or name.startswith(_LEGACY_CLAIM):
            _check_string(claims, name)
    if "aud" in claims:
        claims["aud"] = _audiences(claims["aud"])
    for name in ("exp", "nbf", "iat"):
        _check_time(claims, name)
    private = _object(claims, "kubernetes.io", "serviceaccount.kubernetes")
    _check_string(private, "namespace")
    _check_time(private, "warnafter")
    for name in ("serviceaccount", "pod", "secret", "node"):
        reference = _object(private, name, "serviceaccount.ref")
        _check_string(reference, "name")
        _check_string(reference, "uid")
    return claims


def _check_string(container: Claims, name: str) -> None:
    """Check that a claim is a string, and remove it if it is null."""
    value = container.get(name)
    if value is None:
        container.pop(name, None)
    elif not isinstance(value, str):
        raise _type_error(value, "string")


def _object(container: Claims, name: str, go: str) -> Claims:
    value = container.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _type_error(value, go)
    return value


def _audiences(value: Any) -> list[str]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise TokenRefused("go-jose/go-jose/jwt: expected string or array value to unmarshal to Audience")
    return given


def _check_time(container: Claims, name: str) -> None:
    value = container.get(name)
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenRefused("go-jose/go-jose/jwt: expected number value to unmarshal NumericDate")
    if name == "exp" and abs(value) >= _MAX_SECONDS:
        # It would overflow in upstream's 64-bit arithmetic.
        raise TokenRefused("service account token has expired")


def _type_error(value: Any, go: str) -> TokenRefused:
    return TokenRefused(f"json: cannot unmarshal {describe(value)} into Go value of type {go}")


Lookup = Callable[[str, str, str], Entry | None]
"""Returns the current object by plural, namespace and name; all are of the core group."""


class Reference(NamedTuple):
    """An object that must still exist with the same uid for a token to be valid."""

    kind: str
    plural: str
    namespace: str
    name: str
    uid: str


class _VerifiedToken:
    """A token whose signature is valid."""

    __slots__ = (
        "audiences",
        "expires",
        "issued",
        "matching",
        "problem",
        "references",
        "requested",
        "secret",
        "seen",
        "starts",
        "user",
    )

    def __init__(self, claims: Claims, references: tuple[Reference, ...], user: UserInfo, secret: str = "") -> None:
        self.audiences: tuple[str, ...] = tuple(claims.get("aud", ()))
        self.requested: Sequence[str] = ()
        self.matching: tuple[str, ...] | None = None
        self.expires, self.starts, self.issued = (claims.get(key) for key in ("exp", "nbf", "iat"))
        self.references = references
        self.user = user
        self.problem = ""
        """A description of the error in its claims; empty if they are valid."""
        self.secret = secret
        """Name of the Secret of a legacy token; empty for others."""
        self.seen: list[Entry | None] = [None] * len(references)
        """The last valid revision of each reference; only another one is checked again."""


class ServiceAccountTokens:
    """Signs and authenticates service account tokens."""

    def __init__(
        self,
        keys: TokenKeys,
        issuers: Sequence[str],
        audiences: Sequence[str],
        lookup: Lookup,
        clock: Clock,
        used: Callable[[str, str], None] = lambda namespace, name: None,
    ) -> None:
        """The first issuer signs, all are accepted. `used(namespace, name)` is called for the Secrets whose tokens are
        used, unless their label names the current day."""
        self.keys = keys
        self._used = used
        self.issuer = issuers[0]
        self._issuers = frozenset((*issuers, LEGACY_ISSUER))
        self.audiences = tuple(audiences)
        self._lookup = lookup
        self._clock = clock
        self._cache: OrderedDict[str, _VerifiedToken] = OrderedDict()

    def sign(self, claims: Claims) -> str:
        claims = {**claims, "iss": claims.get("iss", self.issuer)}
        return self.keys.signing.sign(orjson.dumps(claims, option=orjson.OPT_SORT_KEYS))

    # -- authentication -----------------------------------------------------------------------------------------------

    def verify(self, token: str, audiences: Sequence[str]) -> Verified | None:
        verified = self._cache.get(token)
        if verified is None:
            verified = self._open(token)
            if verified is None:
                return None
            self._cache[token] = verified
            if len(self._cache) > _MAX_CACHED_TOKENS:
                self._cache.popitem(last=False)
        else:
            self._cache.move_to_end(token)
        if verified.matching is None or verified.requested != audiences:
            self._check_audience(verified, audiences)
        assert verified.matching is not None
        if verified.problem:
            raise TokenRefused(verified.problem)
        now = self._clock.now().timestamp()
        if verified.secret:
            self._check_secret(verified, token)
        else:
            _check_times(verified, now)
        self._check_references(verified, now)
        return Verified(verified.user, verified.matching)

    def _check_audience(self, verified: _VerifiedToken, audiences: Sequence[str]) -> None:
        """Check the audience and cache the result: nearly all requests ask for the server's own."""
        token_audiences, requested = verified.audiences or self.audiences, audiences or self.audiences
        matching = tuple(audience for audience in requested if audience in token_audiences)
        if not matching and self.audiences:
            raise TokenRefused(
                f"token audiences {quote_all(token_audiences)} is invalid for the target audiences "
                f"{quote_all(requested)}"
            )
        verified.requested, verified.matching = audiences, matching

    def _open(self, token: str) -> _VerifiedToken | None:
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
        claims = _read_claims(payload)
        if claims["iss"] != LEGACY_ISSUER:
            return _current(claims)
        try:
            return _legacy(claims)
        except TokenRefused as problem:
            verified = _VerifiedToken(claims, (), UserInfo())
            verified.problem = str(problem)
            return verified

    def _check_references(self, verified: _VerifiedToken, now: float) -> None:
        for index, reference in enumerate(verified.references):
            entry = self._lookup(reference.plural, reference.namespace, reference.name)
            if entry is not None and entry is verified.seen[index]:
                continue
            if entry is None:
                raise TokenRefused(_missing_message(reference))
            meta = entry.obj["metadata"]
            if meta["uid"] != reference.uid:
                raise TokenRefused(_replaced_message(reference, meta["uid"]))
            deleted = meta.get("deletionTimestamp")
            if deleted is None:
                verified.seen[index] = entry
            elif verified.secret or parse_time(deleted).timestamp() < now - _LEEWAY:
                raise TokenRefused(_deleted_message(reference))

    def _check_secret(self, verified: _VerifiedToken, token: str) -> None:
        """Check a legacy token, which is valid only while its Secret contains it."""
        namespace, name = verified.references[0].namespace, verified.secret
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
            account = f"{namespace}/{verified.references[0].name}"
            raise TokenRefused(
                f"the token in secret {namespace}/{name} for service account {account} has been marked invalid. Use "
                "tokens from the TokenRequest API or manually created secret-based tokens, or remove the "
                f"'{_INVALID_SINCE}' label from the secret to temporarily allow use of this token"
            )


def _check_times(verified: _VerifiedToken, now: float) -> None:
    if verified.starts is not None and now + _LEEWAY < verified.starts:
        raise TokenRefused("service account token is not valid yet")
    if verified.expires is not None and now - _LEEWAY > verified.expires:
        raise TokenRefused("service account token has expired")
    if verified.issued is not None and now + _LEEWAY < verified.issued:
        raise TokenRefused("service account token is issued in the future")


def _groups(namespace: str) -> tuple[str, ...]:
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)


def _current(claims: Claims) -> _VerifiedToken:
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
        # The node of a token that is bound to a Pod is not checked.
        references.append(Reference("node", "nodes", "", node.get("name", ""), node.get("uid", "")))
    user = UserInfo(f"system:serviceaccount:{namespace}:{name}", uid, _groups(namespace), extra)
    return _VerifiedToken(claims, tuple(references), user)


def _legacy(claims: Claims) -> _VerifiedToken:
    """Read the claims of a legacy token. Raises TokenRefused."""
    subject = claims.get("sub")
    if not subject:
        raise TokenRefused("sub claim is missing")
    found: dict[str, str] = {}
    for claim, shown in (
        ("namespace", "namespace"),
        ("secret.name", "secretName"),
        ("service-account.name", "serviceAccountName"),
        ("service-account.uid", "serviceAccountUID"),
    ):
        found[shown] = claims.get(_LEGACY_CLAIM + claim, "")
        if not found[shown]:
            raise TokenRefused(f"{shown} claim is missing")
    namespace, name, uid = found["namespace"], found["serviceAccountName"], found["serviceAccountUID"]
    if service_account(subject) != (namespace, name):
        raise TokenRefused("sub claim is invalid")
    user = UserInfo(subject, uid, _groups(namespace))
    reference = Reference("ServiceAccount", "serviceaccounts", namespace, name, uid)
    return _VerifiedToken(claims, (reference,), user, found["secretName"])


def _missing_message(reference: Reference) -> str:
    if reference.plural != "serviceaccounts":
        return _INVALIDATED
    if not reference.name:
        return "resource name may not be empty"
    if not reference.namespace:
        return "the server could not find the requested resource"
    return f'serviceaccounts "{reference.name}" not found'


def _replaced_message(reference: Reference, uid: str) -> str:
    kind = reference.kind
    if reference.plural == "serviceaccounts":
        return f"{kind} UID ({uid}) does not match claim ({reference.uid})"
    return f"{kind} UID ({uid}) does not match service account {kind} ref claim ({reference.uid})"


def _deleted_message(reference: Reference) -> str:
    if reference.plural == "serviceaccounts":
        return f"{reference.kind} {reference.namespace}/{reference.name} has been deleted"
    return _INVALIDATED
