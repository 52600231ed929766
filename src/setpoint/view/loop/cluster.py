"""The loops of nodes, namespaces, Services, claims and disruption budgets."""

from __future__ import annotations

from setpoint.meta.conditions import condition_of, conditions_of
from setpoint.meta.objects import ObjView
from setpoint.view.loop.generic import detail, generation_drift
from setpoint.view.loop.values import IS_ARE, Drift, Gauge, Loop, Phase, Related, count
from setpoint.view.states import counts_text, is_ready, pod_counts


def node(obj: ObjView, related: Related) -> Loop:
    spec = obj.get("spec") or {}
    ready = condition_of(obj, "Ready") or {}
    observed = [f"Ready {ready.get('status', 'unknown')}"]
    if related.pods is not None:
        observed.append(counts_text(pod_counts(related.pods)) or "no Pods")
    desired = ["ready", "no new Pods (cordoned)" if spec.get("unschedulable") else "accepts Pods"]
    loop = Loop(desired, observed)
    if ready.get("status") != "True":
        state = "does not report" if ready.get("status") == "Unknown" else "is not ready"
        loop.drift.append(Drift(f"it {state}{detail(ready)}"))
        loop.phase = Phase.WAITING
        loop.action = "node-lifecycle-controller taints it; its Pods are evicted when their tolerations end."
        if not ready:
            loop.action = "Its kubelet has to report."
    for condition in conditions_of(obj):
        name = str(condition.get("type", ""))
        if name.endswith(("Pressure", "Unavailable")) and condition.get("status") == "True":
            loop.drift.append(Drift(f"{name} is True{detail(condition)}"))
            if loop.phase is Phase.SETTLED:
                loop.phase, loop.action = Phase.WAITING, "Its kubelet frees resources, and evicts Pods if it has to."
    return loop


def namespace(obj: ObjView, related: Related) -> Loop:
    phase = (obj.get("status") or {}).get("phase", "Active")
    return Loop(["it exists"], [f"phase {phase}"])


def service(obj: ObjView, related: Related) -> Loop:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    kind = spec.get("type", "ClusterIP")
    ports = ", ".join(f"{each.get('port')}/{each.get('protocol', 'TCP')}" for each in spec.get("ports") or ())
    selector = ",".join(f"{name}={value}" for name, value in (spec.get("selector") or {}).items())
    desired = [f"type {kind}", f"ports {ports}" if ports else "", f"Pods with {selector}" if selector else ""]
    address = spec.get("clusterIP") or spec.get("externalName") or "no address"
    loop = Loop([each for each in desired if each], [f"address {address}"])
    if selector and related.pods is not None and kind != "ExternalName":
        ready, total = sum(is_ready(each) for each in related.pods), len(related.pods)
        loop.observed.append(f"{ready} of {count(total, 'matching Pod')} ready")
        loop.gauge = Gauge(ready, total, "endpoints ready")
        if not total:
            loop.drift.append(Drift(f"its selector {selector} matches no Pod", selector, "no Pods"))
            loop.phase, loop.action = Phase.STUCK, "It has no endpoints until a Pod has these labels."
        elif ready < total:
            loop.drift.append(
                Drift(f"{count(total - ready, 'matching Pod', IS_ARE)} not ready", str(total), str(ready))
            )
            loop.phase, loop.action = Phase.ACTING, "endpointslice-controller adds Pods when they are ready."
    if kind == "LoadBalancer":
        ingress = (status.get("loadBalancer") or {}).get("ingress") or ()
        addresses = [str(each.get("ip") or each.get("hostname") or "") for each in ingress]
        if addresses:
            loop.observed.append(f"load balancer {', '.join(addresses)}")
        else:
            loop.drift.append(Drift("no load balancer has assigned an address"))
            loop.phase, loop.action = Phase.WAITING, "The controller for load balancers has to assign an address."
    return loop


def claim(obj: ObjView, related: Related) -> Loop:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    wanted = ((spec.get("resources") or {}).get("requests") or {}).get("storage", "")
    name = spec.get("storageClassName") or ""
    desired = [f"{wanted} of storage" if wanted else "storage", f"class {name}" if name else "no class"]
    phase, has = status.get("phase", "Pending"), (status.get("capacity") or {}).get("storage", "")
    volume = spec.get("volumeName") or ""
    observed = [f"{phase} to {volume}" if volume else str(phase)]
    observed += [f"capacity {has}"] if has else []
    loop = Loop(desired, observed)
    if phase == "Lost":
        loop.drift.append(Drift("its volume does not exist any more"))
        loop.phase, loop.action = Phase.STUCK, "A lost volume does not come back by itself."
    elif phase != "Bound":
        loop.drift.append(Drift("it is not bound to a volume"))
        loop.phase = Phase.WAITING
        loop.action = "persistentvolume-binder binds it when a volume fits, or its class provisions one."
    return loop


def budget(obj: ObjView, related: Related) -> Loop:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    healthy, needed = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    limits = [f"{name} {spec[name]}" for name in ("minAvailable", "maxUnavailable") if name in spec]
    loop = Loop(
        limits,
        [f"{count(healthy, 'Pod')} healthy", f"{count(status.get('disruptionsAllowed', 0), 'eviction')} allowed"],
    )
    loop.gauge = Gauge(healthy, needed, "Pods healthy")
    if (behind := generation_drift(obj)) is not None:
        loop.drift.append(behind)
        loop.phase, loop.action = Phase.ACTING, "disruption-controller has to observe the change."
    elif healthy < needed:
        loop.drift.append(Drift(f"{count(needed - healthy, 'healthy Pod', IS_ARE)} missing", str(needed), str(healthy)))
        loop.phase, loop.action = Phase.WAITING, "It allows no evictions until enough Pods are healthy."
    return loop
