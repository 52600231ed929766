"""Unused tokens and old certificate requests are deleted."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from datetime import datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from setpoint.client.resources import builtin
from setpoint.controllers.bootstrap_tokens import detached_signature, signing_token
from setpoint.controllers.serviceaccount import UnusedTokens
from setpoint.kinds.core.secret import seconds_until_expiry
from setpoint.meta.clock import Clock
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_time
from setpoint.reconcile import Manager
from setpoint.system import RandomIds
from setpoint.testing import VirtualCluster, virtual
from setpoint.testing.virtual_time import EPOCH

SECRETS, ACCOUNTS, MAPS, PODS = (
    builtin("secrets"),
    builtin("serviceaccounts"),
    builtin("configmaps"),
    builtin("pods"),
)
REQUESTS = builtin("podcertificaterequests", "certificates.k8s.io")
BOOTSTRAP = virtual(nodes=0, scheduler=False, controllers=["bootstrap-signer-controller", "token-cleaner-controller"])


def token(token_id: str = "abcdef", expires: str = "", signs: str = "true", **data: str) -> Obj:
    text_value = {"token-id": token_id, "token-secret": "0123456789abcdef", "usage-bootstrap-signing": signs, **data}
    if expires:
        text_value["expiration"] = expires
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": f"bootstrap-token-{token_id}", "namespace": "kube-system"},
        "data": {name: b64encode(text.encode()).decode() for name, text in text_value.items()},
    }


@BOOTSTRAP
async def test_cluster_info_is_signed_with_every_signing_token(cluster: VirtualCluster) -> None:
    info = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cluster-info", "namespace": "kube-public"}}
    await cluster.client.create({**info, "data": {"kubeconfig": "the cluster's own word"}})
    soon = format_time(cluster.clock.now() + timedelta(minutes=10))
    await cluster.client.create(token(expires=soon))
    await cluster.client.create(token("silent", signs="false"))
    await cluster.sleep(1)
    data = (await cluster.client.get(MAPS, "cluster-info", "kube-public"))["data"]
    signature = detached_signature("the cluster's own word", "abcdef", "0123456789abcdef")
    assert data == {"kubeconfig": "the cluster's own word", "jws-kubeconfig-abcdef": signature}
    await cluster.sleep(601)
    assert await cluster.find(SECRETS, "bootstrap-token-abcdef", "kube-system") is None
    assert await cluster.find(SECRETS, "bootstrap-token-silent", "kube-system") is not None
    assert "jws-kubeconfig-abcdef" not in (await cluster.client.get(MAPS, "cluster-info", "kube-public"))["data"]


@pytest.mark.parametrize(
    ("secret", "signs"),
    [
        (token(), True),
        (token(signs="yes"), False),
        (token(expires=format_time(EPOCH)), False),
        (token(expires="soon"), False),
        (token(**{"token-id": "uvwxyz"}), False),
        (token(**{"token-secret": ""}), False),
        (token(expires=format_time(EPOCH + timedelta(hours=1))), True),
    ],
)
def test_which_tokens_may_sign(secret: Obj, signs: bool) -> None:
    assert (signing_token(secret, EPOCH) == ("abcdef", "0123456789abcdef")) == signs


def test_when_a_token_expires() -> None:
    assert seconds_until_expiry(token(), EPOCH) is None
    assert seconds_until_expiry(token(expires=format_time(EPOCH + timedelta(minutes=1))), EPOCH) == 60
    assert seconds_until_expiry(token(expires="never"), EPOCH) == 0


def test_a_signature_has_detached_content() -> None:
    """The expected value was computed with `printf` and `openssl dgst -sha256 -hmac`."""
    head, nothing, signature = detached_signature("content", "abcdef", "0123456789abcdef").split(".")
    assert head == "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9" and nothing == ""
    assert signature == "psz1NayrXM3IaFzKZGsb5n_mBl7MjtlsZ1xE8MRmF_4"


# -- old tokens of service accounts -----------------------------------------------------------------------------------


class Later:
    """A clock that is a number of days ahead of a cluster's clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.days = 0

    def now(self) -> datetime:
        return self._clock.now() + timedelta(days=self.days)

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)


@virtual(nodes=0, scheduler=False, controllers=["serviceaccount-controller"])
async def test_an_unused_generated_token_is_marked_invalid_then_deleted(cluster: VirtualCluster) -> None:
    for name in ("old", "asked-for", "used", "mounted"):
        references = [] if name == "asked-for" else [{"name": f"{name}-token"}]
        meta: Obj = {"name": name, "namespace": "default"}
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta, "secrets": references}
        await cluster.client.create(account)
        meta = {**meta, "name": f"{name}-token", "annotations": {"kubernetes.io/service-account.name": name}}
        secret = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token"}
        await cluster.client.create({**secret, "metadata": meta})
    volume = {"name": "v", "secret": {"secretName": "mounted-token"}}
    spec = {
        "volumes": [volume],
        "containers": [{"name": "c", "image": "nginx"}],
        "serviceAccountName": "mounted",
    }
    meta = {"name": "p", "namespace": "default"}
    await cluster.client.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    clock = Later(cluster.clock)
    manager = Manager(cluster.client, clock, RandomIds(5))
    cleaner = UnusedTokens(manager, timedelta(days=365))
    working = asyncio.ensure_future(manager.run())

    async def look(days: int) -> dict[str, str]:
        clock.days = days
        await cluster.sleep(1)
        await cleaner.check_all()
        await cluster.sleep(1)
        return {
            found["metadata"]["name"]: (found["metadata"].get("labels") or {}).get(
                "kubernetes.io/legacy-token-invalid-since", ""
            )
            for found in await cluster.all(SECRETS)
        }

    try:
        assert not any((await look(365)).values()), "nobody has watched for a whole year"
        used = {"kubernetes.io/legacy-token-last-used": "2026-12-01"}
        await cluster.client.patch(SECRETS, "used-token", {"metadata": {"labels": used}}, "default")
        marks = await look(370)
        assert marks.pop("old-token") == "2027-01-06"
        assert len(marks) == 3 and not any(marks.values())
        assert "old-token" in await look(370 + 365)
        assert set(await look(370 + 367)) == {"asked-for-token", "used-token", "mounted-token"}
    finally:
        working.cancel()


# -- certificates of Pods ---------------------------------------------------------------------------------------------


@virtual(nodes=0, scheduler=False, controllers=["podcertificaterequest-cleaner-controller"])
async def test_a_pod_certificate_request_is_deleted_after_15_minutes(cluster: VirtualCluster) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    asked = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, SHA256())
    spec = {
        "signerName": "example.com/x",
        "podName": "p",
        "podUID": "1",
        "serviceAccountName": "s",
        "serviceAccountUID": "2",
        "nodeName": "n",
        "nodeUID": "3",
        "stubPKCS10Request": b64encode(asked.public_bytes(Encoding.DER)).decode(),
    }
    meta = {"name": "r", "namespace": "default"}
    request = {"apiVersion": "certificates.k8s.io/v1", "kind": "PodCertificateRequest", "metadata": meta, "spec": spec}
    await cluster.client.create(request)
    await cluster.sleep(14 * 60)
    assert await cluster.find(REQUESTS, "r") is not None
    await cluster.sleep(7 * 60)
    assert await cluster.find(REQUESTS, "r") is None
