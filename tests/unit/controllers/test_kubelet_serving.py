"""A node gets a serving certificate for the names that it reports, and for no name that belongs to others."""

from __future__ import annotations

import hashlib
from ipaddress import ip_address

import pytest
from certificate_requests import ENCIPHER, ONLY, REQUESTS, SERVING, SIGN, a_request, certificate
from cryptography import x509

from setpoint.client.client import Client
from setpoint.client.resources import builtin
from setpoint.cluster.node_tokens import ensure_node_rights
from setpoint.controllers.certificate_issuing import parsed
from setpoint.controllers.kubelet_serving import CONTROL_PLANE, Names, node_names, problem, requested_by
from setpoint.meta.errors import Forbidden
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

BINDINGS = builtin("clusterrolebindings", "rbac.authorization.k8s.io")


def node(name: str, *addresses: str) -> Obj:
    found = [{"type": "InternalIP", "address": each} for each in addresses]
    status = {"addresses": [*found, {"type": "Hostname", "address": name}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def names(*texts: str) -> list[x509.GeneralName]:
    dns = [x509.DNSName(text) for text in texts if not text[0].isdigit()]
    return [*dns, *(x509.IPAddress(ip_address(text)) for text in texts if text[0].isdigit())]


def serving(*texts: str, node: str = "n1") -> Obj:
    usages = [SIGN, ENCIPHER, "server auth"]
    return a_request(f"system:node:{node}", "system:nodes", names(*texts), SERVING, usages)


def as_node(cluster: VirtualCluster, name: str = "n1") -> Client:
    groups = ("system:nodes", "system:authenticated")
    return cluster.embedded.components.clients.client(f"system:node:{name}", groups, agent="kubelet")


async def is_signed(cluster: VirtualCluster, seconds: float = 30.0) -> bool:
    await cluster.sleep(seconds)
    return bool((await cluster.client.get(REQUESTS, "csr"))["status"].get("certificate"))


@virtual(**ONLY)
async def test_a_node_gets_a_certificate_for_its_own_names(cluster: VirtualCluster) -> None:
    await ensure_node_rights(cluster.client)
    await cluster.client.create(node("n1", "10.0.0.7"))
    await as_node(cluster).create(serving("n1", "10.0.0.7"))
    assert await is_signed(cluster)
    found = (await certificate(cluster)).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in found] == ["n1", "10.0.0.7"]
    (condition,) = (await cluster.client.get(REQUESTS, "csr"))["status"]["conditions"]
    assert condition["message"] == "Auto approving kubelet serving certificate after SubjectAccessReview."


@virtual(**ONLY)
async def test_a_request_waits_until_the_node_reports_its_address(cluster: VirtualCluster) -> None:
    await ensure_node_rights(cluster.client)
    await as_node(cluster).create(serving("n1", "10.0.0.7"))
    assert not await is_signed(cluster)
    await cluster.client.create(node("n1", "10.0.0.7"))
    assert await is_signed(cluster, 60.0)


@virtual(**ONLY)
async def test_others_than_the_node_get_none(cluster: VirtualCluster) -> None:
    """The administrator may do anything, but the request is not one of the node."""
    await ensure_node_rights(cluster.client)
    await cluster.client.create(node("n1", "10.0.0.7"))
    await cluster.client.create(serving("n1", "10.0.0.7"))
    assert not await is_signed(cluster)


@virtual(**ONLY)
async def test_nothing_is_approved_where_no_node_may_join(cluster: VirtualCluster) -> None:
    await cluster.client.create(node("n1", "10.0.0.7"))
    await as_node(cluster).create(serving("n1", "10.0.0.7"))
    assert not await is_signed(cluster)


@virtual(**ONLY)
async def test_an_administrator_can_turn_it_off(cluster: VirtualCluster) -> None:
    await ensure_node_rights(cluster.client)
    binding = await cluster.client.get(BINDINGS, "setpoint:node-serving-certificates")
    await cluster.client.update({**binding, "subjects": []})
    await ensure_node_rights(cluster.client)  # as the next token does
    await cluster.client.create(node("n1", "10.0.0.7"))
    await as_node(cluster).create(serving("n1", "10.0.0.7"))
    assert not await is_signed(cluster)


@virtual(**ONLY)
async def test_the_names_of_the_api_server_are_never_signed(cluster: VirtualCluster) -> None:
    """A node writes its own status, so it may claim any address."""
    await ensure_node_rights(cluster.client)
    digest = hashlib.sha256(b"server").hexdigest()[:8]
    labels = {"apiserver.kubernetes.io/identity": "kube-apiserver", "kubernetes.io/hostname": "control-1"}
    meta = {"name": f"apiserver-{digest}", "namespace": "kube-system", "labels": labels}
    await cluster.client.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": {}})
    await cluster.client.create(node("control-1", "10.0.0.7"))
    await as_node(cluster, "control-1").create(serving("control-1", "10.0.0.7", node="control-1"))
    assert not await is_signed(cluster, 600.0)
    marked = {"metadata": {"labels": {CONTROL_PLANE: ""}}}
    with pytest.raises(Forbidden):
        await as_node(cluster, "control-1").patch(builtin("nodes"), "control-1", marked)
    await cluster.client.patch(builtin("nodes"), "control-1", marked)
    assert await is_signed(cluster, 600.0)


NODES = [node("n1", "10.0.0.7", "fd00::7"), node("n2", "10.0.0.8")]
SERVERS, SERVICES = Names.of(["10.0.0.1", "control-1"]), Names.of(["10.96.0.1"])


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (["n1", "10.0.0.7"], ""),
        (["N1.", "fd00:0::7"], ""),
        (["10.0.0.9"], "the Node n1 does not report 10.0.0.9"),
        (["n2"], "the Node n1 does not report n2"),
        (["10.0.0.1"], "10.0.0.1 belongs to an API server"),
        (["10.96.0.1"], "10.96.0.1 belongs to the Service kubernetes"),
        (["control-1"], "control-1 belongs to an API server"),
        (["kubernetes"], "the name kubernetes is reserved"),
        (["kubernetes.default.svc"], "the name kubernetes.default.svc is reserved"),
        (["a.svc.example.org"], "the name a.svc.example.org is reserved"),
        (["localhost"], "the name localhost is reserved"),
        (["*.n1"], r"the name \*.n1 is reserved"),
        (["127.0.0.1"], "the address 127.0.0.1 is not that of one machine"),
        (["169.254.1.1"], "the address 169.254.1.1 is not that of one machine"),
    ],
)
def test_names_that_a_node_may_have(wanted: list[str], why: str) -> None:
    claimed = node(
        "n1", *(each for each in wanted if each[0].isdigit() and why.endswith(("server", "machine", "kubernetes")))
    )
    nodes = [claimed, NODES[1]] if why.endswith(("server", "machine", "kubernetes")) else NODES
    assert problem("n1", Names.of(wanted), nodes, SERVERS, SERVICES) == why.replace("\\", "")


