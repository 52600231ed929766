"""What a cluster came to, without what chance decides: the same for two runs that ended in the same."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection
from typing import Any

from setpoint.client import Client
from setpoint.meta.errors import ApiError

Obj = dict[str, Any]

_LEFT_OUT = {"events", "leases", "componentstatuses", "apiservices", "flowschemas", "prioritylevelconfigurations",
             "clusterroles", "clusterrolebindings", "roles", "rolebindings", "nodes", "csinodes"}  # fmt: skip
"""What tells what happened and not what is, or is no concern of controllers."""
_VOLATILE = {"uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "managedFields", "generation",
             "observedGeneration", "generateName", "selfLink", "nodePort",
             "endpoints.kubernetes.io/last-change-trigger-time"}  # fmt: skip
_CHANCE = re.compile(
    r"\d{4}-\d\d-\d\dT[\d:.]+Z"
    r"|\b\d{1,3}(?:\.\d{1,3}){3}\b"
    r"|(?<![0-9a-f])[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?![0-9a-f])"
    r"|\b[0-9a-f]{64}\b"
    r"|\bnode-\d+\b"
    r"|\bkube-api-access-[a-z0-9]{5}\b"
)
_SECONDS = re.compile(r"\b\d+(\.\d+)?m?s\b")


async def end_state(client: Client, leave_out: Collection[str] = ()) -> Counter[str]:
    """Every object, as text, with what depends on chance or on the moment struck out. Two of a kind count twice."""
    found: list[Obj] = []
    for resource in await client.discovery.resources():
        if "list" not in resource.verbs or resource.plural in _LEFT_OUT or resource.plural in leave_out:
            continue
        try:
            found += (await client.list(resource)).items
        except ApiError:
            continue
    generated = {
        obj["metadata"]["name"]: obj["metadata"]["generateName"] + "*"
        for obj in found
        if obj["metadata"].get("generateName")
    }
    names = re.compile("|".join(sorted(map(re.escape, generated), key=len, reverse=True)) or "(?!)")

    def text(value: str) -> str:
        value = names.sub(lambda match: generated[match.group()], value)
        return _SECONDS.sub("<s>", _CHANCE.sub("<x>", value))

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            kept = {text(key): plain(each) for key, each in value.items() if key not in _VOLATILE}
            return {key: each for key, each in kept.items() if each != {}}
        if isinstance(value, list):
            return sorted((plain(each) for each in value), key=lambda each: json.dumps(each, sort_keys=True))
        return text(value) if isinstance(value, str) else value

    return Counter(json.dumps(plain(obj), sort_keys=True) for obj in found)


def differences(expected: Counter[str], found: Counter[str]) -> str:
    """For people; empty when there are none."""
    lines = [f"missing: {each}" for each in (expected - found).elements()]
    lines += [f"too many: {each}" for each in (found - expected).elements()]
    return "\n".join(lines)
