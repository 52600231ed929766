"""The names of images, the rules that give them properties, and the command lines of their containers."""

from __future__ import annotations

import re
from typing import Any

import pytest

from setpoint.node.pace import DurationRange
from setpoint.node.runtime.images import (
    ImageRule,
    SimulatedImageService,
    command_line,
    parse_reference,
    reference_problem,
)

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("image", "name", "repository"),
    [
        ("nginx", "docker.io/library/nginx:latest", "docker.io/library/nginx"),
        ("nginx:1.29", "docker.io/library/nginx:1.29", "docker.io/library/nginx"),
        ("docker.io/nginx", "docker.io/library/nginx:latest", "docker.io/library/nginx"),
        ("index.docker.io/nginx", "docker.io/library/nginx:latest", "docker.io/library/nginx"),
        ("docker.io/me/app", "docker.io/me/app:latest", "docker.io/me/app"),
        ("me/app", "docker.io/me/app:latest", "docker.io/me/app"),
        ("registry.example/nginx", "registry.example/nginx:latest", "registry.example/nginx"),
        ("localhost:5000/x:1", "localhost:5000/x:1", "localhost:5000/x"),
        (f"nginx@{DIGEST}", f"docker.io/library/nginx@{DIGEST}", "docker.io/library/nginx"),
        (f"nginx:1.29@{DIGEST}", f"docker.io/library/nginx@{DIGEST}", "docker.io/library/nginx"),
    ],
)
def test_references_are_normalized(image: str, name: str, repository: str) -> None:
    found = parse_reference(image)
    assert found is not None
    assert found[:2] == (name, repository)
    assert (found.digest == DIGEST) is ("@" in image)
    service = SimulatedImageService()
    info = service.info(image)
    assert info is not None
    assert (info.name, info.id) == (name, f"{repository}@{found.digest}")


def test_different_tags_have_different_content() -> None:
    digests = {found.digest for tag in ("1", "2", "latest") if (found := parse_reference(f"nginx:{tag}")) is not None}
    assert len(digests) == 3
    assert parse_reference("nginx") == parse_reference("docker.io/library/nginx:latest")


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("UPPER:1", "library/UPPER"),
        ("me/App:1", "me/App"),
        ("registry.example/App", "App"),
        ("Host/App", "App"),
        ("localhost:5000/a/B:C", "a/B"),
    ],
)
def test_repositories_must_be_lowercase(image: str, name: str) -> None:
    assert reference_problem(image) == f"invalid reference format: repository name ({name}) must be lowercase"


def test_other_problems_of_references() -> None:
    assert reference_problem("a b") == reference_problem("nginx:") == "invalid reference format"
    assert reference_problem("nginx:1.29") == ""


@pytest.mark.parametrize("image", ["UPPER", "a b", "nginx:", "nginx@sha256:short", ""])
def test_invalid_references_are_no_images(image: str) -> None:
    assert parse_reference(image) is None
    assert SimulatedImageService().info(image) is None


def test_a_rule_with_an_invalid_pattern_is_refused_at_once() -> None:
    with pytest.raises(re.error):
        SimulatedImageService([ImageRule("(")])


def test_rules_of_the_user_precede_the_built_in_ones() -> None:
    """A rule decides only the properties that it sets."""
    rules = [ImageRule(r"/nginx:1\.", pull_seconds=9.0, ports=(81,)), ImageRule("missing", error="")]
    service = SimulatedImageService(rules, DurationRange(2.0, 2.0))
    changed, other = service.info("nginx:1.29"), service.info("nginx:2")
    assert changed is not None and other is not None
    assert (changed.pull_seconds, changed.ports, changed.is_server) == (9.0, (81,), True)
    assert (other.pull_seconds, other.ports) == (2.0, (80,))
    assert changed.size_bytes == other.size_bytes != 50_000_000
    allowed, refused = service.info("missing-image"), SimulatedImageService().info("missing-image")
    assert allowed is not None and refused is not None
    assert allowed.error == ""
    assert "pull access denied" in refused.error


@pytest.mark.parametrize(
    ("image", "error"),
    [
        ("nginx:no-such-tag", "docker.io/library/nginx:no-such-tag: not found"),
        ("nosuch.invalid/a/b:1", 'Head "https://nosuch.invalid/v2/a/b/manifests/1": dial tcp: lookup nosuch.invalid'),
        (f"nosuch.invalid/a@{DIGEST}", f'Head "https://nosuch.invalid/v2/a/manifests/{DIGEST}": dial tcp'),
        ("nginx", ""),
    ],
)
def test_errors_of_pulls_are_those_of_a_registry(image: str, error: str) -> None:
    info = SimulatedImageService().info(image)
    assert info is not None
    assert error in info.error
    assert bool(info.error) is bool(error)


def test_the_number_of_cached_images_is_bounded() -> None:
    service = SimulatedImageService()
    for number in range(10_100):
        service.info(f"a{number}")
    assert len(service._known) < 10_100
    assert service.info("a1") is service.info("a1")


@pytest.mark.parametrize(
    ("image", "given", "expected"),
    [
        ("busybox", {}, ["sh"]),
        ("busybox", {"args": ["echo", "a"]}, ["echo", "a"]),
        ("busybox", {"command": ["echo"], "args": ["a"]}, ["echo", "a"]),
        ("busybox", {"command": ["echo"]}, ["echo"]),
        ("registry.k8s.io/e2e-test-images/agnhost:2.62.0", {}, ["/agnhost", "pause"]),
        ("registry.k8s.io/e2e-test-images/agnhost:2.62.0", {"args": ["netexec"]}, ["/agnhost", "netexec"]),
        ("registry.k8s.io/e2e-test-images/agnhost:2.62.0", {"command": ["/agnhost"]}, ["/agnhost"]),
        ("nginx", {}, None),
        ("nginx", {"args": ["-g", "daemon off;"]}, None),
        ("UPPER", {}, None),
        ("UPPER", {"command": ["a"]}, ["a"]),
    ],
)
def test_command_lines(image: str, given: dict[str, Any], expected: list[str] | None) -> None:
    """As in Kubernetes, `command` replaces the entrypoint and the command of the image, `args` only its command."""
    assert command_line(given, SimulatedImageService().info(image)) == expected
