"""Authorization of the content of writes: parameters of policies, admin access to devices, parts of a claim's
status."""

from __future__ import annotations

from typing import Any

import pytest
from server_harness import LIMITED_TOKEN, ServerHarness

GROUP = "rbac.authorization.k8s.io"
RBAC = f"/apis/{GROUP}/v1"
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
LIMITED = "&{limited limited-uid [some-group system:authenticated] map[]}"


async def allow(harness: ServerHarness, group: str, resource: str, *verbs: str, names: tuple[str, ...] = ()) -> None:
    rule = {"apiGroups": [group], "resources": [resource], "verbs": verbs, "resourceNames": names}
    name = f"may-{verbs[0]}-{resource}".replace("/", "-").replace("*", "all").replace(":", "-")
    await harness.make(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
    reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
    subject = {"kind": "User", "name": "limited"}
    await harness.make(
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


async def test_a_param_kind_requires_read_permission(harness: ServerHarness) -> None:
    path = f"{REGISTRATION}/validatingadmissionpolicies"
    await allow(harness, "admissionregistration.k8s.io", "*", "create", "update", "patch")
    reply = await harness.post(path, policy("p", CONFIG_MAPS), token=LIMITED_TOKEN)
    assert (reply.status, reply.message) == (
        422,
        'ValidatingAdmissionPolicy.admissionregistration.k8s.io "p" is invalid: spec.paramKind: Forbidden: user '
        f'{LIMITED} must have "get" permission on all objects of the referenced paramKind (kind=ConfigMap, '
        "apiVersion=v1)",
    )
    assert (await harness.post(path, policy("p", None), token=LIMITED_TOKEN)).status == 201
    change = {"spec": {"paramKind": CONFIG_MAPS}}
    assert (await harness.patch(f"{path}/p", change, token=LIMITED_TOKEN)).status == 422
    assert (await harness.patch(f"{path}/p", change)).status == 200
    touched = {"metadata": {"labels": {"a": "b"}}}
    assert (await harness.patch(f"{path}/p", touched, token=LIMITED_TOKEN)).status == 200
    await allow(harness, "", "configmaps", "get")
    assert (await harness.post(path, policy("q", CONFIG_MAPS), token=LIMITED_TOKEN)).status == 201


@pytest.mark.parametrize(
    ("named", "reference", "said"),
    [
        ("p", {"name": "mine", "namespace": "default"}, ""),
        (
            "p",
            {"name": "other", "namespace": "default"},
            f'user {LIMITED} does not have "get" permission on the object referenced by paramRef',
        ),
        ("p", {"selector": {}}, f'user {LIMITED} does not have "list" permission on the object referenced by paramRef'),
        (
            "far",
            {"name": "mine"},
            "unable to resolve paramKind &{x.example.com/v1 X} to determine minimum required permissions and user "
            f'{LIMITED} does not have "get" permission for all groups, versions and resources',
        ),
        (
            "nosuch",
            {"name": "mine"},
            f"unable to get policy nosuch to determine minimum required permissions and user {LIMITED} does not have "
            '"get" permission for all groups, versions and resources',
        ),
    ],
)
async def test_a_param_ref_requires_read_permission(
    harness: ServerHarness, named: str, reference: dict[str, Any], said: str
) -> None:
    path = f"{REGISTRATION}/validatingadmissionpolicybindings"
    await allow(harness, "admissionregistration.k8s.io", "*", "create", "patch")
    await allow(harness, "", "configmaps", "get", names=("mine",))
    await harness.make(f"{REGISTRATION}/validatingadmissionpolicies", policy("p", CONFIG_MAPS))
    far = policy("far", {"apiVersion": "x.example.com/v1", "kind": "X"})
    await harness.make(f"{REGISTRATION}/validatingadmissionpolicies", far)
    reply = await harness.post(path, binding(named, **reference), token=LIMITED_TOKEN)
    if said:
        refused = 'ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io "b" is invalid: spec.paramRef: '
        assert reply.message == f"{refused}Forbidden: {said}"
        assert (await harness.post(path, binding(named, **reference))).status == 201, "administrators may"
    else:
        assert reply.status == 201


def claim(**exactly: Any) -> dict[str, Any]:
    request = {"name": "r", "exactly": {"deviceClassName": "c"} | exactly}
    return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}


async def test_admin_access_requires_a_namespace_label(harness: ServerHarness) -> None:
    templates = CLAIMS.replace("claims", "claimtemplates")
    wanted = claim(adminAccess=True)
    template = {"metadata": {"name": "t"}, "spec": {"spec": wanted["spec"]}}
    for path, obj in ((CLAIMS, wanted), (templates, template)):
        reply = await harness.post(path, obj)
        assert (reply.status, reply.json["details"]["causes"]) == (
            422,
            [
                {
                    "reason": "FieldValueForbidden",
                    "field": "spec.devices.requests[0].adminAccess",
                    "message": "Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` "
                    "label on the containing namespace",
                }
            ],
        )
    allocation = {"devices": {"results": [device() | {"request": "r", "adminAccess": True}]}}
    await harness.make(CLAIMS, claim())
    reply = await harness.patch(f"{CLAIMS}/c/status", {"status": {"allocation": allocation}})
    assert reply.json["details"]["causes"][0]["field"] == "status.allocation.devices.results[0].adminAccess"
    await harness.delete(f"{CLAIMS}/c")
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    await harness.patch("/api/v1/namespaces/default", label)
    await harness.make(CLAIMS, wanted)
    await harness.make(templates, template)


def device(driver: str = "d1") -> dict[str, Any]:
    return {"driver": driver, "pool": "p", "device": "d"}


ALLOCATED = {"allocation": {"devices": {"results": [device() | {"request": "r"}]}}}


async def change(harness: ServerHarness, status: dict[str, Any]) -> str:
    """Return the errors of a change, or "" if there are none."""
    reply = await harness.patch(f"{CLAIMS}/c/status?dryRun=All", {"status": status}, token=LIMITED_TOKEN)
    return "" if reply.status == 200 else reply.message.partition(": Forbidden: ")[2]


async def test_parts_of_a_claims_status_require_permissions(harness: ServerHarness) -> None:
    await allow(harness, "resource.k8s.io", "resourceclaims/status", "patch")
    await harness.make(CLAIMS, claim())
    assert await change(harness, ALLOCATED) == (
        'changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="patch" '
        'permission: resourceclaims.resource.k8s.io is forbidden: User "limited" cannot patch resource '
        '"resourceclaims/binding" in API group "resource.k8s.io" at the cluster scope'
    )
    await harness.patch(f"{CLAIMS}/c/status", {"status": ALLOCATED})
    assert await change(harness, {}) == ""
    assert "resourceclaims/binding" in await change(
        harness, {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}
    )
    assert "resourceclaims/binding" in await change(harness, {"allocation": None})
    assert await change(harness, {"devices": [device()]}) == (
        'changing status.devices requires resource="resourceclaims/driver", verb="[arbitrary-node:patch]" permission: '
        'resourceclaims.resource.k8s.io "d1" is forbidden: User "limited" cannot arbitrary-node:patch resource '
        '"resourceclaims/driver" in API group "resource.k8s.io" in the namespace "default"'
    )
    await allow(harness, "resource.k8s.io", "resourceclaims/driver", "arbitrary-node:patch", names=("d1",))
    assert await change(harness, {"devices": [device()]}) == ""
    await allow(harness, "resource.k8s.io", "resourceclaims/binding", "patch")
    assert await change(harness, {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}) == ""


async def test_a_driver_on_the_node_needs_fewer_permissions(harness: ServerHarness) -> None:
    account = "system:serviceaccount:default:driver"
    rule = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/status"], "verbs": ["patch"]}
    here = rule | {"resources": ["resourceclaims/driver"], "verbs": ["associated-node:patch"]}
    await harness.make(f"{RBAC}/clusterroles", {"metadata": {"name": "driver"}, "rules": [rule, here]})
    reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": "driver"}
    subject = {"kind": "ServiceAccount", "name": "driver", "namespace": "default"}
    await harness.make(
        f"{RBAC}/clusterrolebindings", {"metadata": {"name": "driver"}, "roleRef": reference, "subjects": [subject]}
    )
    await harness.make(CLAIMS, claim())
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    selector = {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}}
    await harness.patch(f"{CLAIMS}/c/status", {"status": {"allocation": ALLOCATED["allocation"] | selector}})
    for node, status in (("n1", 200), ("n2", 422)):
        headers = {"impersonate-user": account, "impersonate-extra-authentication.kubernetes.io%2fnode-name": node}
        reply = await harness.patch(
            f"{CLAIMS}/c/status?dryRun=All", {"status": {"devices": [device()]}}, headers=headers
        )
        assert reply.status == status, reply.body
