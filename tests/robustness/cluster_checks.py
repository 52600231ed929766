"""Checks of what the whole cluster did: leaders, addresses, Deployments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.robustness.commits import Log
from tests.robustness.history import Commit, Converged, History, Leading, Violation

LEASES = "coordination.k8s.io/leases/"
SERVICES = "core/services/"


def terms(log: Log) -> Iterator[Violation]:
    """Yield writes under a term of a Lease that did not hold the Lease at the revision of the write.

    The value of a Lease in the log is TRANSITIONS/HOLDER."""
    for commit in log.commits:
        if not commit.term:
            continue
        namespace, name, term = commit.term.split("/", 2)
        revision, held = log.at(f"{LEASES}{namespace}/{name}", commit.revision)
        if held != term:
            message = f"{term} wrote although {held} held the lease {name} since revision {revision}"
            yield Violation("terms", message, (commit,))


def leaders(history: History) -> Iterator[Violation]:
    """Yield pairs of clients that acted as the holder of one Lease at the same time."""
    by_lease: dict[str, list[Leading]] = defaultdict(list)
    for each in history.of(Leading):
        by_lease[each.lease].append(each)
    for held in by_lease.values():
        held.sort(key=lambda each: each.began)
        for before, after in pairwise(held):
            if after.began < before.ended:
                overlap = before.ended - after.began
                message = f"two clients led at the same time for {overlap:.3f} s"
                yield Violation("leaders", message, (before, after))


def addresses(log: Log) -> Iterator[Violation]:
    """Yield Services that had the same cluster IP at the same revision.

    The value of a Service in the log is its cluster IPs, separated by commas."""
    owners: dict[str, Commit] = {}
    held: dict[str, list[str]] = {}
    for commit in log.commits:
        if not commit.key.startswith(SERVICES):
            continue
        for address in held.pop(commit.key, []):
            owners.pop(address, None)
        ips = [each for each in (commit.value or "").split(",") if each and each != "None"]
        for address in ips:
            other = owners.get(address)
            if other is not None:
                yield Violation("addresses", f"two Services have the address {address}", (other, commit))
            owners[address] = commit
        if ips:
            held[commit.key] = ips


def convergence(history: History) -> Iterator[Violation]:
    """Yield Deployments that did not end with exactly the wanted number of Pods."""
    for each in history.of(Converged):
        if not each.wanted == each.pods == each.available:
            message = f"{each.name} wants {each.wanted} Pods, has {each.pods}, of which {each.available} are available"
            yield Violation("convergence", message, (each,))
