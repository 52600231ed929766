"""Certificates of Pods on a real node: requested with the rights of the node, and issued by a signer of the test."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import NameOID
from local_server import LocalServer
from stopped_clock import StoppedClock, settle
from volume_objects import Objects, Provider, tokens

from setpoint.client import Client, Impersonation
from setpoint.client.resources import builtin
from setpoint.kinds.typed import Pod
from setpoint.meta.clock import Clock
from setpoint.meta.errors import Forbidden
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_time
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.volumes.interface import SetUpError
from setpoint.node.host.volumes.payload import Contents, contents_of
from setpoint.node.host.volumes.pod_certificates import PodCertificates
from setpoint.node.host.volumes.tokens import TokenCache
from setpoint.system import RandomIds

NODE, SIGNER = "n1", "example.com/signer"
REQUESTS = builtin("podcertificaterequests", "certificates.k8s.io")
AUTHORITY = ec.generate_private_key(ec.SECP256R1())
NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
SOURCE: Obj = {
    "signerName": SIGNER,
    "keyType": "ECDSAP256",
    "credentialBundlePath": "bundle.pem",
    "keyPath": "tls/key.pem",
    "certificateChainPath": "tls/chain.pem",
}


@dataclass
class Machine:
    """A node, its Pods and the signer of the cluster."""

    client: Client
    """As the administrator, and as the signer."""
    clock: StoppedClock
    node: Obj
    pool: BlockingPool
    changed: list[str] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)

    # -- the node's side -----------------------------------------------------------------------------------------------

    def warning(self, about: Mapping[str, Any], reason: str, message: str) -> None:
        self.events.append((reason, message))

    def normal(self, about: Mapping[str, Any], reason: str, message: str) -> None:
        raise AssertionError(reason)

    @property
    def node_client(self) -> Client:
        return self.client.named("kubelet", Impersonation(f"system:node:{NODE}", groups=("system:nodes",)))

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[PodCertificates]:
        """Run the certificates of an agent, which has only the rights of the node."""
        clock: Clock = self.clock
        found = PodCertificates(
            NODE, lambda: self.node, self.node_client, self, self.pool, clock, RandomIds(7), self.changed.append
        )
        running = asyncio.ensure_future(found.run())
        try:
            yield found
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def contents(self, agent: PodCertificates, pod: Pod) -> Contents:
        (volume,) = cast("list[Obj]", pod["spec"]["volumes"])
        cache = TokenCache(tokens(self.clock), self.clock)
        return await contents_of(volume, pod, Provider().pod_state, Objects(), cache, agent.credentials)

    # -- the cluster's side --------------------------------------------------------------------------------------------

    async def pod(self, *sources: Obj, **spec: Any) -> Pod:
        projected = {"sources": [{"podCertificate": each} for each in sources], "defaultMode": 0o644}
        container = {"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {
                "nodeName": NODE,
                "serviceAccountName": "app",
                "containers": [container],
                "volumes": [{"name": "v", "projected": projected}],
                **spec,
            },
        }
        return cast(Pod, await self.client.create(body))

    async def requests(self, count: int) -> list[Obj]:
        """Return all requests, oldest first, once there are so many. Keys are made in threads."""
        found: list[Obj] = []
        for _ in range(5000):
            found = [*(await self.client.list(REQUESTS)).items]
            if len(found) >= count:
                break
            await asyncio.sleep(0.002)
        assert len(found) == count
        await settle()
        return sorted(found, key=lambda each: int(each["metadata"]["resourceVersion"]))

    async def issue(self, request: Obj, lifetime: timedelta = timedelta(hours=24)) -> None:
        now = self.clock.now().replace(microsecond=0)
        asked = x509.load_der_x509_csr(b64decode(request["spec"]["stubPKCS10Request"]))
        builder = x509.CertificateBuilder().subject_name(NAME).issuer_name(NAME).public_key(asked.public_key())
        builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + lifetime)
        text = builder.sign(AUTHORITY, hashes.SHA256()).public_bytes(Encoding.PEM).decode()
        times = {"notBefore": now, "notAfter": now + lifetime, "beginRefreshAt": now + lifetime / 2}
        fields = {name: format_time(at) for name, at in times.items()}
        await self.decide(request, "Issued", certificateChain=f"a comment\n{text}", **fields)

    async def decide(self, request: Obj, kind: str, reason: str = "Why", message: str = "", **status: Any) -> None:
        since = format_time(self.clock.now())
        condition = {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": since}
        before = len(self.changed)
        await self.client.update({**request, "status": {"conditions": [condition], **status}}, subresource="status")
        for _ in range(5000):
            if len(self.changed) > before:
                return
            await asyncio.sleep(0.002)
        raise AssertionError("the agent did not follow the signer")


@pytest.fixture
async def machine(local_server: LocalServer) -> AsyncIterator[Machine]:
    client = local_server.client
    node = await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    account = {"name": "app", "namespace": "default"}
    await client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    pool = BlockingPool(2)
    yield Machine(client, local_server.clock, node, pool)
    pool.close()


def certificate_in(contents: Contents) -> x509.Certificate:
    """Return the certificate in the files of the volume, which agree with each other."""
    assert contents.payload is not None, contents.problem
    key, chain = contents.payload["tls/key.pem"].content, contents.payload["tls/chain.pem"].content
    assert contents.payload["bundle.pem"].content == key + chain
    assert chain.startswith(b"-----BEGIN CERTIFICATE-----"), "comments are left out"
    found = x509.load_pem_x509_certificate(chain)
    assert load_pem_private_key(key, None).public_key() == found.public_key()
    return found


async def test_certificate_is_issued_refreshed_and_requested_again_after_a_restart(machine: Machine) -> None:
    pod = await machine.pod({**SOURCE, "maxExpirationSeconds": 86400, "userAnnotations": {"example.com/path": "a"}})
    uid = pod["metadata"]["uid"]
    async with machine.agent() as agent:
        assert (await machine.contents(agent, pod)).problem == f"no credentials yet for key={{default p {uid} v 0}}"
        agent.track(pod)
        (first,) = await machine.requests(1)
        meta, spec = first["metadata"], first["spec"]
        assert meta["name"].startswith("req-")
        assert meta["ownerReferences"] == [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid}]
        assert (spec["podUID"], spec["nodeUID"]) == (uid, machine.node["metadata"]["uid"])
        assert (spec["signerName"], spec["maxExpirationSeconds"]) == (SIGNER, 86400)
        assert spec["unverifiedUserAnnotations"] == {"example.com/path": "a"}
        assert (await machine.contents(agent, pod)).problem == "credential bundle is not issued yet"
        assert machine.changed == []

        await machine.issue(first)
        assert machine.changed == [uid]
        old = await machine.contents(agent, pod)
        certificate_in(old)
        assert {(each.mode, each.user) for each in (old.payload or {}).values()} == {(0o644, None)}
        private = cast(Pod, {**pod, "spec": {**pod["spec"], "securityContext": {"runAsUser": 7}}})
        files = (await machine.contents(agent, private)).payload or {}
        assert [(each.mode, each.user) for each in files.values()] == [(0o600, 7)] * 3

        # The refresh begins after the signer's time, and at most five minutes later.
        await machine.clock.advance(12 * 3600 - 1)
        agent.track(pod)
        await machine.requests(1)
        await machine.clock.advance(6 * 60)
        second = (await machine.requests(2))[1]
        assert second["spec"]["stubPKCS10Request"] != spec["stubPKCS10Request"], "each certificate has its own key"
        assert await machine.contents(agent, pod) == old, "the old certificate is used until the new one is issued"
        await machine.clock.advance(20 * 60)
        assert machine.events == [("CertificateOverdueForRefresh", "PodCertificate refresh overdue")]
        await machine.clock.advance(12 * 3600)
        assert machine.events[1:] == [("CertificateExpired", "PodCertificate expired")]
        await machine.issue(second)
        assert machine.changed == [uid, uid]
        assert certificate_in(await machine.contents(agent, pod)) != certificate_in(old)

    async with machine.agent() as agent:
        agent.track(pod)
        third = (await machine.requests(3))[2]
        await machine.issue(third)
        certificate_in(await machine.contents(agent, pod))
        agent.forget(uid)
        with pytest.raises(SetUpError, match="no credentials yet"):
            agent.credentials(pod, "v", 0)
        await machine.clock.advance(24 * 3600)
        await machine.requests(3)


@pytest.mark.parametrize(("kind", "verb", "told"), [("Denied", "denied", "was denied"), ("Failed", "failed", "failed")])
async def test_refused_request_is_final(machine: Machine, kind: str, verb: str, told: str) -> None:
    pod = await machine.pod(SOURCE)
    async with machine.agent() as agent:
        agent.track(pod)
        (request,) = await machine.requests(1)
        await machine.decide(request, kind, "UnsupportedKeyType", 'use "RSA3072"')
        why = r'reason="UnsupportedKeyType"', r'message="use \"RSA3072\""'
        problem = (await machine.contents(agent, pod)).problem
        assert problem == f"PodCertificateRequest was permanently {verb}: {why[0]} {why[1]}"
        about = f"default/{request['metadata']['name']}"
        assert machine.events == [(kind, f"PodCertificateRequest {about} {told}, {why[0]}, {why[1]}")]
        assert machine.changed == [pod["metadata"]["uid"]]
        await machine.clock.advance(2 * 24 * 3600)
        await machine.requests(1)


async def test_deleted_request_is_replaced_and_finished_pods_need_none(machine: Machine) -> None:
    pod = await machine.pod(SOURCE)
    async with machine.agent() as agent:
        agent.track(pod)
        (request,) = await machine.requests(1)
        await machine.client.delete(REQUESTS, request["metadata"]["name"], "default")
        await machine.clock.advance(10 * 60 - 1)
        await machine.requests(0)
        await machine.clock.advance(7 * 60)
        (again,) = await machine.requests(1)
        assert again["spec"]["stubPKCS10Request"] != request["spec"]["stubPKCS10Request"]
        agent.track(cast(Pod, {**pod, "status": {"phase": "Succeeded"}}))
        await machine.issue(again)
        certificate_in(await machine.contents(agent, pod))
        await machine.clock.advance(24 * 3600)
        await machine.requests(1)


async def test_all_types_of_keys_are_accepted_and_the_node_may_ask_for_its_own_pods_only(machine: Machine) -> None:
    types = ["ECDSAP384", "ECDSAP521", "ED25519", "RSA3072"]
    pod = await machine.pod(*({"signerName": SIGNER, "keyType": each, "keyPath": each} for each in types))
    async with machine.agent() as agent:
        agent.track(pod)
        requests = await machine.requests(len(types))
        for each in requests:
            await machine.issue(each)
        payload = (await machine.contents(agent, pod)).payload
        assert payload is not None
        assert sorted(payload) == types, "only the files that the source names"
        names = {type(load_pem_private_key(each.content, None)).__name__ for each in payload.values()}
        assert names == {"ECPrivateKey", "Ed25519PrivateKey", "RSAPrivateKey"}
        kept = {name: value for name, value in requests[0]["spec"].items() if name != "nodeName"}
        meta = {"generateName": "req-", "namespace": "default"}
        with pytest.raises(Forbidden, match="which is not the requesting node"):
            await machine.node_client.create({**requests[0], "metadata": meta, "spec": {**kept, "nodeName": "n2"}})
