"""`create rolebinding` and `create clusterrolebinding`."""

from __future__ import annotations

from typing import Any

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import array, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.verbs.create.making import FLAGS, begin, metadata

GROUP = "rbac.authorization.k8s.io"
_SUBJECTS = (
    array("user", help="Usernames to bind; repeat the flag for several.", attribute="users"),
    array("group", help="Groups to bind; repeat the flag for several."),
    array("serviceaccount", help="Service accounts to bind, each as <namespace>:<name>; repeat the flag for several."),
)


async def run_role_binding(invocation: Invocation) -> None:
    making = begin(invocation)
    flags = invocation.flags
    if not making.name:
        raise Failed("name must be specified")
    if bool(flags.clusterrole) == bool(flags.role):
        raise Failed("exactly one of clusterrole or role must be specified")
    kind, role = ("Role", flags.role) if flags.role else ("ClusterRole", flags.clusterrole)
    binding = {
        "kind": "RoleBinding",
        "apiVersion": f"{GROUP}/v1",
        "metadata": metadata(invocation, making.name),
        **_subjects(invocation),
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
    }
    await making.finish(binding, "failed to create rolebinding: ")


async def run_cluster_role_binding(invocation: Invocation) -> None:
    making = begin(invocation)
    binding = {
        "kind": "ClusterRoleBinding",
        "apiVersion": f"{GROUP}/v1",
        "metadata": metadata(invocation, making.name, namespaced=False),
        **_subjects(invocation),
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": invocation.flags.clusterrole},
    }
    await making.finish(binding, "failed to create clusterrolebinding: ")


def _subjects(invocation: Invocation) -> dict[str, Any]:
    found = [{"kind": "User", "apiGroup": GROUP, "name": user} for user in invocation.flags.users]
    found += [{"kind": "Group", "apiGroup": GROUP, "name": group} for group in invocation.flags.group]
    for account in invocation.flags.serviceaccount:
        namespace, _, name = account.partition(":")
        if not (namespace and name) or ":" in name:
            raise Failed("serviceaccount must be <namespace>:<name>")
        found.append({"kind": "ServiceAccount", "name": name, "namespace": namespace})
    return {"subjects": found} if found else {}


ROLE_BINDING = Command(
    "Create a role binding for a particular role or cluster role",
    run_role_binding,
    (
        *FLAGS,
        text("clusterrole", help="ClusterRole this RoleBinding should reference"),
        text("role", help="Role this RoleBinding should reference"),
        *_SUBJECTS,
    ),
    usage="NAME --clusterrole=NAME|--role=NAME [--user=username] [--group=groupname] "
    "[--serviceaccount=namespace:serviceaccountname] [--dry-run=server|client|none]",
    examples="""
    setpoint create rolebinding admins --clusterrole=admin --user=ann --group=ops

    setpoint create rolebinding robots --role=reader --serviceaccount=monitoring:robot
    """,
)
CLUSTER_ROLE_BINDING = Command(
    "Create a cluster role binding for a particular cluster role",
    run_cluster_role_binding,
    (
        *FLAGS,
        text("clusterrole", help="ClusterRole this ClusterRoleBinding should reference", required=True),
        *_SUBJECTS,
    ),
    usage="NAME --clusterrole=NAME [--user=username] [--group=groupname] "
    "[--serviceaccount=namespace:serviceaccountname] [--dry-run=server|client|none]",
    examples="""
    setpoint create clusterrolebinding owners --clusterrole=cluster-admin --group=owners
    """,
)
