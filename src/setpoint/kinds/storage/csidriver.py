"""CSIDriver: the properties of a volume driver that the cluster depends on."""

from __future__ import annotations

from setpoint.kinds.cell_texts import NONE, UNSET
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.strategy import Column, Context, Strategy
from setpoint.meta.field import Errors, duplicate, invalid, not_supported, required
from setpoint.meta.objectmeta import validate_immutable
from setpoint.meta.objects import Obj

_POLICIES = ("File", "None", "ReadWriteOnceWithFSType")
_TOKENS = (
    "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible "
    "logging of tokens in volume attributes"
)
_DEFAULTS = {
    "attachRequired": True,
    "podInfoOnMount": False,
    "storageCapacity": False,
    "fsGroupPolicy": "ReadWriteOnceWithFSType",
    "requiresRepublish": False,
    "seLinuxMount": False,
    "preventPodSchedulingIfMissing": False,
}


def _boolean_column(name: str, field: str, description: str) -> Column:
    return Column(
        name, lambda obj, now: _spec(obj).get(field, _DEFAULTS[field]), type="boolean", description=description
    )


class CSIDriverStrategy(Strategy):
    returns_deleted = True
    allow_unconditional_update = False

    def default(self, obj: Obj) -> None:
        spec = obj.setdefault("spec", {})
        for name, value in _DEFAULTS.items():
            if spec.get(name) is None:
                spec[name] = value
        if not spec.get("volumeLifecycleModes"):
            spec["volumeLifecycleModes"] = ["Persistent"]

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        # The generation is set by the first change, not at creation.
        if obj.get("spec") != old.get("spec"):
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        _validate_spec(obj.get("spec") or {}, errs)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        spec, before = obj.get("spec") or {}, old.get("spec") or {}
        _validate_spec(spec, errs)
        validate_immutable(spec.get("attachRequired"), before.get("attachRequired"), "spec.attachedRequired", errs)
        modes, known = spec.get("volumeLifecycleModes"), before.get("volumeLifecycleModes")
        validate_immutable(modes, known, "spec.volumeLifecycleModes", errs)

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        spec = obj.get("spec") or {}
        return [_TOKENS] if spec.get("tokenRequests") and spec.get("serviceAccountTokenInSecrets") is None else []

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        before = (old.get("spec") or {}).get("tokenRequests") or []
        if ((obj.get("spec") or {}).get("tokenRequests") or []) == before:
            return []
        return self.warnings_on_create(obj, ctx)

    columns = (
        NAME,
        _boolean_column(
            "AttachRequired", "attachRequired", "Whether volumes are attached to nodes before they are mounted."
        ),
        _boolean_column(
            "PodInfoOnMount",
            "podInfoOnMount",
            "Whether the driver receives information about the Pod that it mounts for.",
        ),
        _boolean_column(
            "StorageCapacity",
            "storageCapacity",
            "Whether the scheduler considers the capacity that the driver reports.",
        ),
        Column(
            "TokenRequests",
            lambda obj, now: _audiences(obj),
            description="Audiences of the service account tokens it gets.",
        ),
        _boolean_column("RequiresRepublish", "requiresRepublish", "Whether mounts are republished periodically."),
        Column(
            "Modes",
            lambda obj, now: ",".join(_spec(obj).get("volumeLifecycleModes", ())) or NONE,
            description="Kinds of volumes it offers.",
        ),
        AGE,
    )


def _spec(obj: Obj) -> Obj:
    return obj.get("spec") or {}


def _audiences(obj: Obj) -> str:
    requests = _spec(obj).get("tokenRequests")
    return UNSET if requests is None else ",".join(request.get("audience", "") for request in requests)


def _validate_spec(spec: Obj, errs: Errors) -> None:
    for name, shown in (("attachRequired", "attachedRequired"), ("podInfoOnMount", ""), ("storageCapacity", "")):
        if spec.get(name) is None:
            errs.append(required(f"spec.{shown or name}"))
    policy = spec.get("fsGroupPolicy")
    if policy is not None and policy not in _POLICIES:
        errs.append(not_supported("spec.fsGroupPolicy", policy, _POLICIES))
    _validate_tokens(spec.get("tokenRequests", []), errs)
    for mode in spec.get("volumeLifecycleModes", ()):
        if mode not in ("Persistent", "Ephemeral"):
            errs.append(not_supported("spec.volumeLifecycleModes", mode, ("Persistent", "Ephemeral")))
    if spec.get("seLinuxMount") is None:
        errs.append(required("spec.seLinuxMount"))
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    if period is not None and period < 10:
        text = "must be greater than or equal to 10 seconds"
        errs.append(invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, text))
    in_secrets = spec.get("serviceAccountTokenInSecrets")
    if in_secrets is not None and not spec.get("tokenRequests"):
        text = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        errs.append(invalid("spec.serviceAccountTokenInSecrets", in_secrets, text))
    if spec.get("preventPodSchedulingIfMissing") is None:
        errs.append(required("spec.preventPodSchedulingIfMissing"))


def _validate_tokens(requests: list[Obj], errs: Errors) -> None:
    seen: set[str] = set()
    for i, request in enumerate(requests):
        path = f"spec.tokenRequests[{i}]"
        audience, seconds = request.get("audience", ""), request.get("expirationSeconds")
        if audience in seen:
            errs.append(duplicate(f"{path}.audience", audience))
            continue
        seen.add(audience)
        if seconds is not None and seconds < 600:
            errs.append(
                invalid(f"{path}.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
            )
        if seconds is not None and seconds > 2**32:
            errs.append(
                invalid(f"{path}.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds")
            )


STRATEGY = CSIDriverStrategy()
