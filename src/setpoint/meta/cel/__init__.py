"""CEL, the expression language of rules and policies: parser, checker, compiler and cost model. It does no I/O.

    env = kubernetes_environment().extended(variables={"self": schema.type}, structs=schema.structs)
    program = env.compile("self.replicas <= self.maxReplicas")       # raises CelProblem
    outcome = program.evaluate({"self": schema.value(document)})     # never raises

Guarantees:

- `compile` reports every error that can be found without values, with the reference's messages, line, column and caret
  (`str(CelProblem)`). Texts are limited to 100,000 code points, nesting to 250 levels.
- `evaluate` terminates: its cost is counted during evaluation, which stops when the limit is exceeded. It never changes
  its input values. It returns an `Outcome`: a value or an error, and the cost.
- Costs, estimated and counted, are the reference's numbers.
- Values are JSON values plus the classes of `values`; a schema says how JSON is converted (`schema_type`), `to_json`
  converts a result to JSON. Lazily computed variables are a `LazyMap`; the authorizer is bound as an `AuthorizerValue`.
- Environments and programs are immutable and may be shared.
"""

from __future__ import annotations

from setpoint.meta.cel.cost import Sizer
from setpoint.meta.cel.declarations import Library
from setpoint.meta.cel.environment import PER_CALL_LIMIT, Environment, Outcome, Program, kubernetes_environment
from setpoint.meta.cel.json_values import misnamed_types, to_json
from setpoint.meta.cel.libraries.authorizer import AuthorizerValue, Check, Decision, ResourceCheckValue
from setpoint.meta.cel.schema import SchemaType, schema_type, sizer
from setpoint.meta.cel.sizes import CostRange, SizeRange
from setpoint.meta.cel.source import CelProblem, Issue
from setpoint.meta.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    StructType,
    Type,
    list_of,
    map_of,
    optional_of,
    struct,
)
from setpoint.meta.cel.values import CelError, Duration, LazyMap, Optional, Timestamp, Uint

__all__ = [
    "BOOL",
    "BYTES",
    "DOUBLE",
    "DURATION",
    "DYN",
    "INT",
    "NULL",
    "PER_CALL_LIMIT",
    "STRING",
    "TIMESTAMP",
    "TYPE",
    "UINT",
    "AuthorizerValue",
    "CelError",
    "CelProblem",
    "Check",
    "CostRange",
    "Decision",
    "Duration",
    "Environment",
    "Issue",
    "LazyMap",
    "Library",
    "Optional",
    "Outcome",
    "Program",
    "ResourceCheckValue",
    "SchemaType",
    "SizeRange",
    "Sizer",
    "StructType",
    "Timestamp",
    "Type",
    "Uint",
    "kubernetes_environment",
    "list_of",
    "map_of",
    "misnamed_types",
    "optional_of",
    "schema_type",
    "sizer",
    "struct",
    "to_json",
]
