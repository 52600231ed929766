"""What not everybody may write who may write the object: parameters of policies, administrators' access to devices, and
the parts of a claim's status."""

from __future__ import annotations

from typing import Any

import pytest
from front_door import LIMITED_TOKEN, FrontDoor

GROUP = "rbac.authorization.k8s.io"
RBAC = f"/apis/{GROUP}/v1"
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
LIMITED = "&{limited limited-uid [some-group system:authenticated] map[]}"


async def allow(door: FrontDoor, group: str, resource: str, *verbs: str, names: tuple[str, ...] = ()) -> None:
    rule = {"apiGroups": [group], "resources": [resource], "verbs": verbs, "resourceNames": names}
    name = f"may-{verbs[0]}-{resource}".replace("/", "-").replace("*", "all").replace(":", "-")
    await door.make(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
    reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
    subject = {"kind": "User", "name": "limited"}
    await door.make(
        f"{RBAC}/clusterrolebindings", {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    )


def policy(name: str, kind: dict[str, str] | None) -> dict[str, Any]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nosuch"]}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "true"}], "paramKind": kind}
    return {"metadata": {"name": name}, "spec": spec}


def binding(policy_name: str, **reference: Any) -> dict[str, Any]:
    spec = {"policyName": policy_name, "validationActions": ["Deny"]}
    return {"metadata": {"name": "b"}, "spec": spec | {"paramRef": {"parameterNotFoundAction": "Deny"} | reference}}


CONFIG_MAPS = {"apiVersion": "v1", "kind": "ConfigMap"}


async def test_who_names_a_kind_of_parameters_must_be_able_to_read_it(door: FrontDoor) -> None:
    path = f"{REGISTRATION}/validatingadmissionpolicies"
    await allow(door, "admissionregistration.k8s.io", "*", "create", "update", "patch")
    reply = await door.post(path, policy("p", CONFIG_MAPS), token=LIMITED_TOKEN)
    assert (reply.status, reply.message) == (
        422,
        'ValidatingAdmissionPolicy.admissionregistration.k8s.io "p" is invalid: spec.paramKind: Forbidden: user '
        f'{LIMITED} must have "get" permission on all objects of the referenced paramKind (kind=ConfigMap, '
        "apiVersion=v1)",
    )
    assert (await door.post(path, policy("p", None), token=LIMITED_TOKEN)).status == 201
    change = {"spec": {"paramKind": CONFIG_MAPS}}
    assert (await door.patch(f"{path}/p", change, token=LIMITED_TOKEN)).status == 422
    assert (await door.patch(f"{path}/p", change)).status == 200
    touched = {"metadata": {"labels": {"a": "b"}}}
    assert (await door.patch(f"{path}/p", touched, token=LIMITED_TOKEN)).status == 200
    await allow(door, "", "configmaps", "get")
    assert (await door.post(path, policy("q", CONFIG_MAPS), token=LIMITED_TOKEN)).status == 201


@pytest.mark.parametrize(
    ("named", "reference", "said"),
    [
        ("p", {"name": "mine", "namespace": "default"}, ""),
        ("p", {"name": "other", "namespace": "default"},
         f'user {LIMITED} does not have "get" permission on the object referenced by paramRef'),
        ("p", {"selector": {}}, f'user {LIMITED} does not have "list" permission on the object referenced by paramRef'),
        ("far", {"name": "mine"},
         "unable to resolve paramKind &{x.example.com/v1 X} to determine minimum required permissions and user "
         f'{LIMITED} does not have "get" permission for all groups, versions and resources'),
        ("nosuch", {"name": "mine"},
         f"unable to get policy nosuch to determine minimum required permissions and user {LIMITED} does not have "
         '"get" permission for all groups, versions and resources'),
    ],
)  # fmt: skip
async def test_who_refers_to_parameters_must_be_able_to_read_them(
    door: FrontDoor, named: str, reference: dict[str, Any], said: str
) -> None:
    path = f"{REGISTRATION}/validatingadmissionpolicybindings"
    await allow(door, "admissionregistration.k8s.io", "*", "create", "patch")
    await allow(door, "", "configmaps", "get", names=("mine",))
    await door.make(f"{REGISTRATION}/validatingadmissionpolicies", policy("p", CONFIG_MAPS))
    far = policy("far", {"apiVersion": "x.example.com/v1", "kind": "X"})
    await door.make(f"{REGISTRATION}/validatingadmissionpolicies", far)
    reply = await door.post(path, binding(named, **reference), token=LIMITED_TOKEN)
    if said:
        refused = 'ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io "b" is invalid: spec.paramRef: '
        assert reply.message == f"{refused}Forbidden: {said}"
        assert (await door.post(path, binding(named, **reference))).status == 201, "administrators may"
    else:
        assert reply.status == 201


def claim(**exactly: Any) -> dict[str, Any]:
    request = {"name": "r", "exactly": {"deviceClassName": "c"} | exactly}
    return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}


async def test_administrators_access_to_devices_is_for_namespaces_that_say_so(door: FrontDoor) -> None:
    templates = CLAIMS.replace("claims", "claimtemplates")
    wanted = claim(adminAccess=True)
    template = {"metadata": {"name": "t"}, "spec": {"spec": wanted["spec"]}}
    for path, obj in ((CLAIMS, wanted), (templates, template)):
        reply = await door.post(path, obj)
        assert (reply.status, reply.json["details"]["causes"]) == (422, [{
            "reason": "FieldValueForbidden", "field": "spec.devices.requests[0].adminAccess",
            "message": "Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` "
            "label on the containing namespace",
        }])  # fmt: skip
    allocation = {"devices": {"results": [device() | {"request": "r", "adminAccess": True}]}}
    await door.make(CLAIMS, claim())
    reply = await door.patch(f"{CLAIMS}/c/status", {"status": {"allocation": allocation}})
    assert reply.json["details"]["causes"][0]["field"] == "status.allocation.devices.results[0].adminAccess"
    await door.delete(f"{CLAIMS}/c")
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    await door.patch("/api/v1/namespaces/default", label)
    await door.make(CLAIMS, wanted)
    await door.make(templates, template)


def device(driver: str = "d1") -> dict[str, Any]:
    return {"driver": driver, "pool": "p", "device": "d"}


ALLOCATED = {"allocation": {"devices": {"results": [device() | {"request": "r"}]}}}


async def change(door: FrontDoor, status: dict[str, Any]) -> str:
    """What is said against it; empty: nothing."""
    reply = await door.patch(f"{CLAIMS}/c/status?dryRun=All", {"status": status}, token=LIMITED_TOKEN)
    return "" if reply.status == 200 else reply.message.partition(": Forbidden: ")[2]


async def test_each_part_of_a_claims_status_is_somebodys(door: FrontDoor) -> None:
    await allow(door, "resource.k8s.io", "resourceclaims/status", "patch")
    await door.make(CLAIMS, claim())
    assert await change(door, ALLOCATED) == (
        'changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="patch" '
        'permission: resourceclaims.resource.k8s.io is forbidden: User "limited" cannot patch resource '
        '"resourceclaims/binding" in API group "resource.k8s.io" at the cluster scope'
    )
    await door.patch(f"{CLAIMS}/c/status", {"status": ALLOCATED})
    assert await change(door, {}) == ""
    assert "resourceclaims/binding" in await change(
        door, {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}
    )
    assert "resourceclaims/binding" in await change(door, {"allocation": None})
    assert await change(door, {"devices": [device()]}) == (
        'changing status.devices requires resource="resourceclaims/driver", verb="[arbitrary-node:patch]" permission: '
        'resourceclaims.resource.k8s.io "d1" is forbidden: User "limited" cannot arbitrary-node:patch resource '
        '"resourceclaims/driver" in API group "resource.k8s.io" in the namespace "default"'
    )
    await allow(door, "resource.k8s.io", "resourceclaims/driver", "arbitrary-node:patch", names=("d1",))
    assert await change(door, {"devices": [device()]}) == ""
    await allow(door, "resource.k8s.io", "resourceclaims/binding", "patch")
    assert await change(door, {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}) == ""


async def test_a_driver_on_the_node_needs_less(door: FrontDoor) -> None:
    account = "system:serviceaccount:default:driver"
    rule = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/status"], "verbs": ["patch"]}
    here = rule | {"resources": ["resourceclaims/driver"], "verbs": ["associated-node:patch"]}
    await door.make(f"{RBAC}/clusterroles", {"metadata": {"name": "driver"}, "rules": [rule, here]})
    reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": "driver"}
    subject = {"kind": "ServiceAccount", "name": "driver", "namespace": "default"}
    await door.make(
        f"{RBAC}/clusterrolebindings", {"metadata": {"name": "driver"}, "roleRef": reference, "subjects": [subject]}
    )
    await door.make(CLAIMS, claim())
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    selector = {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}}
    await door.patch(f"{CLAIMS}/c/status", {"status": {"allocation": ALLOCATED["allocation"] | selector}})
    for node, status in (("n1", 200), ("n2", 422)):
        headers = {"impersonate-user": account, "impersonate-extra-authentication.kubernetes.io%2fnode-name": node}
        reply = await door.patch(f"{CLAIMS}/c/status?dryRun=All", {"status": {"devices": [device()]}}, headers=headers)
        assert reply.status == status, reply.body
