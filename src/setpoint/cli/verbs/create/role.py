"""`create role` and `create clusterrole`."""

from __future__ import annotations

from typing import Any, NamedTuple

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import Flag, array, texts
from setpoint.cli.invocation import Invocation
from setpoint.cli.verbs.create.making import FLAGS, begin, metadata
from setpoint.meta.errors import NotFound
from setpoint.meta.goformat import quote

RULE_FLAGS = (
    texts("verb", help="Verb that applies to the resources contained in the rule"),
    texts("resource", help="Resource that the rule applies to"),
    array("resource-name", help="Resource in the white list that the rule applies to; repeat it for several."),
)
_VERBS = (
    "*",
    "get",
    "delete",
    "list",
    "create",
    "update",
    "patch",
    "watch",
    "proxy",
    "deletecollection",
    "use",
    "bind",
    "escalate",
    "impersonate",
)
_RBAC = "rbac.authorization.k8s.io"
_ONLY_ON = {
    "use": (("policy", "podsecuritypolicies"), ("extensions", "podsecuritypolicies")),
    "bind": ((_RBAC, "roles"), (_RBAC, "clusterroles")),
    "escalate": ((_RBAC, "roles"), (_RBAC, "clusterroles")),
    "impersonate": (
        ("", "users"),
        ("", "serviceaccounts"),
        ("", "groups"),
        ("authentication.k8s.io", "userextras"),
    ),
}


class Part(NamedTuple):
    """A resource as it was typed."""

    group: str
    resource: str
    subresource: str


def verbs_of(invocation: Invocation) -> list[str]:
    """Return the verbs without duplicates; `*` replaces all others."""
    found = list(dict.fromkeys(invocation.flags.verb))
    return ["*"] if "*" in found else found


def parts_of(invocation: Invocation) -> list[Part]:
    found: list[Part] = []
    for word in invocation.flags.resource:
        path, _, subresource = word.partition("/")
        resource, dot, group = path.partition(".")
        part = Part(group, resource, subresource)
        if resource == "*" and not dot and "/" not in word:
            return [part]
        found.append(part)
    return found


async def check_resources(invocation: Invocation, verbs: list[str], parts: list[Part]) -> None:
    """Warn about unusual verbs. Raise Failed for resources that do not exist or do not support these verbs."""
    for verb in verbs:
        if verb not in _VERBS:
            invocation.print_err(f"Warning: '{verb}' is not a standard resource verb")
    for part in parts:
        if not part.resource:
            raise Failed("resource must be specified if apiGroup/subresource specified")
        if part.resource == "*":
            return
        group, resource, known = await _resolved(invocation, part)
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
    invocation: Invocation, verbs: list[str], parts: list[Part], urls: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """Return one rule for each group, and one for the URLs."""
    by_group: dict[str, list[str]] = {}
    for part in parts:
        group, resource, _ = await _resolved(invocation, part)
        found = by_group.setdefault(group, [])
        shown = f"{resource}/{part.subresource}" if part.subresource else resource
        if shown not in found:
            found.append(shown)
    names = list(dict.fromkeys(invocation.flags.resource_name))
    rules: list[dict[str, Any]] = []
    for group in sorted(by_group):
        rule: dict[str, Any] = {"verbs": verbs, "apiGroups": [group], "resources": by_group[group]}
        rules.append(rule | ({"resourceNames": names} if names else {}))
    if urls:
        rules.append({"verbs": verbs, "nonResourceURLs": list(urls)})
    return rules


async def _resolved(invocation: Invocation, part: Part) -> tuple[str, str, bool]:
    if part.resource == "*":
        return part.group, "*", False
    try:
        found = await invocation.client.discovery.search(
            f"{part.resource}.{part.group}" if part.group else part.resource
        )
    except NotFound:
        return part.group, part.resource, False
    return found.group, found.plural, True


_API = "rbac.authorization.k8s.io/v1"
_URL_VERBS = ("*", "get", "post", "put", "delete", "patch", "head", "options")


async def run_role(invocation: Invocation) -> None:
    making = begin(invocation)
    if not making.name:
        raise Failed("name must be specified")
    verbs, parts = verbs_of(invocation), parts_of(invocation)
    if not verbs:
        raise Failed("at least one verb must be specified")
    if not parts:
        raise Failed("at least one resource must be specified")
    await check_resources(invocation, verbs, parts)
    role = {"kind": "Role", "apiVersion": _API, "metadata": metadata(invocation, making.name)}
    await making.finish(role | {"rules": await rules_of(invocation, verbs, parts)})


async def run_cluster_role(invocation: Invocation) -> None:
    making = begin(invocation)
    if not making.name:
        raise Failed("name must be specified")
    verbs, parts = verbs_of(invocation), parts_of(invocation)
    urls, labels = tuple(dict.fromkeys(invocation.flags.non_resource_url)), _pairs(invocation.flags.aggregation_rule)
    role: dict[str, Any] = {
        "kind": "ClusterRole",
        "apiVersion": _API,
        "metadata": metadata(invocation, making.name, namespaced=False),
    }
    if labels:
        if urls or verbs or parts or invocation.flags.resource_name:
            raise Failed(
                "aggregation rule must be specified without nonResourceURLs, verbs, resources or resourceNames"
            )
        role |= {"rules": None, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": labels}]}}
    else:
        if not verbs:
            raise Failed("at least one verb must be specified")
        if not (parts or urls):
            raise Failed("one of resource or nonResourceURL must be specified")
        if parts:
            await check_resources(invocation, verbs, parts)
        _check_urls(verbs if urls else [], urls)
        role["rules"] = await rules_of(invocation, verbs, parts, urls)
    await making.finish(role)


def _check_urls(verbs: list[str], urls: tuple[str, ...]) -> None:
    for verb in verbs:
        if verb not in _URL_VERBS:
            raise Failed(f"invalid verb: '{verb}' for nonResourceURL")
    for url in urls:
        if url == "*":
            continue
        if not url.startswith("/"):
            raise Failed("nonResourceURL should start with /")
        if "*" in url[:-1]:
            raise Failed("nonResourceURL only supports wildcard matches when '*' is at the end")


def _pairs(words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise Failed("malformed pair, expect string=string")
        found[key.strip()] = value.strip()
    return dict(sorted(found.items()))


_AGGREGATION = Flag(
    "aggregation-rule",
    "",
    (),
    "An aggregation label selector for combining ClusterRoles.",
    str,
    "mapStringString",
    many="list",
)
ROLE = Command(
    "Create a role with single rule",
    run_role,
    (*FLAGS, *RULE_FLAGS),
    usage="NAME --verb=verb --resource=resource.group/subresource [--resource-name=resourcename] "
    "[--dry-run=server|client|none]",
    examples="""
    setpoint create role reader --verb=get,list,watch --resource=pods,pods/log
    """,
)
CLUSTER_ROLE = Command(
    "Create a cluster role",
    run_cluster_role,
    (
        *FLAGS,
        *RULE_FLAGS,
        texts("non-resource-url", help="A partial url that user should have access to."),
        _AGGREGATION,
    ),
    usage="NAME --verb=verb --resource=resource.group [--resource-name=resourcename] [--dry-run=server|client|none]",
    examples="""
    setpoint create clusterrole reader --verb=get,list,watch --resource=deployments.apps

    setpoint create clusterrole scraper --verb=get --non-resource-url=/metrics

    # All that the cluster roles with this label allow
    setpoint create clusterrole watching --aggregation-rule="example.com/to-watching=true"
    """,
)
