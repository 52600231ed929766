"""Build the rules of a role from `--verb`, `--resource` and `--resource-name`."""

from __future__ import annotations

from typing import Any, NamedTuple

from setpoint.cli.failures import Failed
from setpoint.cli.flags import array, texts
from setpoint.cli.invocation import Invocation
from setpoint.meta.errors import NotFound
from setpoint.meta.goformat import quote

FLAGS = (
    texts("verb", help="Verb that applies to the resources contained in the rule"),
    texts("resource", help="Resource that the rule applies to"),
    array("resource-name", help="Resource in the white list that the rule applies to; repeat it for several."),
)
_VERBS = ("*", "get", "delete", "list", "create", "update", "patch", "watch", "proxy", "deletecollection", "use",
          "bind", "escalate", "impersonate")  # fmt: skip
_RBAC = "rbac.authorization.k8s.io"
_ONLY_ON = {
    "use": (("policy", "podsecuritypolicies"), ("extensions", "podsecuritypolicies")),
    "bind": ((_RBAC, "roles"), (_RBAC, "clusterroles")),
    "escalate": ((_RBAC, "roles"), (_RBAC, "clusterroles")),
    "impersonate": (
        ("", "users"), ("", "serviceaccounts"), ("", "groups"), ("authentication.k8s.io", "userextras"),
    ),
}  # fmt: skip


class Part(NamedTuple):
    """A resource as it was typed."""

    group: str
    resource: str
    subresource: str


def verbs_of(call: Invocation) -> list[str]:
    """Return the verbs without duplicates; `*` replaces all others."""
    found = list(dict.fromkeys(call.flags.verb))
    return ["*"] if "*" in found else found


def parts_of(call: Invocation) -> list[Part]:
    found: list[Part] = []
    for word in call.flags.resource:
        path, _, subresource = word.partition("/")
        resource, dot, group = path.partition(".")
        part = Part(group, resource, subresource)
        if resource == "*" and not dot and "/" not in word:
            return [part]
        found.append(part)
    return found


async def check_resources(call: Invocation, verbs: list[str], parts: list[Part]) -> None:
    """Warn about unusual verbs. Raise Failed for resources that do not exist or do not support these verbs."""
    for verb in verbs:
        if verb not in _VERBS:
            call.print_err(f"Warning: '{verb}' is not a standard resource verb")
    for part in parts:
        if not part.resource:
            raise Failed("resource must be specified if apiGroup/subresource specified")
        if part.resource == "*":
            return
        group, resource, known = await _resolved(call, part)
        for verb in verbs:
            if verb in _ONLY_ON:
                if (group, resource) not in _ONLY_ON[verb]:
                    raise Failed(f"can not perform '{verb}' on '{resource}' in group '{group}'")
                known = True
        if not known:
            raise Failed(
                f"the server doesn't have a resource type {quote(part.resource)}"
                + (f" in group {quote(part.group)}" if part.group else "")
            )


async def rules_of(
    call: Invocation, verbs: list[str], parts: list[Part], urls: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """Return one rule for each group, and one for the URLs."""
    by_group: dict[str, list[str]] = {}
    for part in parts:
        group, resource, _ = await _resolved(call, part)
        found = by_group.setdefault(group, [])
        shown = f"{resource}/{part.subresource}" if part.subresource else resource
        if shown not in found:
            found.append(shown)
    names = list(dict.fromkeys(call.flags.resource_name))
    rules: list[dict[str, Any]] = []
    for group in sorted(by_group):
        rule: dict[str, Any] = {"verbs": verbs, "apiGroups": [group], "resources": by_group[group]}
        rules.append(rule | ({"resourceNames": names} if names else {}))
    if urls:
        rules.append({"verbs": verbs, "nonResourceURLs": list(urls)})
    return rules


async def _resolved(call: Invocation, part: Part) -> tuple[str, str, bool]:
    if part.resource == "*":
        return part.group, "*", False
    try:
        found = await call.client.discovery.search(f"{part.resource}.{part.group}" if part.group else part.resource)
    except NotFound:
        return part.group, part.resource, False
    return found.group, found.plural, True
