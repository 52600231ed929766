"""`auth whoami`."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.invocation import Invocation
from setpoint.cli.tabwriter import align
from setpoint.cli.writing import OUTPUT, Results
from setpoint.meta.errors import Forbidden, NotFound
from setpoint.meta.goformat import plain


async def run(invocation: Invocation) -> None:
    results = Results(invocation)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {}}
    try:
        answer = await invocation.client.create(review)
    except Forbidden:
        raise Failed(
            "the selfsubjectreviews API is not enabled in the cluster or you do not have permission to call it"
        ) from None
    except NotFound:
        raise Failed("the selfsubjectreviews API is not enabled in the cluster") from None
    if results.has_format:
        results.add(answer, "", typed=True)
        return
    user = (answer.get("status") or {}).get("userInfo") or {}
    rows = [("ATTRIBUTE", "VALUE")]
    rows += [(name, user[key]) for name, key in (("Username", "username"), ("UID", "uid")) if user.get(key)]
    if user.get("groups"):
        rows.append(("Groups", plain(user["groups"])))
    extra = user.get("extra") or {}
    rows += [(f"Extra: {key}", plain(extra[key])) for key in sorted(extra)]
    invocation.print(align("\n".join(map("\t".join, rows)), least=6, padding=3))


COMMAND = Command(
    "Check self subject attributes",
    run,
    OUTPUT,
    usage="",
    about="As the server sees you, after all authentication and impersonation.",
    examples="""
    setpoint auth whoami
    """,
)
