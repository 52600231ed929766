"""What a server says about controllers while others share its store: their clients are not known to it."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import urlencode

from several_servers import LEASES, MaintainedServer, advance

from setpoint.meta.times import format_micro

Pair = tuple[MaintainedServer, MaintainedServer]
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
LEASE = f"{LEASES}/kube-controller-manager"


async def sentence(server: MaintainedServer, **which: str) -> str:
    query = {"group": "apps", "resource": "deployments", "namespace": "default", "name": "web", "not": "true", **which}
    reply = await server.get(f"/setpoint/v1/why?{urlencode(query)}")
    assert reply.status == 200, reply.body
    return str(reply.json["sentence"])


async def test_whether_a_controller_runs_is_known_by_its_lease(pair: Pair) -> None:
    one, other = pair
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    await one.make(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec})
    await advance(0.1, *pair)
    unled = "No kube-controller-manager holds its Lease: deployment-controller does not run, unless it does so without "
    for server in pair:
        assert (await sentence(server)).startswith(unled)

    # A controller manager leads; with which server it speaks is not known to the other one.
    renewed = format_micro(one.clock.now())
    lease = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": renewed, "acquireTime": renewed}
    await one.make(LEASES, {"metadata": {"name": "kube-controller-manager"}, "spec": lease})
    await advance(0.1, *pair)
    for server in pair:
        assert "does not run" not in await sentence(server)
    await advance(20, *pair)
    assert "kube-controller-manager has had no leader for" in await sentence(other)

    # The last server knows all clients there are.
    later = {**lease, "renewTime": format_micro(one.clock.now() + timedelta(seconds=60))}
    await one.patch(LEASE, {"spec": later})
    await advance(0.1, *pair)
    assert "does not run" not in await sentence(other)
    await one.stop()
    await other.clock.advance(0)
    assert await sentence(other) == "deployment-controller does not run."
