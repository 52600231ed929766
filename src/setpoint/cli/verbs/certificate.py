"""`certificate approve` and `deny`."""

from __future__ import annotations

from typing import Any

from setpoint.cli.command import Command, Run
from setpoint.cli.failures import EXPECTED, Failed, raise_all
from setpoint.cli.flags import switch
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import FILES, Target, choose, fetch
from setpoint.cli.writing import OUTPUT, Results
from setpoint.client.resources import builtin
from setpoint.meta.errors import Conflict, NotFound
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_time

_TRIES = 10
_GROUP, _KIND = "certificates.k8s.io", "CertificateSigningRequest"
_REQUESTS = builtin("certificatesigningrequests", _GROUP)


def _deciding(decision: str, other: str, reason: str, done: str, verb: str) -> Run:
    condition = {
        "type": decision,
        "status": "True",
        "reason": reason,
        "message": f"This CSR was {done} by kubectl certificate {verb}.",
    }

    async def run(invocation: Invocation) -> None:
        if not (invocation.args or invocation.flags.filename or invocation.flags.kustomize):
            raise Failed("one or more CSRs must be specified as <name> or -f <filename>")
        results = Results(invocation)
        errors: list[Exception] = []
        targets = [Target(_REQUESTS, "", name) for name in invocation.args]
        if invocation.flags.filename or invocation.flags.kustomize:
            targets += (await choose(invocation, [])).targets
        found = 0
        for target in targets:
            try:
                chosen = await fetch(invocation, _one(target))
                await _decide(invocation, chosen[0], condition, other)
            except EXPECTED as error:
                errors.append(error)
                continue
            found += 1
            results.add(chosen[0].obj or {}, done)
        raise_all(errors)
        if not found:
            invocation.print("No resources found")

    return run


def _one(target: Target) -> Any:
    from setpoint.cli.resources import Chosen

    return Chosen([target], [], True)


async def _decide(invocation: Invocation, target: Target, condition: Obj, other: str) -> None:
    if (target.resource.group, target.resource.kind) != (_GROUP, _KIND):
        shown = f"{target.resource.kind}.{target.resource.group}".rstrip(".")
        raise Failed(f"can only handle {_KIND}.{_GROUP} objects, got {shown}")
    for attempt in range(_TRIES + 1):
        try:
            request = await invocation.client.get(_REQUESTS, target.name)
        except NotFound as error:
            raise Failed(f"could not find v1 version of {target.name}: {error.message}") from None
        status = request.get("status") or {}
        conditions = status.get("conditions") or []
        if any(one["type"] == other for one in conditions):
            raise Failed(f"certificate signing request {quote(target.name)} is already {other}")
        already = any(one["type"] == condition["type"] for one in conditions)
        if already and not invocation.flags.force:
            return
        if not already:
            now = format_time(invocation.io.clock.now())
            conditions = [*conditions, {**condition, "lastUpdateTime": now}]
        decided = {**request, "status": {**status, "conditions": conditions}}
        try:
            await invocation.client.update(decided, resource=_REQUESTS, subresource="approval")
            return
        except Conflict:
            if attempt == _TRIES:
                raise


_FLAGS = (*OUTPUT, *FILES, switch("force", help="Update the CSR even if it is already so."))
COMMAND = Command(
    "Modify certificate resources",
    children={
        "approve": Command(
            "Approve a certificate signing request",
            _deciding("Approved", "Denied", "KubectlApprove", "approved", "approve"),
            _FLAGS,
            usage="(-f FILENAME | NAME)",
            about="""
            The requester can act as the user of the certificate: check the request before you approve it.
            """,
            examples="""
            setpoint certificate approve csr-sqgzp
            """,
        ),
        "deny": Command(
            "Deny a certificate signing request",
            _deciding("Denied", "Approved", "KubectlDeny", "denied", "deny"),
            _FLAGS,
            usage="(-f FILENAME | NAME)",
            examples="""
            setpoint certificate deny csr-sqgzp
            """,
        ),
    },
    usage="SUBCOMMAND",
)
