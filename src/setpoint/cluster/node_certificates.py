"""The certificates of a node: stored files, requests to the cluster's signers, and renewal.

A certificate and its key are one file, which is replaced atomically, so that they always match. The key is created on
this machine, and is stored before its certificate is requested: a request that was interrupted is continued with the
same key under the same name. `cryptography` is imported in the functions that need it.
"""

from __future__ import annotations

import hashlib
import logging
import os
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from setpoint.client import Client, Unreachable
from setpoint.client.resources import builtin
from setpoint.cluster.certificates import general_name, key_pem
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.conditions import conditions_of
from setpoint.meta.errors import AlreadyExists, ApiError, NotFound
from setpoint.meta.objects import Obj
from setpoint.node.host.blocking import BlockingPool

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

T = TypeVar("T")

log = logging.getLogger("setpoint.node")

CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING_SIGNER: Final = "kubernetes.io/kubelet-serving"
_NODES, _USER = "system:nodes", "system:node:"
_REQUESTS = builtin("certificatesigningrequests", "certificates.k8s.io")
_FIRST_POLL, _LAST_POLL = 0.1, 10.0
REQUEST_TIMEOUT: Final = 900.0
"""Seconds after which a request that was not approved is given up."""
_MIN_RETRY, _MAX_RETRY = 10.0, 300.0
_EARLIEST, _SPREAD = 0.7, 0.2
"""A certificate is renewed after 70 to 90 percent of its life."""
_STEPS: Final = 1 << 20
_CHECK_INTERVAL: Final = 300.0
"""Seconds between two checks whether a certificate is due, because the machine's time and names may change."""


class RequestRefused(Exception):
    """The cluster refused a certificate; the message is one sentence."""


class RequestPending(Exception):
    """The request was not approved in time."""


class KeyPair(NamedTuple):
    certificate: bytes
    """PEM, possibly with intermediate certificates after it."""
    key: bytes
    """PEM."""
    begins: datetime
    ends: datetime
    names: frozenset[str]
    """The DNS names and addresses that the certificate is valid for."""
    subject: str
    """The common name."""

    def renewal(self, ids: Ids) -> datetime:
        """Return when to renew it: at a random time between 70 and 90 percent of its life, so that nodes that joined
        together do not renew together."""
        part = _EARLIEST + _SPREAD * ids.below(_STEPS) / _STEPS
        return self.begins + (self.ends - self.begins) * part


def make_private_directory(path: Path) -> None:
    """Create a directory that only its owner can use. Raises OSError."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.chmod(0o700)


def write_durably(path: Path, data: bytes) -> None:
    """Replace a file atomically; after a power failure it has the old or the new content. At no moment others can read
    it. Raises OSError."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def parse_pair(certificate: bytes, key: bytes) -> KeyPair:
    """Raises ValueError if they are not PEM, or do not belong together."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    found = x509.load_pem_x509_certificate(certificate)
    if load_pem_private_key(key, None).public_key() != found.public_key():
        raise ValueError("the certificate and the key do not belong together")
    names: list[str] = []
    with suppress(x509.ExtensionNotFound):
        extension = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = [str(name.value) for name in extension]
    common = found.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    subject = str(common[0].value) if common else ""
    return KeyPair(certificate, key, found.not_valid_before_utc, found.not_valid_after_utc, frozenset(names), subject)


def read_pair(path: Path) -> KeyPair | None:
    """Return the certificate and key of a file; None if there is none, or it is damaged. Raises OSError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    certificate, begin, rest = data.partition(b"-----BEGIN PRIVATE KEY-----")
    try:
        return parse_pair(certificate, begin + rest)
    except ValueError as error:
        log.warning("%s is damaged: %s", path, error)
        return None


def write_pair(path: Path, certificate: bytes, key: bytes) -> None:
    """Raises OSError."""
    write_durably(path, certificate.rstrip() + b"\n" + key)


# -- requests ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WantedCertificate:
    """A certificate that a node needs."""

    node: str
    signer: str
    names: tuple[str, ...] = ()
    """DNS names and addresses; empty for a client certificate."""

    @property
    def usages(self) -> list[str]:
        purpose = "client auth" if self.signer == CLIENT_SIGNER else "server auth"
        return ["digital signature", purpose]

    def request(self, key: ec.EllipticCurvePrivateKey) -> Obj:
        """Return the CertificateSigningRequest. Its name depends on everything that it contains."""
        from cryptography import x509
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        attributes = [(x509.NameOID.ORGANIZATION_NAME, _NODES), (x509.NameOID.COMMON_NAME, _USER + self.node)]
        subject = x509.Name([x509.RelativeDistinguishedName([x509.NameAttribute(*pair)]) for pair in attributes])
        built = x509.CertificateSigningRequestBuilder(subject)
        if self.names:
            names = [general_name(name) for name in self.names]
            built = built.add_extension(x509.SubjectAlternativeName(names), critical=False)
        public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        content = "\n".join((self.node, self.signer, *self.names)).encode()
        digest = hashlib.sha256(public + content).hexdigest()[:43]
        return {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": f"node-csr-{digest}"},
            "spec": {
                "request": b64encode(built.sign(key, SHA256()).public_bytes(Encoding.PEM)).decode(),
                "signerName": self.signer,
                "usages": self.usages,
            },
        }


