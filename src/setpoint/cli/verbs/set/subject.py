"""`set subject`: set the subjects of role bindings."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import array
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import Target
from setpoint.cli.verbs.create.binding import GROUP
from setpoint.cli.verbs.set.changing import FLAGS, SELECTED, carry_out, check_all, check_local, items
from setpoint.meta.objects import Obj


async def run(invocation: Invocation) -> None:
    found = await items(invocation, invocation.args)
    check_local(invocation)
    check_all(invocation)
    wanted = _subjects(invocation, found)

    def change(obj: Obj) -> Obj:
        if obj.get("kind") not in ("RoleBinding", "ClusterRoleBinding"):
            raise Failed("setting subjects is only supported for RoleBinding/ClusterRoleBinding")
        there = obj.get("subjects") or []
        new = [one for one in wanted if one not in there]
        return {**obj, "subjects": [*there, *new]} if new else obj

    await carry_out(invocation, found, change, "subjects updated", failed="failed to patch subjects to rolebinding: ")


def _subjects(invocation: Invocation, found: list[Target]) -> list[Obj]:
    flags = invocation.flags
    if not (flags.users or flags.group or flags.serviceaccount):
        raise Failed("you must specify at least one value of user, group or serviceaccount")
    subjects = [{"kind": "User", "apiGroup": GROUP, "name": user} for user in sorted(set(flags.users))]
    subjects += [{"kind": "Group", "apiGroup": GROUP, "name": group} for group in sorted(set(flags.group))]
    for account in flags.serviceaccount:
        parts = account.split(":")
        if len(parts) != 2 or not parts[1]:
            raise Failed("serviceaccount must be <namespace>:<name>")
        if not parts[0] and any(one.resource.kind == "ClusterRoleBinding" for one in found):
            raise Failed("serviceaccount must be <namespace>:<name>, namespace must be specified")
    for account in sorted(set(flags.serviceaccount)):
        namespace, _, name = account.partition(":")
        subjects.append({"kind": "ServiceAccount", "name": name, "namespace": namespace or invocation.namespace})
    return subjects


COMMAND = Command(
    "Update the user, group, or service account in a role binding or cluster role binding",
    run,
    (
        *FLAGS,
        *SELECTED,
        array("user", help="Usernames to bind to the role", attribute="users"),
        array("group", help="Groups to bind to the role"),
        array("serviceaccount", help="Service accounts to bind to the role, as <namespace>:<name>"),
    ),
    usage="(-f FILENAME | TYPE NAME) [--user=username] [--group=groupname] "
    "[--serviceaccount=namespace:serviceaccountname] [--dry-run=server|client|none]",
    examples="""
    setpoint set subject rolebinding admins --user=ann --serviceaccount=monitoring:robot
    """,
)
