"""`/binding` of a Pod, and the old `bindings` collection: a scheduler's verdict."""

from __future__ import annotations

from setpoint.apiserver.bodies import read_object
from setpoint.apiserver.call import Call
from setpoint.apiserver.http.message import Answer
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.options import write_options
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import respond_value
from setpoint.apiserver.watch_cache import Obj
from setpoint.kinds.core.pod_binding import binding_refusal, bound, validate_binding
from setpoint.kinds.strategy import Context, Strategy
from setpoint.kinds.tables import type_of
from setpoint.meta.decode import decode
from setpoint.meta.errors import BadRequest, Conflict, PlainServerError
from setpoint.meta.field import Errors, aggregate_message

_TYPE = "io.k8s.api.core.v1.Binding"
_SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def created(call: Call, form: Form) -> Answer:
    """What a POST that stores nothing of its own answers."""
    return respond_value(call, form, _SUCCESS, 201)


class AsGiven(Strategy):
    """A write that the server itself worked out: no rule of the kind applies to it any more."""

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        pass

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        pass

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        return []


AS_GIVEN = AsGiven()


async def bind(call: Call, registry: Registry, form: Form) -> Answer:
    """`registry` is that of Pods."""
    write_options(call, "CreateOptions")
    binding = await call.work(read_object, call, "", "v1", "Binding", type_of(_TYPE))
    call.sent(binding, "Binding", "v1")
    name = binding["metadata"].get("name", "")
    if call.target.name and name != call.target.name:
        raise BadRequest("name in URL does not match name in Binding object")
    errs: Errors = []
    await call.work(validate_binding, binding, errs)
    if errs:
        raise PlainServerError(aggregate_message(errs))

    async def change(live: Obj | None) -> Obj:
        if live is None:
            raise registry.not_found(name)
        for field in ("uid", "resourceVersion"):
            wanted, given = live["metadata"][field], binding["metadata"].get(field)
            if given and given != wanted:
                shown = "UID" if field == "uid" else "ResourceVersion"
                why = f"Precondition failed: {shown} in precondition: {given}, {shown} in object meta: {wanted}"
                raise Conflict.of("", "pods/binding", name, why)
        refusal = binding_refusal(live)
        if refusal:
            raise Conflict.of("", "pods/binding", name, refusal)
        return _in_form(registry, bound(live, binding, call.now))

    await admit_order(call, registry, "binding", name, binding)
    await registry.update(call, name, change, strategy=AS_GIVEN, admit=False)
    return created(call, form)


async def admit_order(
    call: Call, registry: Registry, subresource: str, name: str, order: Obj, dry_run: bool | None = None
) -> None:
    """Admission of an order about a Pod (a binding, an eviction) that is carried out and never stored. `dry_run`: as
    the request says, if the order itself says otherwise."""
    order["metadata"].setdefault("namespace", call.target.namespace)
    attrs = registry.attributes(call, "CREATE", order, None, name)
    if dry_run is not None:
        attrs.dry_run = dry_run
    attrs.subresource = subresource
    await registry.env.admission.mutate(attrs)
    await registry.env.admission.validate(attrs)


def _in_form(registry: Registry, pod: Obj) -> Obj:
    """A Pod whose status and node are new: those as a decoder would write them, the rest shared with what is stored."""
    spec, status = (registry.resource.type.fields[name].type for name in ("spec", "status"))
    placed = pod["spec"]
    pod["spec"] = {name: placed[name] for name in spec.fields if name in placed}
    pod["status"] = decode(status, pod["status"], strict=None)
    return pod


def private_copy(registry: Registry, obj: Obj) -> Obj:
    """An object that shares nothing with the stored one."""
    copied: Obj = decode(registry.resource.type, obj, strict=None)
    copied.pop("kind", None)
    copied.pop("apiVersion", None)
    return copied
