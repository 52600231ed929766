"""Certificates of Pods: requested by the node, issued by a signer in the cluster, and refreshed, as the kubelet does.

Keys exist in memory and in the volumes of their Pods only. After a restart of the agent every certificate is requested
again; volumes keep their files until the new one is issued.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.conditions import conditions_of
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.times import parse_time
from setpoint.meta.x509.pem import blocks, encode
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.volumes.interface import SetUpError
from setpoint.reconcile import Controller, Informer, Result
from setpoint.reconcile.events import Recorder

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

log = logging.getLogger("setpoint.node")

_REQUESTS = builtin("podcertificaterequests", "certificates.k8s.io")
_ACCOUNTS = builtin("serviceaccounts")
_ASSUME_DELETED: Final = timedelta(minutes=10)
"""The age from which on a request that the node does not see is taken for deleted."""
_OVERDUE: Final = timedelta(minutes=10)
"""The time after the beginning of the refresh at which a certificate is reported as overdue."""
_MAX_JITTER: Final = 300
"""Seconds by which a refresh is delayed at most, so that certificates are not all requested at the same time."""
_PASS_SECONDS: Final = 60.0
"""Seconds between two looks at a request that is pending, or at a certificate whose refresh may have come."""
_WORKERS: Final = 2
_NOT_ISSUED: Final = "credential bundle is not issued yet"


class Credentials(NamedTuple):
    """A key and the chain of its certificate, each as PEM."""

    key: bytes
    chain: bytes


CredentialsReader = Callable[["Pod", str, int], Credentials]
"""Returns the credentials of a source, given the Pod, the name of the volume and the index of the source in it. Raises
SetUpError while there are none."""


class _Requested(NamedTuple):
    """A request that was created, with its key."""

    key: bytes
    name: str
    abandon_at: datetime


class _Issued(NamedTuple):
    credentials: Credentials
    refresh_at: datetime
    expires_at: datetime


@dataclass(slots=True)
class _Record:
    """The state of one source of a projected volume."""

    requested: _Requested | None = None
    issued: _Issued | None = None
    """The latest certificate. It stays while the next one is requested."""
    refused: str = ""
    """Why the signer denied or failed a request, which is final for the Pod."""
    overdue_reported: bool = False
    expiry_reported: bool = False


class PodCertificates:
    """The certificates of all Pods on the node. Nothing is watched before a Pod needs one."""

    def __init__(
        self,
        node_name: str,
        node: Callable[[], ObjView | None],
        client: Client,
        events: Recorder,
        pool: BlockingPool,
        clock: Clock,
        ids: Ids,
        changed: Callable[[str], None],
    ) -> None:
        """Create the owner of the certificates. `node` returns the Node once it is known. `changed(uid)` is called for
        a Pod whose credentials have changed, or have been refused."""
        self._node_name = node_name
        self._node = node
        self._client = client
        self._events = events
        self._pool = pool
        self._clock = clock
        self._ids = ids
        self._changed = changed
        self._pods: dict[str, Pod] = {}
        """The Pods that need certificates, by uid."""
        self._records: dict[str, _Record] = {}
        """The state of sources by key."""
        self._needed = asyncio.Event()
        self._requests = Informer[Obj](client, _REQUESTS, clock, field_selector=f"spec.nodeName={node_name}")
        self._requests.add_handler(self._request_changed)
        self._controller = Controller("pod-certificates", self._reconcile, clock, workers=_WORKERS)

    async def run(self) -> None:
        """Request and refresh certificates until cancelled."""
        await self._needed.wait()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._requests.run())
            await self._requests.synced.wait()
            tasks.create_task(self._controller.run())

    def track(self, pod: Pod) -> None:
        """Request the certificates of a Pod, and refresh them until `forget`. Takes the current state of the Pod."""
        uid = pod["metadata"]["uid"]
        keys = [*_keys(pod)]
        if not keys:
            return
        known = uid in self._pods
        self._pods[uid] = pod
        self._needed.set()
        if not known:
            self._enqueue(uid)

    def forget(self, uid: str) -> None:
        """Drop the keys and certificates of a Pod."""
        pod = self._pods.pop(uid, None)
        for key in _keys(pod) if pod is not None else ():
            self._records.pop(key, None)

    def credentials(self, pod: Pod, volume: str, index: int) -> Credentials:
        """Return the current credentials of a source; see CredentialsReader."""
        meta = pod["metadata"]
        record = self._records.get(_key(meta["uid"], volume, index))
        if record is None:
            about = f"{meta['namespace']} {meta['name']} {meta['uid']} {volume} {index}"
            raise SetUpError(f"no credentials yet for key={{{about}}}")
        if record.refused:
            raise SetUpError(record.refused)
        if record.issued is None:
            raise SetUpError(_NOT_ISSUED)
        return record.issued.credentials

    # -- internals -----------------------------------------------------------------------------------------------------

    def _enqueue(self, uid: str) -> None:
        pod = self._pods.get(uid)
        for key in _keys(pod) if pod is not None else ():
            self._controller.enqueue(key)

    def _request_changed(self, old: Obj | None, new: Obj | None) -> None:
        self._enqueue(((new or old or {}).get("spec") or {}).get("podUID", ""))

    async def _reconcile(self, key: str) -> Result | None:
        pod = self._pods.get(key.partition("/")[0])
        source = next((each for found, each in _sources(pod) if found == key), None) if pod is not None else None
        if pod is None or source is None:
            self._records.pop(key, None)
            return None
        record = self._records.setdefault(key, _Record())
        if record.requested is not None:
            self._follow(record, record.requested, pod)
        if record.refused or _is_finished(pod):
            return None
        now = self._clock.now()
        if record.issued is not None and record.requested is None and now < record.issued.refresh_at:
            # The clock of the machine may be set meanwhile: look again in time.
            return Result(min((record.issued.refresh_at - now).total_seconds(), _PASS_SECONDS))
        if record.issued is not None:
            self._report_age(record, record.issued, pod)
        if record.requested is None:
            node = self._node()
            if node is None:
                return Result(retry=True)
            record.requested = await self._request(pod, source, node)
        return Result(_PASS_SECONDS)

    def _follow(self, record: _Record, requested: _Requested, pod: Pod) -> None:
        """Take over what the signer decided on a request."""
        about = f"{pod['metadata']['namespace']}/{requested.name}"
        request = self._requests.get(about)
        if request is None:
            if self._clock.now() > requested.abandon_at:
                log.info("PodCertificateRequest %s appears to have been deleted", quote(about))
                record.requested = None
            return
        for condition in conditions_of(request):
            kind = condition.get("type")
            if kind == "Issued":
                record.issued = self._issued(request, requested.key)
                record.requested, record.overdue_reported, record.expiry_reported = None, False, False
            elif kind in ("Denied", "Failed"):
                verb = "denied" if kind == "Denied" else "failed"
                why = f"reason={quote(condition.get('reason', ''))}", f"message={quote(condition.get('message', ''))}"
                record.requested = record.issued = None
                record.refused = f"PodCertificateRequest was permanently {verb}: {' '.join(why)}"
                verb = "was denied" if kind == "Denied" else "failed"
                self._events.warning(pod, kind, f"PodCertificateRequest {about} {verb}, {', '.join(why)}")
            else:
                continue
            self._changed(pod["metadata"]["uid"])
            return

    def _issued(self, request: ObjView, key: bytes) -> _Issued:
        status: ObjView = request["status"]
        # Comments and headers are left out.
        chain = "".join(encode("CERTIFICATE", each.data) for each in blocks(status["certificateChain"].encode()))
        return _Issued(
            Credentials(key, chain.encode()),
            parse_time(status["beginRefreshAt"]) + self._jitter(),
            parse_time(status["notAfter"]),
        )

    def _report_age(self, record: _Record, issued: _Issued, pod: Pod) -> None:
        now = self._clock.now()
        if now > issued.refresh_at + _OVERDUE and not record.overdue_reported:
            self._events.warning(pod, "CertificateOverdueForRefresh", "PodCertificate refresh overdue")
            record.overdue_reported = True
        if now > issued.expires_at and not record.expiry_reported:
            self._events.warning(pod, "CertificateExpired", "PodCertificate expired")
            record.expiry_reported = True

    async def _request(self, pod: Pod, source: ObjView, node: ObjView) -> _Requested:
        meta, account = pod["metadata"], pod["spec"].get("serviceAccountName", "")
        namespace = meta["namespace"]
        found = await self._client.get(_ACCOUNTS, account, namespace)
        key, proof = await self._pool.run(_key_and_proof, source.get("keyType", ""))
        spec: Obj = {
            "signerName": source.get("signerName", ""),
            "podName": meta["name"],
            "podUID": meta["uid"],
            "serviceAccountName": account,
            "serviceAccountUID": found["metadata"]["uid"],
            "nodeName": self._node_name,
            "nodeUID": node["metadata"]["uid"],
            "stubPKCS10Request": b64encode(proof).decode(),
        }
        if source.get("maxExpirationSeconds") is not None:
            spec["maxExpirationSeconds"] = source["maxExpirationSeconds"]
        if source.get("userAnnotations"):
            spec["unverifiedUserAnnotations"] = dict(source["userAnnotations"])
        owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        created = await self._client.create(
            {
                "apiVersion": _REQUESTS.api_version,
                "kind": _REQUESTS.kind,
                "metadata": {"generateName": "req-", "namespace": namespace, "ownerReferences": [owner]},
                "spec": spec,
            }
        )
        created_at = parse_time(created["metadata"]["creationTimestamp"])
        return _Requested(key, created["metadata"]["name"], created_at + _ASSUME_DELETED + self._jitter())

    def _jitter(self) -> timedelta:
        return timedelta(milliseconds=self._ids.below(_MAX_JITTER * 1000))


def _key(uid: str, volume: str, index: int) -> str:
    return f"{uid}/{volume}/{index}"


def _sources(pod: Pod) -> Iterator[tuple[str, ObjView]]:
    """Yield the certificates that a Pod's volumes contain, each with its key."""
    spec: ObjView = pod["spec"]
    for volume in spec.get("volumes") or ():
        for index, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
            if source.get("podCertificate") is not None:
                yield _key(pod["metadata"]["uid"], volume["name"], index), source["podCertificate"]


