"""How fast expressions are compiled and evaluated: typical rules of custom resources and policies.

    python bench/cel.py

Prints, for each rule, microseconds to compile and to evaluate, what the evaluation costs in units of the cost model,
and evaluations a second; at the end the rates over all of them. Times are those of the processor.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from setpoint.kinds.expression_environments import admission_environment, schema_environment
from setpoint.meta.cel import Environment, schema_type

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["replicas"],
    "properties": {
        "minReplicas": {"type": "integer"},
        "replicas": {"type": "integer"},
        "maxReplicas": {"type": "integer"},
        "version": {"type": "string", "maxLength": 63},
        "schedule": {"type": "string", "maxLength": 63},
        "expires": {"type": "string", "format": "date-time"},
        "storage": {"type": "string", "maxLength": 20},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 20},
        "ports": {
            "type": "array",
            "maxItems": 50,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name", "port"],
                "properties": {"name": {"type": "string", "maxLength": 63}, "port": {"type": "integer"}},
            },
        },
    },
}
SELF = {
    "minReplicas": 1,
    "replicas": 3,
    "maxReplicas": 10,
    "version": "16.2",
    "schedule": "0 3 * * *",
    "expires": "2030-01-01T00:00:00Z",
    "storage": "10Gi",
    "labels": {"app": "db", "tier": "backend", "team": "core"},
    "ports": [{"name": f"port-{i}", "port": 8000 + i} for i in range(10)],
}
RULES = (
    "self.replicas <= self.maxReplicas",
    "self.minReplicas <= self.replicas && self.replicas <= self.maxReplicas",
    "self.replicas >= oldSelf.replicas || self.version == oldSelf.version",
    "!has(self.schedule) || self.schedule.matches('^[0-9*/, -]+$')",
    "self.version in ['15.1', '16.0', '16.2']",
    "self.ports.all(p, p.port >= 1024 && p.port <= 65535)",
    "self.ports.all(p, self.ports.exists_one(q, q.name == p.name))",
    "self.labels.all(k, k.size() <= 63 && self.labels[k] != '')",
    "quantity(self.storage).isGreaterThan(quantity('1Gi'))",
    "self.expires > timestamp('2024-01-01T00:00:00Z')",
)
POLICIES = (
    "object.spec.replicas <= 5",
    "object.metadata.?labels['app'].orValue('') != ''",
    "object.spec.template.spec.containers.all(c, c.image.startsWith('registry.example.com/'))",
    "request.operation == 'CREATE' && !request.userInfo.groups.exists(g, g == 'system:masters')",
    "!has(object.spec.template.spec.hostNetwork) || !object.spec.template.spec.hostNetwork",
)
OBJECT = {
    "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
    "spec": {
        "replicas": 3,
        "template": {
            "spec": {"containers": [{"name": f"c{i}", "image": f"registry.example.com/app:{i}"} for i in range(3)]}
        },
    },
}
REQUEST = {"operation": "CREATE", "userInfo": {"username": "alice", "groups": ["dev", "system:authenticated"]}}


def per_second(work: Callable[[], Any], at_least: float = 0.05) -> float:
    work()
    rounds = 1
    while True:
        begin = time.process_time()
        for _ in range(rounds):
            work()
        took = time.process_time() - begin
        if took >= at_least:
            return rounds / took
        rounds *= 4


def measure(environment: Environment, texts: tuple[str, ...], bindings: dict[str, Any]) -> list[tuple[float, float]]:
    rates = []
    for text in texts:
        compiled = per_second(partial(environment.compile, text))
        program = environment.compile(text)
        outcome = program.evaluate(bindings)
        assert outcome.value is True, (text, outcome)
        evaluated = per_second(partial(program.evaluate, bindings))
        rates.append((compiled, evaluated))
        print(f"{1e6 / compiled:9.0f} {1e6 / evaluated:9.1f} {outcome.cost:6d} {evaluated:10.0f}  {text}")
    return rates


def main() -> None:
    schema = schema_type(SCHEMA)
    assert schema is not None
    print(" compile µs   eval µs   cost      per s  expression")
    rates = measure(schema_environment(schema), RULES, {"self": schema.value(SELF), "oldSelf": schema.value(SELF)})
    policy = admission_environment(has_params=True, has_authorizer=True)
    rates += measure(policy, POLICIES, {"object": OBJECT, "oldObject": None, "request": REQUEST})
    compiled = len(rates) / sum(1 / rate for rate, _ in rates)
    evaluated = len(rates) / sum(1 / rate for _, rate in rates)
    print(f"all: {compiled:.0f} compiled/s, {evaluated:.0f} evaluated/s")


if __name__ == "__main__":
    main()
