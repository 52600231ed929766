"""The rights that stages need: to see the objects that they speak of, and to do to them what they say."""

from __future__ import annotations

from collections.abc import Iterable

from setpoint.kinds.bootstrap.policy_rules import READ, rule
from setpoint.kinds.catalog import RESOURCES
from setpoint.kinds.strategy import Obj
from setpoint.node.stages import Stage


def stage_rules(stages: Iterable[Stage]) -> list[Obj]:
    rules = []
    for api_version, kind in dict.fromkeys((stage.api_version, stage.kind) for stage in stages):
        group = api_version.rpartition("/")[0]
        # What a custom kind is called in URLs is known once somebody defines it.
        names = {resource.plural for resource in RESOURCES if (resource.group, resource.kind) == (group, kind)}
        written = " ".join(f"{name} {name}/status" for name in sorted(names)) or "*"
        rules.append(rule(f"{READ} delete patch", group or "core", written))
    return rules
