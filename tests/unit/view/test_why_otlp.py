"""An answer as a trace: its spans, parents and links, and identifiers that a repeated export does not change."""

from __future__ import annotations

from typing import Any

from setpoint.view.why.answer import Answer, Step
from setpoint.view.why.otlp import otlp

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CONTEXT = f"00-{TRACE}-{SPAN}-01"


def answer(*chain: Step) -> Answer:
    return Answer({}, 9_000, "A sentence.", list(chain), cluster="1-2-3")


def scaling(**origin: Any) -> Answer:
    """A person scales a Deployment: two reconciles later, a Pod is created."""
    pod = Step(7, 3_000, "replicaset-controller", "pod/web-x", "shop", "created", reason="1 Pod exists, 2 are wanted")
    pod.run, pod.reconciled = "replicaset-controller/ab12.5", "replicaset/web"
    other = Step(5, 1_500, "kubelet node-1", "pod/web-y", "shop", "deleted")
    replica_set = Step(6, 2_000, "deployment-controller", "replicaset/web", "shop", "scaled", others=[other])
    replica_set.run, replica_set.changes = "deployment-controller/ab12.4", ["spec.replicas 1 -> 2"]
    deployment = Step(4, 1_000, "alice", "deployment/web", "shop", "scaled", **origin)
    return answer(pod, replica_set, deployment)


def spans_of(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the spans by service and name."""
    return {
        f"{each['resource']['attributes'][0]['value']['stringValue']}: {span['name']}": span
        for each in found["resourceSpans"]
        for span in each["scopeSpans"][0]["spans"]
    }


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    return {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}


def linked(span: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["spanId"], attributes(each)["setpoint.relation"]) for each in span.get("links", ())]


def test_writes_are_children_of_the_reconciles_that_their_triggers_are_linked_to() -> None:
    spans = spans_of(otlp(scaling()))
    assert list(spans) == [
        "kube-apiserver: created pod",
        "kube-apiserver: scaled replicaset",
        "kube-apiserver: scaled deployment",
        "kube-apiserver: deleted pod",
        "replicaset-controller: reconcile",
        "deployment-controller: reconcile",
    ]
    created, scaled, origin, deleted, reconcile, earlier = spans.values()
    assert (created["parentSpanId"], scaled["parentSpanId"]) == (reconcile["spanId"], earlier["spanId"])
    assert "parentSpanId" not in origin and "links" not in origin
    assert linked(reconcile) == [(scaled["spanId"], "trigger"), (deleted["spanId"], "trigger")]
    assert linked(earlier) == [(origin["spanId"], "trigger")]
    assert [each["kind"] for each in (created, reconcile)] == [2, 1]
    assert (reconcile["startTimeUnixNano"], reconcile["endTimeUnixNano"]) == ("2000000000", "3000000000")
    assert attributes(created) == {
        "setpoint.revision": "7",
        "setpoint.actor": "replicaset-controller",
        "setpoint.object": "pod/web-x",
        "k8s.namespace.name": "shop",
        "setpoint.reason": "1 Pod exists, 2 are wanted",
    }
    assert attributes(scaled)["setpoint.changes"] == {"values": [{"stringValue": "spec.replicas 1 -> 2"}]}
    ids = [each["spanId"] for each in spans.values()]
    assert len(set(ids)) == len(ids) and all(len(each) == 16 for each in ids)
    assert len({each["traceId"] for each in spans.values()}) == 1 and len(created["traceId"]) == 32
    assert otlp(scaling()) == otlp(scaling())


def test_a_traceparent_at_the_origin_names_the_trace() -> None:
    spans = spans_of(otlp(scaling(trace=CONTEXT, link=f"00-{TRACE[::-1]}-{SPAN[::-1]}-01")))
    assert {each["traceId"] for each in spans.values()} == {TRACE}
    origin = spans["kube-apiserver: scaled deployment"]
    assert origin["parentSpanId"] == SPAN
    assert linked(origin) == [(SPAN[::-1], "trace context of the object")]
    for invalid in ("x", f"00-{'0' * 32}-{SPAN}-01", CONTEXT + "\n"):
        found = spans_of(otlp(scaling(trace=invalid, link=invalid)))["kube-apiserver: scaled deployment"]
        assert "parentSpanId" not in found and "links" not in found and found["traceId"] != TRACE


def test_hidden_probable_and_deleting_steps() -> None:
    done = Step(9, 3_000, "kubelet node-1", "pod/x", "shop", "completed the deletion of", completes=True)
    done.trace = CONTEXT
    asked = Step(8, 2_000, "an operator", "pod/x", "shop", "deleted")
    hidden = Step(7, 0, "", "", "", "changed", kind="hidden", inferred="its watch reported this change")
    spans = spans_of(otlp(answer(done, asked, hidden)))
    completed, deleted, unseen = spans.values()
    assert linked(completed) == [
        (deleted["spanId"], "deletion request"),
        (SPAN, "trace context of the request"),
    ]
    assert linked(deleted) == [(unseen["spanId"], "probable trigger")]
    assert (unseen["name"], set(attributes(unseen))) == ("hidden", {"setpoint.revision", "setpoint.inferred"})
    assert otlp(answer()) == {"resourceSpans": []}
