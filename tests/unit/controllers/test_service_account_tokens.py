"""Service account tokens are stored in Secrets."""

from __future__ import annotations

from base64 import b64decode

import orjson
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.jose import TokenKey
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

STORES = ("memory", "lagging")
ACCOUNTS, SECRETS = builtin("serviceaccounts"), builtin("secrets")
PEM = ec.generate_private_key(ec.SECP256R1()).private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
)
KEY = TokenKey(lambda: PEM)
ON = ControllerOptions(root_ca="certificate", service_account_private_key=PEM.decode())


def account(name: str) -> Obj:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}}


def secret(name: str, of: str) -> Obj:
    meta = {"name": name, "namespace": "default", "annotations": {"kubernetes.io/service-account.name": of}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "kubernetes.io/service-account-token"}


@virtual(nodes=0, controller_options=ON)
async def test_a_token_secret_gets_its_token(cluster: VirtualCluster) -> None:
    made = await cluster.client.create(account("robot"))
    await cluster.client.create(secret("robot-token", "robot"))
    await cluster.instant()
    found = await cluster.client.get(SECRETS, "robot-token", "default")
    data = {name: b64decode(value) for name, value in found["data"].items()}
    assert (data["ca.crt"], data["namespace"]) == (b"certificate", b"default")
    claims = orjson.loads(KEY.open(data["token"].decode()) or b"")
    assert claims == {
        "iss": "kubernetes/serviceaccount",
        "sub": "system:serviceaccount:default:robot",
        "kubernetes.io/serviceaccount/namespace": "default",
        "kubernetes.io/serviceaccount/secret.name": "robot-token",
        "kubernetes.io/serviceaccount/service-account.name": "robot",
        "kubernetes.io/serviceaccount/service-account.uid": made["metadata"]["uid"],
    }
    assert found["metadata"]["annotations"]["kubernetes.io/service-account.uid"] == made["metadata"]["uid"]
    again = await cluster.client.patch(SECRETS, "robot-token", {"metadata": {"labels": {"a": "b"}}}, "default")
    await cluster.instant()
    assert (await cluster.client.get(SECRETS, "robot-token", "default"))["data"] == again["data"]


@virtual(nodes=0, controller_options=ON)
async def test_token_secrets_are_deleted_with_their_account(cluster: VirtualCluster) -> None:
    await cluster.client.create(account("robot"))
    await cluster.client.create(secret("robot-token", "robot"))
    await cluster.client.create(secret("nobodys", "ghost"))
    await cluster.instant()
    assert await cluster.find(SECRETS, "nobodys") is None
    await cluster.client.delete(ACCOUNTS, "robot", "default")
    await cluster.instant()
    assert await cluster.find(SECRETS, "robot-token") is None


@virtual(nodes=0, controller_options=ON)
async def test_a_deleted_secret_is_removed_from_its_account(cluster: VirtualCluster) -> None:
    await cluster.client.create({**account("robot"), "secrets": [{"name": "robot-token"}, {"name": "other"}]})
    await cluster.client.create(secret("robot-token", "robot"))
    await cluster.instant()
    await cluster.client.delete(SECRETS, "robot-token", "default")
    await cluster.instant()
    assert (await cluster.client.get(ACCOUNTS, "robot", "default"))["secrets"] == [{"name": "other"}]