def test_a_request_is_that_of_the_node_itself() -> None:
    request = parsed(serving("n1"))
    groups = ["system:nodes", "system:authenticated"]
    assert requested_by({"username": "system:node:n1", "groups": groups}, request) == "n1"
    assert requested_by({"username": "system:node:n2", "groups": groups}, request) == ""
    assert requested_by({"username": "system:node:n1", "groups": groups[1:]}, request) == ""
    assert requested_by({"username": "admin", "groups": groups}, request) == ""


def test_an_address_that_two_nodes_report_is_not_signed() -> None:
    nodes = [*NODES, node("n3", "10.0.0.7")]
    assert problem("n1", Names.of(["10.0.0.7"]), nodes, SERVERS, SERVICES) == "the Node n3 reports 10.0.0.7 too"
    marked = node("n6", "10.0.0.1", "10.96.0.1")
    marked["metadata"]["labels"] = {CONTROL_PLANE: ""}
    assert problem("n6", Names.of(["10.0.0.1"]), [marked], SERVERS, SERVICES) == ""
    refused = problem("n6", Names.of(["10.96.0.1"]), [marked], SERVERS, SERVICES)
    assert refused == "10.96.0.1 belongs to the Service kubernetes"
    assert problem("n4", Names.of(["10.0.0.7"]), nodes, SERVERS, SERVICES) == "there is no Node n4"
    assert node_names({"metadata": {"name": "n5"}}) == Names()
