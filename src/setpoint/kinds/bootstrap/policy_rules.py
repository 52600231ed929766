"""Short forms for writing RBAC policy as data."""

from __future__ import annotations

from setpoint.meta.objects import Obj

READ = "get list watch"
WRITE = "create delete deletecollection patch update"
READ_WRITE = "create delete deletecollection get list patch update watch"
READ_UPDATE = "get list patch update watch"
MODIFY = "patch update"
FOLLOW = "list watch"


def rule(verbs: str, groups: str, resources: str, names: str = "") -> Obj:
    """Return a sorted rule. All arguments are lists separated by spaces; `core` is the group without a name."""
    policy: Obj = {
        "verbs": sorted(verbs.split()),
        "apiGroups": sorted("" if group == "core" else group for group in groups.split()),
        "resources": sorted(resources.split()),
    }
    if names:
        policy["resourceNames"] = sorted(names.split())
    return policy


def urls(verbs: str, paths: str) -> Obj:
    return {"verbs": sorted(verbs.split()), "nonResourceURLs": sorted(paths.split())}


def events() -> Obj:
    """Return the rule that allows recording events."""
    return rule("create patch update", "core events.k8s.io", "events")
