"""`auth can-i`."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import ALL_NAMESPACES
from setpoint.cli.tabwriter import align
from setpoint.client import Resource
from setpoint.meta.errors import NotFound
from setpoint.meta.objects import Obj

_API = "authorization.k8s.io/v1"
_VERBS = (
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "use",
    "bind",
    "impersonate",
    "*",
    "approve",
    "sign",
    "escalate",
    "attest",
)
_URL_VERBS = ("get", "put", "post", "head", "options", "delete", "patch", "*")


async def run(invocation: Invocation) -> int | None:
    flags = invocation.flags
    if flags.list:
        if invocation.args:
            raise Failed("list option must be specified with no arguments")
        if flags.quiet or flags.all_namespaces or flags.subresource:
            raise Failed("list option can't be specified with neither quiet, all-namespaces nor subresource options")
        await _list(invocation)
        return None
    if len(invocation.args) != 2:
        raise Failed(
            "you must specify two arguments: verb resource or verb resource/resourceName.\n"
            "See 'setpoint auth can-i -h' for help and examples."
        )
    verb, what = invocation.args
    attributes = _url(invocation, verb, what) if what.startswith("/") else await _resource(invocation, verb, what)
    if flags.no_headers:
        raise Failed("--no-headers cannot be set without --list specified")
    review = {"apiVersion": _API, "kind": "SelfSubjectAccessReview", "spec": attributes}
    status = (await invocation.client.create(review)).get("status") or {}
    allowed = bool(status.get("allowed"))
    if not flags.quiet:
        reasons = [] if allowed else [status.get("reason"), status.get("evaluationError")]
        invocation.print(" - ".join(["yes" if allowed else "no", *(one for one in reasons if one)]))
    return 0 if allowed else 1


def _url(invocation: Invocation, verb: str, path: str) -> Obj:
    if invocation.flags.subresource:
        raise Failed("--subresource can not be used with NonResourceURL")
    if verb not in _URL_VERBS:
        invocation.print_err(f"Warning: verb '{verb}' is not a known verb\n")
    return {"nonResourceAttributes": {"verb": verb, "path": path}}


async def _resource(invocation: Invocation, verb: str, what: str) -> Obj:
    word, _, name = what.partition("/")
    found = await _found(invocation, word)
    everywhere = invocation.flags.all_namespaces
    if found is not None and not everywhere:
        if not found.namespaced:
            group = f" in group '{found.group}'" if found.group else ""
            invocation.print_err(f"Warning: resource '{found.plural}' is not namespace scoped{group}\n")
        if verb not in _VERBS:
            invocation.print_err(f"Warning: verb '{verb}' is not a known verb\n")
    elif not everywhere and verb not in _VERBS:
        invocation.print_err(f"Warning: verb '{verb}' is not a known verb\n")
    attributes = {
        "namespace": "" if everywhere else invocation.namespace,
        "verb": verb,
        "group": found.group if found else "",
        "resource": found.plural if found else word,
        "subresource": invocation.flags.subresource,
        "name": name,
    }
    return {"resourceAttributes": {key: value for key, value in attributes.items() if value}}


async def _found(invocation: Invocation, word: str) -> Resource | None:
    """Return the resource; None if it is unknown and used as typed."""
    if word == "*":
        return None
    try:
        return await invocation.client.discovery.search(word.lower())
    except NotFound:
        resource, _, group = word.lower().partition(".")
        if word.lower() not in ("users", "groups"):
            where = f" in group '{group}'" if group else ""
            invocation.print_err(f"Warning: the server doesn't have a resource type '{resource}'{where}\n")
        return None


async def _list(invocation: Invocation) -> None:
    # Imported here because most calls check one permission.
    from setpoint.cli.describe.rbac import rule_rows

    review = {"apiVersion": _API, "kind": "SelfSubjectRulesReview", "spec": {"namespace": invocation.namespace}}
    status = (await invocation.client.create(review)).get("status") or {}
    if status.get("incomplete"):
        invocation.print_err(f"Warning: the list may be incomplete: {status.get('evaluationError', '')}")
    rules = [*(status.get("resourceRules") or ()), *(status.get("nonResourceRules") or ())]
    head = [] if invocation.flags.no_headers else [("Resources", "Non-Resource URLs", "Resource Names", "Verbs")]
    rows = ["\t".join(row) for row in [*head, *rule_rows(rules)]]
    if rows:
        invocation.print(align("\n".join(rows), least=6, padding=3))


COMMAND = Command(
    "Check whether an action is allowed",
    run,
    (
        *ALL_NAMESPACES,
        switch("quiet", "q", help="Say nothing, and only end with the exit code."),
        text("subresource", help="A part of the resource, such as log or scale"),
        switch("list", help="Print all that is allowed."),
        switch("no-headers", help="If true, prints allowed actions without headers"),
    ),
    usage="VERB [TYPE | TYPE/NAME | NONRESOURCEURL]",
    examples="""
    # May I create Pods here?
    setpoint auth can-i create pods

    # May somebody else?
    setpoint auth can-i delete deployments.apps --as=ann

    # What may I do?
    setpoint auth can-i --list
    """,
)
