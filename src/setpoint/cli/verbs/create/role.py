"""`create role` and `create clusterrole`."""

from __future__ import annotations

from typing import Any

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import Flag, texts
from setpoint.cli.invocation import Invocation
from setpoint.cli.verbs.create import rules
from setpoint.cli.verbs.create.making import FLAGS, begin, metadata

_API = "rbac.authorization.k8s.io/v1"
_URL_VERBS = ("*", "get", "post", "put", "delete", "patch", "head", "options")


async def run_role(call: Invocation) -> None:
    making = begin(call)
    if not making.name:
        raise Failed("name must be specified")
    verbs, parts = rules.verbs_of(call), rules.parts_of(call)
    if not verbs:
        raise Failed("at least one verb must be specified")
    if not parts:
        raise Failed("at least one resource must be specified")
    await rules.check_resources(call, verbs, parts)
    role = {"kind": "Role", "apiVersion": _API, "metadata": metadata(call, making.name)}
    await making.finish(role | {"rules": await rules.rules_of(call, verbs, parts)})


async def run_cluster_role(call: Invocation) -> None:
    making = begin(call)
    if not making.name:
        raise Failed("name must be specified")
    verbs, parts = rules.verbs_of(call), rules.parts_of(call)
    urls, labels = tuple(dict.fromkeys(call.flags.non_resource_url)), _pairs(call.flags.aggregation_rule)
    role: dict[str, Any] = {
        "kind": "ClusterRole",
        "apiVersion": _API,
        "metadata": metadata(call, making.name, namespaced=False),
    }
    if labels:
        if urls or verbs or parts or call.flags.resource_name:
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
            await rules.check_resources(call, verbs, parts)
        _check_urls(verbs if urls else [], urls)
        role["rules"] = await rules.rules_of(call, verbs, parts, urls)
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
    "aggregation-rule", "", (), "An aggregation label selector for combining ClusterRoles.", str, "mapStringString",
    many="list",
)  # fmt: skip
ROLE = Command(
    "Create a role with single rule",
    run_role,
    (*FLAGS, *rules.FLAGS),
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
        *rules.FLAGS,
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
