"""How long operations take on simulated nodes, and which images exist."""

from __future__ import annotations

from typing import Any

import pytest

from setpoint.client.resources import builtin
from setpoint.cluster.allinone import faster_controllers, faster_fleet, faster_server
from setpoint.cluster.config import NO_DATA_DIR, ApiServerConfig
from setpoint.controllers.options import ControllerOptions
from setpoint.node.options import FleetOptions, NodeTemplate
from setpoint.node.pace import FAST, REAL, DurationRange
from setpoint.node.runtime.images import closest_well_known_image, edit_distance
from setpoint.testing import VirtualCluster, virtual

PODS = builtin("pods")


async def start(cluster: VirtualCluster, name: str, image: str, *command: str, **spec: Any) -> None:
    container = {"name": "c", "image": image, **({"command": list(command)} if command else {})}
    await cluster.client.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [container], **spec},
        }
    )


async def waiting_state(cluster: VirtualCluster, name: str) -> tuple[str, str]:
    """Return reason and message of the waiting state, or the name of another state."""
    pod = await cluster.client.get(PODS, name, "default")
    (status,) = pod["status"].get("containerStatuses") or [{"state": {"waiting": {"reason": "none"}}}]
    state = status["state"]
    reason = state.get("waiting", {}).get("reason") or next(iter(state))
    return reason, state.get("waiting", {}).get("message", "")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("nignx", "nginx"),
        ("ngnix", "nginx"),
        ("nginxx", "nginx"),
        ("busybxo", "busybox"),
        ("postgress", "postgres"),
        ("pyhton", "python"),
        ("ndoe", "node"),
        ("elasticserach", "elasticsearch"),
        ("reids", "redis"),
        ("gninx", "nginx"),
        ("xginx", ""),
        ("elastisearc", "elasticsearch"),
        ("elasticse", ""),
        ("wordpresss", "wordpress"),
        ("pstgrs", ""),
        ("nginx", ""),
        ("node", ""),
        ("code", ""),
        ("nodes", ""),
        ("web", ""),
        ("app", ""),
        ("server", ""),
        ("store", ""),
        ("mysql8", ""),
        ("traffic", ""),
        ("register", ""),
        ("hello", ""),
    ],
)
def test_misspelled_names_are_recognized(name: str, meant: str) -> None:
    assert closest_well_known_image(f"docker.io/library/{name}") == meant
    assert (
        closest_well_known_image(f"registry.example/{name}") == "" == closest_well_known_image(f"docker.io/me/{name}")
    )


def test_edit_distance() -> None:
    assert [edit_distance("abcd", each) for each in ("abcd", "abdc", "abc", "abcde", "abxd", "badc", "xyz")] == [
        0,
        1,
        1,
        1,
        1,
        2,
        3,
    ]


@virtual(nodes=1, fleet=FleetOptions(reject_misspelled_images=True))
async def test_a_misspelled_image_cannot_be_pulled(cluster: VirtualCluster) -> None:
    await start(cluster, "typo", "nignx")
    await start(cluster, "own", "my-own-app:3")
    denied = (
        'failed to pull and unpack image "docker.io/library/nignx:latest": failed to resolve reference '
        '"docker.io/library/nignx:latest": pull access denied, repository does not exist or may require '
        "authorization: server message: insufficient_scope: authorization failed"
    )
    await cluster.sleep(0.5)
    reason, message = await waiting_state(cluster, "typo")
    assert reason == "ErrImagePull" and message.endswith(denied)
    await cluster.sleep(3)
    reason, message = await waiting_state(cluster, "typo")
    assert reason == "ImagePullBackOff" and message.startswith('Back-off pulling image "nignx": ErrImagePull: ')
    assert (await waiting_state(cluster, "own"))[0] == "running"


@virtual(nodes=1)
async def test_any_image_is_accepted_by_default(cluster: VirtualCluster) -> None:
    await start(cluster, "typo", "nignx")
    await cluster.sleep(0.1)
    assert (await waiting_state(cluster, "typo"))[0] == "running"


@virtual(nodes=1, fleet=FleetOptions(pace=REAL))
async def test_a_real_pace_shows_the_states_of_a_starting_container(cluster: VirtualCluster) -> None:
    await start(cluster, "first", "nginx")
    await cluster.sleep(0.9)
    assert (await waiting_state(cluster, "first"))[0] == "ContainerCreating"
    await cluster.sleep(3)
    assert (await waiting_state(cluster, "first"))[0] == "running"
    seconds = REAL.pull.sample("docker.io/library/nginx:latest")
    told = [text for _, reason, text in await cluster.events("first") if reason == "Pulled"]
    assert told[0].startswith(f'Successfully pulled image "nginx" in {seconds:g}s')
    # The image is present already: the creation of the container takes the time.
    await start(cluster, "third", "nginx")
    await cluster.sleep(0.3)
    assert (await waiting_state(cluster, "third"))[0] == "ContainerCreating"
    await cluster.sleep(0.8)
    assert (await waiting_state(cluster, "third"))[0] == "running"
    await cluster.client.delete(PODS, "third", "default")
    await cluster.sleep(0.2)
    assert "deletionTimestamp" in (await cluster.client.get(PODS, "third", "default"))["metadata"]
    await cluster.sleep(1)
    assert await cluster.find(PODS, "third") is None


@virtual(nodes=1, fleet=FleetOptions(pace=FAST))
async def test_a_fast_pace_shortens_back_offs(cluster: VirtualCluster) -> None:
    await start(cluster, "crash", "busybox", "false")
    await cluster.sleep(12)
    (status,) = (await cluster.client.get(PODS, "crash", "default"))["status"]["containerStatuses"]
    assert status["restartCount"] >= 3
    told = [text for _, reason, text in await cluster.events("crash") if reason == "BackOff"]
    assert told
    message = (await waiting_state(cluster, "crash"))[1]
    assert not message or "back-off 8s restarting" in message


def test_a_fast_pace_shortens_configurable_periods() -> None:
    controllers = faster_controllers(ControllerOptions(), FAST.speed)
    assert (controllers.node_monitor_grace_period, controllers.node_eviction_rate) == (5.0, 1.0)
    assert controllers.horizontal_pod_autoscaler_downscale_stabilization == 30.0
    assert faster_fleet(FleetOptions(pace=FAST)).template.lease_seconds == 4
    own = FleetOptions(template=NodeTemplate(lease_seconds=20), pace=FAST)
    assert faster_fleet(own).template.lease_seconds == 20, "what was said is kept"
    config = ApiServerConfig(NO_DATA_DIR, default_unreachable_toleration_seconds=7)
    faster = faster_server(config, FAST.speed)
    assert faster.default_not_ready_toleration_seconds == 30
    assert faster.default_unreachable_toleration_seconds == 7
    assert faster_server(config, 1) is config


def test_a_range_samples_the_same_duration_for_the_same_key() -> None:
    span = DurationRange(1.0, 2.0)
    times = [span.sample(f"image-{number}") for number in range(50)]
    assert times == [span.sample(f"image-{number}") for number in range(50)]
    assert min(times) >= 1.0 and max(times) <= 2.0 and len(set(times)) > 40
