"""Who wrote which line of an object."""

from __future__ import annotations

from setpoint.client.resources import builtin
from setpoint.testing import VirtualCluster, virtual
from setpoint.view.field_owners import field_text, owned_text

DEPLOYMENTS = builtin("deployments", "apps")


@virtual(nodes=1)
async def test_lines_have_the_managers_of_their_fields(cluster: VirtualCluster) -> None:
    client = cluster.client
    container = {"name": "c", "image": "nginx", "ports": [{"containerPort": 80}], "args": ["one\ntwo\n"]}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    web = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    await client.apply(web, field_manager="ann")
    scaled = {**{key: web[key] for key in ("apiVersion", "kind", "metadata")}, "spec": {"replicas": 3}}
    await client.apply(scaled, field_manager="bob", force=True)
    patch = {"metadata": {"labels": {"tier": "x"}}}
    await client.patch(DEPLOYMENTS, "web", patch, "default", field_manager="carl")
    await cluster.settle()

    found = owned_text(await client.get(DEPLOYMENTS, "web", "default"))
    owners = {line.field: [found.managers[at].shown for at in line.owners] for line in found.lines}
    assert owners["spec.replicas"] == ["bob"]
    assert owners["metadata.labels.tier"] == ["carl"]
    assert owners["spec.selector.matchLabels.app"] == ["ann"]
    assert owners["spec.template.spec.containers[0].image"] == ["ann"]
    assert owners["spec.template.spec.containers[0].ports[0].containerPort"] == ["ann"]
    assert owners["status.readyReplicas"] == ["kube-controller-manager (status)"]
    assert owners["spec"] == [] and owners["metadata.uid"] == []
    defaults = {line.field for line in found.lines if line.is_default}
    assert {"metadata.uid", "spec.revisionHistoryLimit", "spec.template.spec.dnsPolicy"} <= defaults
    assert not {"spec", "spec.template", "spec.replicas", "status.readyReplicas"} & defaults
    assert "managedFields" not in "".join(line.text for line in found.lines)
    # The lines of a text of several lines have the owner of its field.
    folded = [line for line in found.lines if line.field == "spec.template.spec.containers[0].args[0]"]
    assert len(folded) == 3 and {line.owners for line in folded} == {folded[0].owners} and folded[0].owners


def test_objects_without_managers_and_with_odd_ones() -> None:
    plain = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "y"}}
    assert all(not line.owners for line in owned_text(plain).lines)
    odd = {
        **plain,
        "metadata": {
            "name": "a",
            "managedFields": [
                {"manager": "m", "fieldsV1": {"f:data": {"f:x": {}, "k:{": {}, "v:1": {}, "i:x": {}, "f:gone": {}}}},
                {"manager": "none"},
                {"fieldsV1": 5},
            ],
        },
    }
    found = owned_text(odd)
    assert [line.owners for line in found.lines if line.field == "data.x"] == [(0,)]
    assert field_text(("a", 0, "b.c", 1)) == "a[0].b.c[1]"
