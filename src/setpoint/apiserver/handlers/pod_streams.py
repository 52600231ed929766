"""`/log`, `/exec`, `/attach`, `/portforward`, `/proxy` of a Pod: checked here, carried out by its node.

No node can be asked yet: what can be answered without one is, and the rest is refused in plain words."""

from __future__ import annotations

from setpoint.apiserver.call import Call
from setpoint.apiserver.http.message import Answer, Response
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.options import integer
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.watch_cache import Obj
from setpoint.meta.errors import ApiError, BadRequest, Invalid
from setpoint.meta.field import Errors, forbidden, invalid


async def log(call: Call, registry: Registry, form: Form) -> Answer:
    _check_log_options(call)
    pod = registry.get(call.target.namespace, call.target.name).obj
    _container(call, pod)
    if not (pod.get("spec") or {}).get("nodeName"):
        # Nothing has run yet, so there is nothing to read.
        return Response(204, b"", [])
    raise _no_node(pod)


async def stream(call: Call, registry: Registry, form: Form) -> Answer:
    pod = registry.get(call.target.namespace, call.target.name).obj
    _container(call, pod)
    if not (pod.get("spec") or {}).get("nodeName"):
        raise BadRequest(f"pod {call.target.name} does not have a host assigned")
    raise _no_node(pod)


def _no_node(pod: Obj) -> ApiError:
    node = pod["spec"]["nodeName"]
    return ApiError(
        f'node "{node}" cannot be asked: no node agent is connected to this server', code=501, reason="NotImplemented"
    )


def _container(call: Call, pod: Obj) -> str:
    """The container that is meant; a Pod with several must be told which."""
    wanted = call.option("container")
    spec = pod.get("spec") or {}
    names = [c["name"] for c in spec.get("containers") or ()]
    inner = [c["name"] for c in spec.get("initContainers") or ()]
    ephemeral = [c["name"] for c in spec.get("ephemeralContainers") or ()]
    name = call.target.name
    if wanted:
        if wanted not in (*names, *inner, *ephemeral):
            raise BadRequest(f"container {wanted} is not valid for pod {name}")
        return wanted
    default = (pod["metadata"].get("annotations") or {}).get("kubectl.kubernetes.io/default-container")
    if default in names:
        return str(default)
    if len(names) == 1:
        return str(names[0])
    if not names:
        raise BadRequest(f"a container name must be specified for pod {name}")
    text = f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]"
    if inner:
        text += f" or one of the init containers: [{' '.join(inner)}]"
    raise BadRequest(text)


def _check_log_options(call: Call) -> None:
    errs: Errors = []
    number = {
        name: integer(call.option(name)) for name in ("tailLines", "limitBytes", "sinceSeconds") if name in call.query
    }
    if number.get("tailLines", 0) < 0:
        errs.append(invalid("tailLines", number["tailLines"], "must be greater than or equal to 0"))
    if number.get("limitBytes", 1) < 1:
        errs.append(invalid("limitBytes", number["limitBytes"], "must be greater than 0"))
    if "sinceSeconds" in number and "sinceTime" in call.query:
        errs.append(forbidden("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    elif number.get("sinceSeconds", 1) < 1:
        errs.append(invalid("sinceSeconds", number["sinceSeconds"], "must be greater than 0"))
    if errs:
        raise Invalid.of("", "PodLogOptions", call.target.name, errs)
