"""The detector that all these tests run under does see a change."""

from __future__ import annotations

from front_door import FrontDoor
from mutation_detector import MutationDetector


async def test_a_changed_shared_object_is_found() -> None:
    detector = MutationDetector()
    detector.install()
    try:
        door = await FrontDoor.open()
        await door.make("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "c"}, "data": {"a": "b"}})
        registry = door.api.registry("", "configmaps")
        detector.check()
        registry.get("default", "c").obj["data"]["a"] = "z"
        assert [key.partition("@")[0] for key in detector.changed()] == ["core/configmaps/default/c"]
        registry.get("default", "c").obj["data"]["a"] = "b"
        await door.close()
    finally:
        detector.remove()
