"""`/setpoint/v1/timeline`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from server_harness import LIMITED_TOKEN, ServerHarness

from setpoint.kinds.bootstrap.cluster_roles import CLUSTER_ROLES, HISTORY

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
EVENTS = "/api/v1/namespaces/default/events"
TIMELINE = "/setpoint/v1/timeline"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def revision(obj: Any) -> int:
    return int(obj["metadata"]["resourceVersion"])


def counts(found: dict[str, Any]) -> Counter[str]:
    total: Counter[str] = Counter()
    for bucket in found["buckets"]:
        total.update(bucket["writes"])
    return total


async def test_counts_writes_in_buckets_with_gaps(harness: ServerHarness) -> None:
    made = []
    for number in range(6):
        made.append(revision(await harness.make(CONFIGMAPS, {"metadata": {"name": f"c{number}"}})))
        await harness.clock.advance(60 if number == 2 else 1)
    about = {"kind": "ConfigMap", "namespace": "default", "name": "c0"}
    made.append(revision(await harness.make(EVENTS, {"metadata": {"name": "e"}, "involvedObject": about})))
    begin = made[0]
    found = (await harness.get(f"{TIMELINE}?from={begin}&buckets=2")).json
    assert found["from"]["revision"] == begin and found["to"] == found["newest"] and not found["next"]
    second = begin - (begin - made[-1] - 1) // 2
    halves = [each for each in made if each < second], [each for each in made if each >= second]
    assert [(each["first"], each["last"]) for each in found["buckets"]] == [(each[0], each[-1]) for each in halves]
    assert [sum(each["writes"].values()) for each in found["buckets"]] == [len(halves[0]), len(halves[1]) - 1]
    assert [each.get("routine", 0) for each in found["buckets"]] == [0, 1]
    assert counts(found) == {"admin (tests)": 6}
    (gap,) = found["gaps"]
    assert gap["after"] == made[2] and gap["end"] - gap["begin"] == 60_000
    assert found["buckets"][1]["end"] - found["buckets"][0]["begin"] == 65_000
    narrow = (await harness.get(f"{TIMELINE}?from={made[1]}&to={made[2]}")).json
    assert sum(counts(narrow).values()) == 2


async def test_a_long_range_is_answered_in_parts(harness: ServerHarness, monkeypatch: Any) -> None:
    monkeypatch.setattr("setpoint.apiserver.history.timeline._MAX_SCANNED", 10)
    monkeypatch.setattr("setpoint.apiserver.history.timeline._PAGE", 4)
    made = [revision(await harness.make(CONFIGMAPS, {"metadata": {"name": f"c{number}"}})) for number in range(30)]
    begin, end = made[0], made[-1]
    width = -(-(end + 1 - begin) // 3)
    parts, after = 0, 0
    totals: Counter[int] = Counter()
    while True:
        page = (await harness.get(f"{TIMELINE}?from={begin}&to={end}&buckets=3&after={after}")).json
        for bucket in page["buckets"]:
            totals[(bucket["first"] - begin) // width] += sum(bucket["writes"].values())
        parts += 1
        after = page["next"]
        if not after:
            break
    assert totals == Counter((each - begin) // width for each in made) and parts == 3


async def test_refuses_what_cannot_be_answered(harness: ServerHarness) -> None:
    await harness.make(CONFIGMAPS, {"metadata": {"name": "a"}})
    newest = harness.store.revision
    for query in ("from=x", f"from={newest}&to={newest - 1}", "buckets=many", f"from={newest + 5}", "after=-1"):
        assert (await harness.get(f"{TIMELINE}?{query}")).status == 400, query
    assert (await harness.post(TIMELINE, {})).status == 405
    await harness.store.compact(newest - 1)
    gone = await harness.get(f"{TIMELINE}?from={newest - 3}")
    assert gone.status == 410 and f"which begins with revision {newest}" in gone.message


async def test_counts_only_what_the_user_may_read(harness: ServerHarness) -> None:
    begin = harness.store.revision + 1
    await harness.make(CONFIGMAPS, {"metadata": {"name": "a"}})
    await harness.make("/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}, "stringData": {"k": "v"}})
    end = harness.store.revision
    path = f"{TIMELINE}?from={begin}&to={end}"
    assert (await harness.get(path, token=LIMITED_TOKEN)).status == 403
    rules = [*CLUSTER_ROLES[HISTORY], {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}]
    await harness.make(f"{RBAC}/clusterroles", {"metadata": {"name": "reader"}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"}
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "limited"}
    binding = {"metadata": {"name": "reader"}, "roleRef": role, "subjects": [subject]}
    await harness.make(f"{RBAC}/clusterrolebindings", binding)
    assert sum(counts((await harness.get(path)).json).values()) == 2
    assert sum(counts((await harness.get(path, token=LIMITED_TOKEN)).json).values()) == 1
