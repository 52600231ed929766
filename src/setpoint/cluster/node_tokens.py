"""Bootstrap tokens of nodes, and the objects that let their holders join: as kubeadm creates them.

A node joins with the id and the secret of a bootstrap token, and the pin of the cluster's authority: the SHA-256 hash
of its public key. The token permits to request a client certificate of a node and nothing else, so unlike the join
token of a control plane machine it contains no key.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.cluster.config import ConfigError
from setpoint.cluster.dns_service import ensure_dns_service
from setpoint.kinds.core.secret import NAMESPACE, PREFIX, TOKEN, TYPE, seconds_until_expiry
from setpoint.meta.clock import Clock
from setpoint.meta.errors import AlreadyExists, Conflict, NotFound
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_time

GROUP: Final = "system:bootstrappers:setpoint:default-node-token"
"""The group of users who authenticate with a token of a node."""
CLUSTER_INFO, PUBLIC = "cluster-info", "kube-public"
_NODES: Final = "system:nodes"
_RBAC: Final = "rbac.authorization.k8s.io"
_CERTIFICATES: Final = "certificates.k8s.io"
_REQUESTS: Final = "system:certificates.k8s.io:certificatesigningrequests:"
SERVING_ROLE: Final = "setpoint:kubelet-serving-approver"
_PIN = re.compile(r"sha256:[0-9a-f]{64}")
_SECRETS = builtin("secrets")
_MAPS = builtin("configmaps")


class NodeToken(NamedTuple):
    id: str
    secret: str

    @classmethod
    def create(cls, random: Callable[[int], bytes]) -> NodeToken:
        letters = "abcdefghijklmnopqrstuvwxyz0123456789"
        number, text = int.from_bytes(random(32)), ""
        for _ in range(22):
            number, digit = divmod(number, len(letters))
            text += letters[digit]
        return cls(text[:6], text[6:])

    @classmethod
    def parse(cls, text: str) -> NodeToken:
        """Raises ConfigError if the text is not a bootstrap token."""
        found = TOKEN.fullmatch(text.strip())
        if found is not None:
            return cls(found[1], found[2])
        if text.count(".") > 1:
            raise ConfigError(
                "--token is the token of a control plane machine; `setpoint token create --node` prints one for nodes"
            )
        raise ConfigError("--token is not a bootstrap token; `setpoint token create` on the control plane prints one")

    def __str__(self) -> str:
        return f"{self.id}.{self.secret}"


# -- the pin of the authority -----------------------------------------------------------------------------------------


def public_key_pin(certificate: bytes) -> str:
    """Return the pin of a certificate, which is DER: `sha256:` and the hash of its SubjectPublicKeyInfo in hex, as the
    flag --discovery-token-ca-cert-hash of kubeadm. Raises ValueError."""
    from cryptography import x509  # slow to import
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = x509.load_der_x509_certificate(certificate).public_key()
    return "sha256:" + hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def check_pin(text: str) -> str:
    """Return the pin that a user typed. Raises ConfigError."""
    found = text.strip().lower()
    if not _PIN.fullmatch(found):
        raise ConfigError(
            "--ca must be sha256: and the 64 hexadecimal digits of the hash of the authority's public key; "
            "`setpoint token create` on the control plane prints it"
        )
    return found


# -- objects ----------------------------------------------------------------------------------------------------------


def token_secret(token: NodeToken, expiration: datetime) -> Obj:
    """Return the Secret of a token, which is valid until `expiration`."""
    data = {
        "token-id": token.id,
        "token-secret": token.secret,
        "expiration": format_time(expiration),
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
        "auth-extra-groups": GROUP,
        "description": "joins nodes",
    }
    meta = {"name": PREFIX + token.id, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": TYPE, "stringData": data}


def _group(name: str) -> Obj:
    return {"apiGroup": _RBAC, "kind": "Group", "name": name}


def _cluster_role(name: str, *rules: Obj) -> Obj:
    return {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": list(rules)}


def _cluster_binding(name: str, role: str, subject: Obj) -> Obj:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "subjects": [subject],
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
    }


def _rule(verbs: str, group: str, resources: str, *names: str) -> Obj:
    found: Obj = {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}
    return {**found, "resourceNames": list(names)} if names else found


def node_rights() -> list[Obj]:
    """Return the roles and bindings that nodes need to join, to renew their certificates, and to find the API servers;
    and the rights of the controller that approves their serving certificates."""
    bootstrappers, nodes = _group(GROUP), _group(_NODES)
    get_nodes = "setpoint:get-nodes"
    own, request_serving = "setpoint:bootstrap-signer-clusterinfo", "setpoint:node-serving-certificates"
    local_volumes, dns, network = "setpoint:node-local-volumes", "setpoint:node-dns", "setpoint:node-network"
    controller = {"kind": "ServiceAccount", "name": "certificate-controller", "namespace": "kube-system"}
    meta = {"name": own, "namespace": PUBLIC}
    return [
        _cluster_binding("setpoint:kubelet-bootstrap", "system:node-bootstrapper", bootstrappers),
        _cluster_binding("setpoint:node-autoapprove-bootstrap", f"{_REQUESTS}nodeclient", bootstrappers),
        # A machine that joins must find out whether its name is taken.
        _cluster_role(get_nodes, _rule("get", "", "nodes")),
        _cluster_binding(get_nodes, get_nodes, bootstrappers),
        _cluster_binding("setpoint:node-autoapprove-certificate-rotation", f"{_REQUESTS}selfnodeclient", nodes),
        _cluster_binding("setpoint:node-proxier", "system:node-proxier", nodes),
        # A node removes the directories of provisioned volumes that are not in the list any more.
        _cluster_role(local_volumes, _rule("list", "", "persistentvolumes")),
        _cluster_binding(local_volumes, local_volumes, nodes),
        # Names of Pods exist in namespaces that exist.
        _cluster_role(dns, _rule("list watch", "", "namespaces")),
        _cluster_binding(dns, dns, nodes),
        # NetworkPolicies select peers by the labels of Pods and namespaces of the whole cluster.
        _cluster_role(
            network,
            _rule("list watch", "", "pods namespaces"),
            _rule("list watch", "networking.k8s.io", "networkpolicies"),
        ),
        _cluster_binding(network, network, nodes),
        _cluster_role(request_serving, _rule("create", _CERTIFICATES, "certificatesigningrequests/selfnodeserver")),
        _cluster_binding(request_serving, request_serving, nodes),
        _cluster_role(
            SERVING_ROLE,
            _rule("approve", _CERTIFICATES, "signers", "kubernetes.io/kubelet-serving"),
            # What the addresses of a request are compared with.
            _rule("get list", "", "nodes services"),
            _rule("get list", "discovery.k8s.io", "endpointslices"),
            _rule("get list", "coordination.k8s.io", "leases"),
        ),
        _cluster_binding(SERVING_ROLE, SERVING_ROLE, controller),
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "Role",
            "metadata": meta,
            "rules": [_rule("get", "", "configmaps", CLUSTER_INFO)],
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": "system:anonymous"}],
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": own},
        },
    ]


def cluster_info(url: str, ca: bytes) -> Obj:
    """Return the ConfigMap with the address and the authority of the cluster, which anyone may read. `ca` is PEM."""
    cluster = {"server": url, "certificate-authority-data": b64encode(ca).decode()}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "", "cluster": cluster}],
        "contexts": [],
        "users": [],
        "current-context": "",
        "preferences": {},
    }
    meta = {"name": CLUSTER_INFO, "namespace": PUBLIC}
    data = {"kubeconfig": json.dumps(config, indent=2) + "\n"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


async def ensure_node_rights(client: Client) -> None:
    """Create the roles and bindings that are missing, and the Service of the nodes' DNS servers. Those that exist stay
    as they are: an administrator may have removed a subject."""
    for obj in node_rights():
        with suppress(AlreadyExists):
            await client.create(obj)
    await ensure_dns_service(client)


async def _publish(client: Client, info: Obj) -> None:
    try:
        await client.create(info)
    except AlreadyExists:
        found = await client.get(_MAPS, CLUSTER_INFO, PUBLIC)
        if (found.get("data") or {}).get("kubeconfig") != info["data"]["kubeconfig"]:
            # Signatures of the former content are invalid now.
            await client.update({**found, "data": info["data"]}, resource=_MAPS)


async def create_node_token(
    client: Client, url: str, ca: bytes, ttl: float, clock: Clock, random: Callable[[int], bytes]
) -> NodeToken:
    """Create a token with which nodes join for `ttl` seconds, and all objects that they need for it. Expired tokens are
    deleted. `ca` is the authority as PEM. Raises ApiError."""
    await ensure_node_rights(client)
    await _publish(client, cluster_info(url, ca))
    await _delete_expired(client, clock.now())
    token = NodeToken.create(random)
    await client.create(token_secret(token, clock.now() + timedelta(seconds=ttl)))
    return token


async def _delete_expired(client: Client, now: datetime) -> None:
    for secret in (await client.list(_SECRETS, NAMESPACE, field_selector=f"type={TYPE}")).items:
        meta = secret["metadata"]
        if seconds_until_expiry(secret, now) == 0.0:
            with suppress(NotFound, Conflict):
                await client.delete(_SECRETS, meta["name"], NAMESPACE, uid=meta["uid"])
