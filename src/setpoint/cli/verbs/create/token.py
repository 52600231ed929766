"""`create token`: request a token of a service account."""

from __future__ import annotations

from typing import Any

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import array, duration, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.verbs.create.making import name_of
from setpoint.cli.writing import OUTPUT, Results
from setpoint.client.resources import builtin
from setpoint.meta.errors import ApiError

_KINDS = ("Node", "Pod", "Secret")


async def run(invocation: Invocation) -> None:
    name, flags = name_of(invocation), invocation.flags
    results = Results(invocation)
    _check(invocation, name)
    spec: dict[str, Any] = {"audiences": flags.audience or None}
    if flags.duration:
        spec["expirationSeconds"] = round(flags.duration)
    if flags.bound_object_kind:
        bound = {"kind": flags.bound_object_kind, "apiVersion": "v1", "name": flags.bound_object_name}
        spec["boundObjectRef"] = bound | ({"uid": flags.bound_object_uid} if flags.bound_object_uid else {})
    request = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "metadata": {}, "spec": spec}
    try:
        answer = await invocation.client.create(
            request, resource=builtin("serviceaccounts"), name=name, namespace=invocation.namespace, subresource="token"
        )
    except ApiError as error:
        raise Failed(f"failed to create token: {error.message}") from None
    token = (answer.get("status") or {}).get("token")
    if not token:
        raise Failed("failed to create token: no token in server response")
    if flags.output:
        results.add(answer, "created", typed=True)
    else:
        invocation.print(token, end="\n" if invocation.io.out_is_terminal else "")


def _check(invocation: Invocation, name: str) -> None:
    flags = invocation.flags
    if not name:
        raise Failed("service account name is required")
    if flags.duration < 0:
        raise Failed("--duration must be greater than or equal to 0")
    if flags.duration != round(flags.duration):
        raise Failed("--duration cannot be expressed in units less than seconds")
    if "" in flags.audience:
        raise Failed("--audience must not be an empty string")
    if not flags.bound_object_kind:
        for key in ("name", "uid"):
            if getattr(flags, f"bound_object_{key}"):
                raise Failed(f"--bound-object-{key} can only be set if --bound-object-kind is provided")
    elif flags.bound_object_kind not in _KINDS:
        raise Failed(f"supported --bound-object-kind values are {', '.join(_KINDS)}")
    elif not flags.bound_object_name:
        raise Failed("--bound-object-name is required if --bound-object-kind is provided")


COMMAND = Command(
    "Request a service account token",
    run,
    (
        *OUTPUT,
        array("audience", help="Audience of the requested token; repeat it for several. Unset: the API server."),
        duration("duration", help="Requested lifetime of the token; 0: what the server thinks best."),
        text("bound-object-kind", help=f"Kind of an object to bind the token to: {', '.join(_KINDS)}."),
        text("bound-object-name", help="Name of that object."),
        text("bound-object-uid", help="UID of that object, if it must be this very one."),
    ),
    usage="SERVICE_ACCOUNT_NAME",
    examples="""
    setpoint create token robot --duration=10m

    # One that ends with a Secret
    setpoint create token robot --bound-object-kind=Secret --bound-object-name=door
    """,
)
