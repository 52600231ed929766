"""The feed `writes`: every write while it happens, with what has changed, what triggered it, and a sentence about it.

It has no arguments. Log entries are writes, or counts of writes beyond the rate that a person can read:

    {"revision": 291, "at": 1763299132123, "actor": "replicaset-controller", "role": "controller", "verb": "create",
     "objects": [...], "reconcile": "replicaset-controller/b3f1.6", "key": "default/web", "triggers": [287],
     "because": 287, "origin": 287, "ofYou": true, "reason": "2 Pods exist, 3 are wanted",
     "sentence": "replicaset-controller created Pod web-x7 because you deleted Pod web-b2: 2 Pods exist, ..."}
    {"revision": 400, "counts": {"kubelets": 90, "kube-scheduler": 6}, "writes": 96}

`objects` are as in `view/writes.py`. `because` is the revision of the most informative trigger, `origin` that of the
write at the begin of the chain, if they are known, and `ofYou` says whether that one is yours. `role` is you, person,
controller, scheduler, kubelet or server. The item `folded` counts the writes that are left out: heartbeats and Events.
The log begins with the latest `_FIRST` writes.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from setpoint.meta.errors import BadRequest
from setpoint.view.sentences import RecentWrites
from setpoint.web.feed import Args, FeedOutput, Item, PageContext
from setpoint.web.write_stream import follow_writes, read_recent

_FIRST = 300
_KUBELET, _SERVER = "kubelet ", "kube-apiserver"


async def run(ctx: PageContext, args: Args, output: FeedOutput) -> None:
    if "/at/" in ctx.cluster:
        raise BadRequest("a past moment has no writes; go back to now to see them")
    recent = RecentWrites(ctx.acting_user)
    folded = {"heartbeats": 0, "events": 0}
    before, newest = await read_recent(ctx.client, _FIRST)
    for write in before:
        recent.add(write)
        output.log(entry_of(write, recent))
    output.synced()
    async with aclosing(follow_writes(ctx.client, ctx.clock, newest)) as lines:
        async for line in lines:
            match line["type"]:
                case "write":
                    recent.add(line["write"])
                    output.log(entry_of(line["write"], recent))
                case "counts":
                    output.log({"revision": line["revision"], "counts": line["actors"], "writes": line["writes"]})
                case "folded":
                    folded = {name: count + line.get(name, 0) for name, count in folded.items()}
                    output.set("folded", folded)


def entry_of(write: dict[str, Any], recent: RecentWrites) -> Item:
    """Return the log entry of a write."""
    cause = write.get("cause") or {}
    trigger, origin = recent.trigger(write), recent.origin(write)
    found: dict[str, Any] = {
        "revision": write["revision"],
        "at": cause.get("at", 0),
        "actor": write["actor"],
        "role": _role(write, recent),
        "verb": cause.get("verb", ""),
        "objects": write["objects"],
        "sentence": recent.sentence(write),
    }
    found |= {name: cause[name] for name in ("reconcile", "key", "triggers", "reason", "besides") if name in cause}
    if trigger is not None:
        found["because"] = trigger["revision"]
    if origin is not None:
        found["origin"] = origin["revision"]
        found["ofYou"] = recent.is_own(origin)
    return found


def _role(write: dict[str, Any], recent: RecentWrites) -> str:
    actor = str(write["actor"])
    if recent.is_own(write):
        return "you"
    if write.get("person"):
        return "person"
    if actor.startswith(_KUBELET):
        return "kubelet"
    if actor == _SERVER:
        return "server"
    return "scheduler" if actor.startswith("kube-scheduler") else "controller"
