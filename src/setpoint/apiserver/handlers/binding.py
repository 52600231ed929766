"""POST to `/binding` of a Pod and to the old `bindings` collection: assign the Pod to a node."""

from __future__ import annotations

from setpoint.apiserver.bodies import read_object
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.options import write_options
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import respond_value
from setpoint.apiserver.request_context import RequestContext
from setpoint.apiserver.write_path import WritePath
from setpoint.kinds.core.pod_binding import binding_refusal, bound, validate_binding
from setpoint.kinds.strategy import Context, Strategy
from setpoint.kinds.tables import type_of
from setpoint.meta.decode import decode
from setpoint.meta.errors import BadRequest, Conflict, PlainServerError
from setpoint.meta.field import Errors, aggregate_message
from setpoint.meta.objects import Obj
from setpoint.wire.message import Answer

_TYPE = "io.k8s.api.core.v1.Binding"
_SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def created(ctx: RequestContext, form: Form) -> Answer:
    """Return the response to a POST that stores no object of its own."""
    return respond_value(ctx, form, _SUCCESS, 201)


class _Unvalidated(Strategy):
    """The strategy of changes that the server computes itself: no rule of the kind applies to them."""

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        pass

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        pass

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        return []


UNVALIDATED = _Unvalidated()


async def bind(ctx: RequestContext, registry: Registry, form: Form) -> Answer:
    """Assign a Pod to a node; `registry` is that of Pods."""
    write_options(ctx, "CreateOptions")
    binding = await ctx.compute(read_object, ctx, "", "v1", "Binding", type_of(_TYPE))
    ctx.record_request_object(binding, "Binding", "v1")
    name = binding["metadata"].get("name", "")
    if ctx.target.name and name != ctx.target.name:
        raise BadRequest("name in URL does not match name in Binding object")
    errs: Errors = []
    await ctx.compute(validate_binding, binding, errs)
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
        return _decode_changed(registry, bound(live, binding, ctx.now))

    write = WritePath(ctx, registry)
    binding["metadata"].setdefault("namespace", ctx.target.namespace)
    await write.admit("CREATE", binding, name, "binding")
    await write.update(name, change, strategy=UNVALIDATED, admit=False)
    return created(ctx, form)


def _decode_changed(registry: Registry, pod: Obj) -> Obj:
    """Bring the spec and status of a bound Pod into decoded form; the rest is shared with the stored Pod."""
    spec, status = (registry.resource.type.fields[name].type for name in ("spec", "status"))
    placed = pod["spec"]
    pod["spec"] = {name: placed[name] for name in spec.fields if name in placed}
    pod["status"] = decode(status, pod["status"], strict=None)
    return pod


def private_copy(registry: Registry, obj: Obj) -> Obj:
    """Return a copy of a stored object that shares nothing with it."""
    copied: Obj = decode(registry.resource.type, obj, strict=None)
    copied.pop("kind", None)
    copied.pop("apiVersion", None)
    return copied