def _keys(pod: Pod) -> Iterator[str]:
    return (key for key, _ in _sources(pod))


def _is_finished(pod: Pod) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _key_and_proof(key_type: str) -> tuple[bytes, bytes]:
    """Return a new private key as PEM, and an empty PKCS#10 request that it signed. Blocks: an RSA key takes seconds.
    Raise ValueError if the type is unknown."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509 import CertificateSigningRequestBuilder, Name

    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
    digest: SHA256 | SHA384 | SHA512 | None = SHA256()
    match key_type:
        case "RSA3072":
            key = rsa.generate_private_key(65537, 3072)
        case "RSA4096":
            key = rsa.generate_private_key(65537, 4096)
        case "ECDSAP256":
            key = ec.generate_private_key(ec.SECP256R1())
        case "ECDSAP384":
            key, digest = ec.generate_private_key(ec.SECP384R1()), SHA384()
        case "ECDSAP521":
            key, digest = ec.generate_private_key(ec.SECP521R1()), SHA512()
        case "ED25519":
            key, digest = ed25519.Ed25519PrivateKey.generate(), None
        case _:
            raise ValueError(f"unknown key type {quote(key_type)}")
    request = CertificateSigningRequestBuilder().subject_name(Name([])).sign(key, digest)
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return text, request.public_bytes(Encoding.DER)