async def request_certificate(client: Client, clock: Clock, obj: Obj, timeout: float = REQUEST_TIMEOUT) -> bytes:
    """Create a request, or continue with the one of this name, and return the certificate as PEM. Raises RequestRefused
    if it was denied, RequestPending after `timeout` seconds, ApiError, Unreachable."""
    name, until = obj["metadata"]["name"], clock.monotonic() + timeout
    pause = _FIRST_POLL
    try:
        found = await client.create(obj)
    except AlreadyExists:
        found = await client.get(_REQUESTS, name)
    while True:
        status = found.get("status") or {}
        if status.get("certificate"):
            return b64decode(status["certificate"])
        for condition in conditions_of(found):
            if condition["type"] in ("Denied", "Failed"):
                why = condition.get("message") or condition.get("reason") or "no reason is given"
                raise RequestRefused(f"the certificate request {name} was refused: {why}")
        if clock.monotonic() >= until:
            raise RequestPending(f"the certificate request {name} was not approved")
        await clock.sleep(pause)
        pause = min(pause * 2, _LAST_POLL)
        try:
            found = await client.get(_REQUESTS, name)
        except NotFound:
            raise RequestRefused(f"the certificate request {name} was deleted") from None


class StoredCertificate:
    """A certificate with its key in a file, which is requested and renewed."""

    def __init__(self, path: Path, clock: Clock, ids: Ids, pool: BlockingPool | None = None) -> None:
        """`pool` writes the files; None writes them on the event loop. Raises OSError if the file exists and cannot be
        read."""
        self.path = path
        self._pool = pool
        self._pending = path.with_suffix(".pending.key")
        """The key of a request that has not been answered yet."""
        self._clock = clock
        self._ids = ids
        self._renewal: datetime | None = None
        self.pair: KeyPair | None = None
        self.reload()

    def reload(self) -> None:
        """Read the file. Raises OSError."""
        self._set(read_pair(self.path))

    def _set(self, pair: KeyPair | None) -> None:
        self.pair = pair
        self._renewal = pair.renewal(self._ids) if pair is not None else None

    @property
    def is_valid(self) -> bool:
        return self.pair is not None and self.pair.begins <= self._clock.now() < self.pair.ends

    @property
    def renewal(self) -> datetime:
        """Return when the certificate is to be renewed: now, if there is none."""
        return self._renewal or self._clock.now()

    async def obtain(self, client: Client, wanted: WantedCertificate, timeout: float = REQUEST_TIMEOUT) -> KeyPair:
        """Request a certificate and store it. Raises RequestRefused, RequestPending, ApiError, Unreachable, OSError."""
        key = await self._run(self._pending_key)
        try:
            certificate = await request_certificate(client, self._clock, wanted.request(key), timeout)
            pair = parse_pair(certificate, key_pem(key))
            if pair.ends <= self._clock.now():
                raise RequestRefused("the certificate of an earlier request has expired")
        except (RequestRefused, ValueError):
            await self._run(self._forget_key)  # the next attempt needs a new request, and so a new key
            raise
        await self._run(partial(write_pair, self.path, pair.certificate, pair.key))
        await self._run(self._forget_key)
        self._set(pair)
        return pair

    async def _run(self, call: Callable[[], T]) -> T:
        return call() if self._pool is None else await self._pool.run(call)

    def _forget_key(self) -> None:
        self._pending.unlink(missing_ok=True)

    def _pending_key(self) -> ec.EllipticCurvePrivateKey:
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        make_private_directory(self.path.parent)
        with suppress(FileNotFoundError, ValueError):
            found = load_pem_private_key(self._pending.read_bytes(), None)
            if isinstance(found, ec.EllipticCurvePrivateKey):
                return found
        key = ec.generate_private_key(ec.SECP256R1())
        write_durably(self._pending, key_pem(key))
        return key


async def keep_renewed(
    stored: StoredCertificate,
    client: Client,
    clock: Clock,
    wanted: Callable[[], WantedCertificate | None],
    renewed: Callable[[], Awaitable[None]],
) -> None:
    """Obtain the certificate when it is due, or when it lacks a name that is wanted; never returns. While `wanted`
    returns None nothing is requested. `renewed` is called after each renewal. Raises OSError."""
    pause, reported = _MIN_RETRY, ""
    while True:
        asked = wanted()
        due = (stored.renewal - clock.now()).total_seconds()
        lacks = asked is not None and stored.pair is not None and not set(asked.names) <= stored.pair.names
        if asked is None or (due > 0 and not lacks):
            await clock.sleep(_MIN_RETRY if asked is None else min(max(due, 0.01), _CHECK_INTERVAL))
            continue
        try:
            pair = await stored.obtain(client, asked)
            log.info("the certificate %s is valid until %s", stored.path.name, pair.ends.isoformat())
            pause, reported = _MIN_RETRY, ""
            await renewed()
            continue
        except (RequestRefused, RequestPending, ApiError, Unreachable, ValueError) as error:
            if str(error) != reported:
                reported = str(error)
                log.warning("the certificate %s is not renewed: %s", stored.path.name, reported)
        await clock.sleep(pause)
        pause = min(pause * 2, _MAX_RETRY)
