"""PriorityLevelConfiguration: a share of the server's concurrency, and what happens when it is used up."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from math import ceil, log2
from typing import Any

from setpoint.kinds.bootstrap.flowcontrol import priority_levels
from setpoint.kinds.columns import AGE, NAME, NONE
from setpoint.kinds.flowcontrol.conditions import FlowControlStatusStrategy, validate_status
from setpoint.kinds.internal_form import internal_form, pointer, struct
from setpoint.kinds.strategy import Column, Context, Obj, Strategy
from setpoint.meta.field import Errors, forbidden, invalid, not_supported, required

_MAX_QUEUES = 10_000_000
_HASH_BITS = 60
_NOT_NEGATIVE = "must be a non-negative integer"
_QUEUING_DEFAULTS = {"queues": 64, "handSize": 8, "queueLengthLimit": 50}
_PRESERVE_ZERO = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"
_QUEUING_FORM = {"queues": 0, "handSize": 0, "queueLengthLimit": 0}
_SPEC_FORM = {
    "type": "",
    "limited": pointer({
        "nominalConcurrencyShares": 0,
        "limitResponse": struct({"type": "", "queuing": pointer(_QUEUING_FORM)}),
        "lendablePercent": None,
        "borrowingLimitPercent": None,
    }),
    "exempt": pointer({"nominalConcurrencyShares": None, "lendablePercent": None}),
}  # fmt: skip
_CATCH_ALL = next(obj["spec"] for obj in priority_levels() if obj["metadata"]["name"] == "catch-all")


def _limited(name: str) -> Callable[[Obj, datetime], Any]:
    def cell(obj: Obj, now: datetime) -> Any:
        return (obj["spec"].get("limited") or {}).get(name, NONE)

    return cell


def _queuing(name: str) -> Callable[[Obj, datetime], Any]:
    def cell(obj: Obj, now: datetime) -> Any:
        response = (obj["spec"].get("limited") or {}).get("limitResponse") or {}
        return (response.get("queuing") or {}).get(name, NONE)

    return cell


def _type(obj: Obj, now: datetime) -> str:
    return str(obj["spec"].get("type", ""))


class PriorityLevelConfigurationStrategy(Strategy):
    has_status = True
    has_generation = True
    columns = (
        NAME,
        Column("Type", _type, description="Whether requests at this level are limited at all."),
        Column("NominalConcurrencyShares", _limited("nominalConcurrencyShares"),
               description="The level's part of the server's concurrency."),
        Column("Queues", _queuing("queues"), description="Number of queues."),
        Column("HandSize", _queuing("handSize"), description="Number of queues that a flow is spread over."),
        Column("QueueLengthLimit", _queuing("queueLengthLimit"), description="Requests that may wait in one queue."),
        AGE,
    )  # fmt: skip

    def __init__(self) -> None:
        self.subresources = {"status": FlowControlStatusStrategy(self)}

    def default(self, obj: Obj) -> None:
        spec = obj["spec"]
        limited, exempt = spec.get("limited"), spec.get("exempt")
        if limited is not None:
            _set_shares(limited, 30)
            queuing = (limited.get("limitResponse") or {}).get("queuing")
            if queuing is not None:
                for name, value in _QUEUING_DEFAULTS.items():
                    if not queuing.get(name):
                        queuing[name] = value
        if exempt is not None:
            _set_shares(exempt, 0)

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        meta, spec = obj["metadata"], obj["spec"]
        name, kind = meta.get("name", ""), spec.get("type", "")
        if _PRESERVE_ZERO in (meta.get("annotations") or {}):
            errs.append(forbidden("metadata.annotations", f"annotation '{_PRESERVE_ZERO}' is forbidden"))
        if (name == "exempt") != (kind == "Exempt"):
            errs.append(invalid("spec.type", kind, "must be 'Exempt' if and only if `name` is 'exempt'"))
        limited, exempt = spec.get("limited"), spec.get("exempt")
        # The rules on which member belongs to which type come after all others.
        late: Errors = []
        if exempt is not None and kind != "Exempt":
            late.append(forbidden("spec.exempt", ""))
        if limited is not None and kind != "Limited":
            late.append(forbidden("spec.limited", ""))
        if kind == "Exempt" and exempt is not None:
            _validate_shares(exempt, "spec.exempt", errs)
        elif kind == "Limited" and limited is None:
            late.append(required("spec.limited"))
        elif not kind:
            late.append(required("spec.type"))
        elif kind not in ("Exempt", "Limited"):
            errs.append(not_supported("spec.type", kind, ("Exempt", "Limited")))
        if limited is not None:
            response = limited.get("limitResponse") or {}
            if kind == "Limited":
                _validate_limited(limited, response, errs)
            _validate_response_members(response, late)
        if name == "exempt" and (kind != "Exempt" or limited is not None):
            text = "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value"
            errs.append(invalid("spec", internal_form(spec, _SPEC_FORM), text))
        elif name == "catch-all" and spec != _CATCH_ALL:
            text = "spec of 'catch-all' must equal the fixed value"
            errs.append(invalid("spec", internal_form(spec, _SPEC_FORM), text))
        validate_status(obj, errs)
        errs.extend(late)


def _set_shares(holder: dict[str, Any], shares: int) -> None:
    if holder.get("nominalConcurrencyShares") is None:
        holder["nominalConcurrencyShares"] = shares
    if holder.get("lendablePercent") is None:
        holder["lendablePercent"] = 0


def _validate_shares(holder: dict[str, Any], path: str, errs: Errors) -> None:
    if holder["nominalConcurrencyShares"] < 0:
        errs.append(invalid(f"{path}.nominalConcurrencyShares", holder["nominalConcurrencyShares"], _NOT_NEGATIVE))
    _validate_lendable(holder, path, errs)


def _validate_lendable(holder: dict[str, Any], path: str, errs: Errors) -> None:
    if not 0 <= holder["lendablePercent"] <= 100:
        text = "must be between 0 and 100, inclusive"
        errs.append(invalid(f"{path}.lendablePercent", holder["lendablePercent"], text))


def _validate_limited(limited: dict[str, Any], response: dict[str, Any], errs: Errors) -> None:
    path = "spec.limited"
    if limited["nominalConcurrencyShares"] < 0:
        errs.append(invalid(f"{path}.nominalConcurrencyShares", limited["nominalConcurrencyShares"], _NOT_NEGATIVE))
    kind, queuing = response.get("type", ""), response.get("queuing")
    if kind == "Queue" and queuing is not None:
        _validate_queuing(queuing, f"{path}.limitResponse.queuing", errs)
    elif kind and kind not in ("Queue", "Reject"):
        errs.append(not_supported(f"{path}.limitResponse.type", kind, ("Queue", "Reject")))
    _validate_lendable(limited, path, errs)
    if limited.get("borrowingLimitPercent", 0) < 0:
        text = "if specified, must be a non-negative integer"
        errs.append(invalid(f"{path}.borrowingLimitPercent", limited["borrowingLimitPercent"], text))


def _validate_response_members(response: dict[str, Any], late: Errors) -> None:
    path = "spec.limited.limitResponse"
    kind, queuing = response.get("type", ""), response.get("queuing")
    if kind == "Queue" and queuing is None:
        late.append(required(f"{path}.queuing"))
    elif kind != "Queue" and queuing is not None:
        late.append(forbidden(f"{path}.queuing", ""))
    if not kind:
        late.append(required(f"{path}.type"))


def _validate_queuing(queuing: dict[str, Any], path: str, errs: Errors) -> None:
    length, queues, hand = queuing["queueLengthLimit"], queuing["queues"], queuing["handSize"]
    if length <= 0:
        errs.append(invalid(f"{path}.queueLengthLimit", length, "must be positive"))
    if queues <= 0:
        errs.append(invalid(f"{path}.queues", queues, "must be positive"))
    elif queues > _MAX_QUEUES:
        errs.append(invalid(f"{path}.queues", queues, f"must not be greater than {_MAX_QUEUES}"))
    if hand <= 0:
        errs.append(invalid(f"{path}.handSize", hand, "must be positive"))
    elif hand > queues:
        errs.append(invalid(f"{path}.handSize", hand, f"should not be greater than queues ({queues})"))
    elif ceil(log2(queues) * hand) > _HASH_BITS:
        text = f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {_HASH_BITS}"
        errs.append(invalid(f"{path}.handSize", hand, text))


STRATEGY = PriorityLevelConfigurationStrategy()
