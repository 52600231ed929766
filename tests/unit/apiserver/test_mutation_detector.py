"""The detector of modified shared objects, under which these tests run."""

from __future__ import annotations

from mutation_detector import MutationDetector
from server_harness import ServerHarness


async def test_a_changed_shared_object_is_found() -> None:
    detector = MutationDetector()
    detector.install()
    try:
        harness = await ServerHarness.open()
        await harness.make("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "c"}, "data": {"a": "b"}})
        registry = harness.api.resources.registry("", "configmaps")
        detector.check()
        registry.get("default", "c").obj["data"]["a"] = "z"
        assert [key.partition("@")[0] for key in detector.changed()] == ["core/configmaps/default/c"]
        registry.get("default", "c").obj["data"]["a"] = "b"
        await harness.close()
    finally:
        detector.remove()
