"""The feed `versions`: an object at two revisions, for their comparison.

Arguments: `group`, `version`, `resource`, `namespace`, `name`; `from` and `to`, revisions. The items `from` and `to`
are `{"object": {...}}`. Values of a Secret are numbered instead of shown: equal values have equal numbers. The feed
ends when both are read.
"""

from __future__ import annotations

from setpoint.client.resources import path_of
from setpoint.meta.errors import BadRequest
from setpoint.view.secrets import SecretMask
from setpoint.web.feed import Args, FeedOutput, PageContext
from setpoint.web.feeds.differences import revision_argument
from setpoint.web.feeds.yaml import find_resource


async def run(ctx: PageContext, args: Args, output: FeedOutput) -> None:
    if "/at/" in ctx.cluster:
        raise BadRequest("name both revisions in the arguments")
    resource, namespace, name = await find_resource(ctx, args)
    mask = SecretMask() if (resource.group, resource.plural) == ("", "secrets") else None
    for which in ("from", "to"):
        revision = revision_argument(args, which)
        found = await ctx.client.sender.json("GET", f"/at/{revision}{path_of(resource, namespace, name)}")
        output.set(which, {"object": mask.masked(found) if mask is not None else found})
    output.synced()
