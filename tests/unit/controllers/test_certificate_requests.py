"""Certificate signing requests are approved, signed, rejected and cleaned up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from certificate_requests import CA, CLIENT, ENCIPHER, KUBELET, ONLY, REQUESTS, SERVING, SIGN, a_request, certificate
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from setpoint.client.resources import builtin
from setpoint.controllers.certificate_issuing import parsed, refusal
from setpoint.controllers.certificates import is_over
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual
from setpoint.testing.virtual_time import EPOCH

STORES = ("memory", "lagging")
BUNDLES = builtin("clustertrustbundles", "certificates.k8s.io")


async def approve(cluster: VirtualCluster, kind: str = "Approved") -> None:
    csr = await cluster.client.get(REQUESTS, "csr")
    condition = {"type": kind, "status": "True", "reason": "ByHand", "message": "yes"}
    csr["status"] = {"conditions": [condition]}
    await cluster.client.update(csr, subresource="approval")


@virtual(**ONLY)
async def test_an_approved_request_is_signed(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_request(names=[x509.DNSName("a.example")], usages=["client auth", SIGN]))
    await cluster.sleep(1)
    assert not (await cluster.client.get(REQUESTS, "csr"))["status"]
    await approve(cluster)
    await cluster.sleep(1)
    made, now = await certificate(cluster), EPOCH.replace(microsecond=0)
    made.verify_directly_issued_by(x509.load_pem_x509_certificate(CA.encode()))
    assert made.subject.rfc4514_string() == "CN=jane"
    assert made.not_valid_before_utc - now < timedelta(seconds=5) - timedelta(minutes=5)
    assert made.not_valid_after_utc - made.not_valid_before_utc == timedelta(days=365)
    get = made.extensions.get_extension_for_class
    assert list(get(x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert get(x509.KeyUsage).value.digital_signature and not get(x509.KeyUsage).value.key_encipherment
    assert get(x509.BasicConstraints).critical and not get(x509.BasicConstraints).value.ca
    assert get(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName) == ["a.example"]


@pytest.mark.parametrize(
    ("asked", "life"), [(3600, timedelta(minutes=65)), (10 * 3600, timedelta(hours=10)), (10**9, timedelta(days=365))]
)
@virtual(**ONLY)
async def test_the_validity_of_a_certificate(cluster: VirtualCluster, asked: int, life: timedelta) -> None:
    await cluster.client.create(a_request(expirationSeconds=asked))
    await approve(cluster)
    await cluster.sleep(1)
    made = await certificate(cluster)
    assert made.not_valid_after_utc - made.not_valid_before_utc == life


@virtual(**ONLY)
async def test_a_request_that_its_signer_refuses_fails(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_request(usages=["server auth"]))
    await approve(cluster)
    await cluster.sleep(1)
    status = (await cluster.client.get(REQUESTS, "csr"))["status"]
    failed = status["conditions"][1]
    assert (failed["type"], failed["reason"]) == ("Failed", "SignerValidationFailure")
    assert failed["message"] == "invalid usage for client certificate: server auth"
    assert "certificate" not in status


@virtual(**ONLY)
async def test_requests_for_other_signers_are_ignored(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_request(signer="example.com/mine"))
    await approve(cluster)
    await cluster.sleep(60)
    assert "certificate" not in (await cluster.client.get(REQUESTS, "csr"))["status"]


def allow(user: str, permission: str) -> list[Obj]:
    rule = {
        "apiGroups": ["certificates.k8s.io"],
        "resources": [f"certificatesigningrequests/{permission}"],
        "verbs": ["create"],
    }
    group = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": "ask"}, "rules": [rule]},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "ask"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "ask"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        },
    ]


@virtual(**ONLY)
async def test_a_joining_node_with_permission_is_approved(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_request("system:node:n1", "system:nodes", signer=KUBELET))
    await cluster.sleep(5)
    made = await cluster.client.get(REQUESTS, "csr")
    # An administrator in system:masters may do anything; this one requests a certificate for another user.
    assert made["status"]["conditions"][0]["reason"] == "AutoApproved"
    text = "Auto approving kubelet client certificate after SubjectAccessReview."
    assert made["status"]["conditions"][0]["message"] == text
    assert (await certificate(cluster)).subject.rfc4514_string() == "O=system:nodes,CN=system:node:n1"


@virtual(**ONLY)
async def test_a_request_without_permission_is_approved_once_it_is_granted(cluster: VirtualCluster) -> None:
    joiner = cluster.embedded.components.clients.client("joiner", ("system:authenticated",), agent="test")
    for obj in allow("joiner", "none"):
        obj["metadata"]["name"] = "create"
        if "rules" in obj:
            obj["rules"][0]["resources"] = ["certificatesigningrequests"]
        else:
            obj["roleRef"]["name"] = "create"
        await cluster.client.create(obj)
    await joiner.create(a_request("system:node:n1", "system:nodes", signer=KUBELET))
    await cluster.sleep(5)
    assert not (await cluster.client.get(REQUESTS, "csr"))["status"]
    for obj in allow("joiner", "nodeclient"):
        await cluster.client.create(obj)
    await cluster.sleep(30)
    assert (await cluster.client.get(REQUESTS, "csr"))["status"]["certificate"]


@virtual(**ONLY)
async def test_old_requests_are_deleted(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_request())
    await approve(cluster, "Denied")
    unanswered = a_request()
    unanswered["metadata"]["name"] = "unanswered"
    await cluster.client.create(unanswered)
    await cluster.sleep(3000)
    assert len(await cluster.all(REQUESTS, "")) == 2
    await cluster.sleep(4300)
    assert [csr["metadata"]["name"] for csr in await cluster.all(REQUESTS, "")] == ["unanswered"]


SAN = [x509.DNSName("a")]


@pytest.mark.parametrize(
    ("signer", "asked", "why"),
    [
        (KUBELET, {"organization": "other"}, "subject organization is not system:nodes"),
        (KUBELET, {"names": SAN}, "DNS subjectAltNames are not allowed"),
        (KUBELET, {"names": [x509.RFC822Name("a@b")]}, "Email subjectAltNames are not allowed"),
        (KUBELET, {"names": [x509.UniformResourceIdentifier("a:b")]}, "URI subjectAltNames are not allowed"),
        (KUBELET, {"common_name": "n1"}, "subject common name does not begin with system:node:"),
        (KUBELET, {"usages": ["client auth"]}, "usages did not match [client auth digital signature key encipherment]"),
        (KUBELET, {"usages": [SIGN, "client auth"]}, ""),
        (KUBELET, {}, ""),
        (SERVING, {}, "DNS or IP subjectAltName is required"),
        (SERVING, {"names": SAN}, "usages did not match [digital signature key encipherment server auth]"),
        (SERVING, {"names": SAN, "usages": [SIGN, ENCIPHER, "server auth"]}, ""),
        (
            SERVING,
            {"names": SAN, "usages": [SIGN, "server auth"], "common_name": "n1"},
            "subject common name does not begin with system:node:",
        ),
        (CLIENT, {"usages": [SIGN]}, "missing required usage for client certificate: client auth"),
    ],
)
def test_each_signer_refuses_unsuitable_requests(signer: str, asked: Obj, why: str) -> None:
    csr = a_request(**{"common_name": "system:node:n1", "organization": "system:nodes", **asked})
    assert refusal(signer, parsed(csr), csr["spec"]["usages"]) == why


@pytest.mark.parametrize(
    ("kind", "issued", "hours", "over"),
    [
        ("Approved", False, 2, False),
        ("Approved", False, 25, True),
        ("Denied", False, 2, True),
        ("Failed", False, 2, True),
        ("Denied", False, 0.9, False),
        ("", False, 23, False),
        ("", False, 25, True),
    ],
)
def test_when_a_request_may_be_deleted(kind: str, issued: bool, hours: float, over: bool) -> None:
    made = datetime(2026, 1, 1, tzinfo=UTC)
    stamp = made.strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [{"type": kind, "status": "True", "lastUpdateTime": stamp}] if kind else []
    csr = {"metadata": {"name": "csr", "creationTimestamp": stamp}, "status": {"conditions": conditions}}
    assert is_over(csr, made + timedelta(hours=hours)) is over


TRUST: Obj = {
    "nodes": 0,
    "scheduler": False,
    "controllers": ["kube-apiserver-serving-clustertrustbundle-publisher-controller"],
    "controller_options": ControllerOptions(root_ca=CA),
}


@virtual(**TRUST)
async def test_the_ca_certificate_is_published_as_a_trust_bundle(cluster: VirtualCluster) -> None:
    await cluster.sleep(1)
    (bundle,) = await cluster.all(BUNDLES, "")
    name = bundle["metadata"]["name"]
    assert name.startswith("kubernetes.io:kube-apiserver-serving:") and len(name.rpartition(":")[2]) == 24
    assert bundle["spec"]["signerName"] == "kubernetes.io/kube-apiserver-serving"
    old = {**bundle, "metadata": {"name": "kubernetes.io:kube-apiserver-serving:old"}}
    await cluster.client.create(old)
    await cluster.client.delete(BUNDLES, name)
    await cluster.sleep(1)
    assert [found["metadata"]["name"] for found in await cluster.all(BUNDLES, "")] == [name]
