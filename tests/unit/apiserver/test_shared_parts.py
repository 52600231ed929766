"""Parts that decoded objects share: nothing that a reader sees changes, and equal parts exist once."""

from __future__ import annotations

import random
from copy import deepcopy
from typing import Any

import pytest
from watch_caches import cache_of, write

from setpoint.apiserver.shared_parts import Siblings


async def test_equal_parts_of_siblings_are_one_object() -> None:
    cache, _ = await cache_of(3)
    before = [deepcopy(entry.obj) for entry in cache.scan()]
    assert cache.settle(10**6, 100)
    first, second, third = (entry.obj for entry in cache.scan())
    for other in (second, third):
        assert other["spec"]["containers"] is first["spec"]["containers"]
        assert other["status"] is first["status"]
        assert other["metadata"]["labels"] is first["metadata"]["labels"]
        assert other["spec"] is not first["spec"]
    assert [entry.obj for entry in cache.scan()] == before


async def test_small_objects_do_not_share_parts() -> None:
    cache, store = await cache_of(0)
    for name in ("one", "two"):
        await write(cache, store, {"metadata": {"name": name, "uid": "u"}, "spec": {"renewTime": "now"}})
    assert cache.settle(10**6, 3)
    first, second = (entry.obj for entry in cache.scan())
    assert second["spec"] is not first["spec"]


async def test_the_form_for_clients_in_the_process_shares_the_same_parts() -> None:
    cache, _ = await cache_of(2)
    for entry in cache.scan():
        entry.whole = {"kind": "Pod", "apiVersion": "v1", **entry.obj}
    cache.settle(10**6, 100)
    first, second = (entry.whole for entry in cache.scan())
    assert first is not None
    assert second is not None
    assert second["status"] is first["status"]
    assert second["kind"] == "Pod"


async def test_a_form_with_parts_of_its_own_keeps_them() -> None:
    cache, _ = await cache_of(2)
    entry = [*cache.scan()][1]
    own = deepcopy(entry.obj["status"])
    entry.whole = {"kind": "Pod", "apiVersion": "v1", **entry.obj, "status": own}
    cache.settle(10**6, 100)
    assert entry.whole["status"] is own, "it may have been converted"


def random_json(rng: random.Random, depth: int) -> Any:
    kind = rng.randrange(8 if depth else 6)
    if kind == 6:
        names = rng.sample("abcd", rng.randrange(5))
        return {name: random_json(rng, depth - 1) for name in names}
    if kind == 7:
        return [random_json(rng, depth - 1) for _ in range(rng.randrange(4))]
    return rng.choice([None, True, False, 0, 1, 1.0, 0.0, -0.0, "", "x", "text that is longer " * 2, 10**20, 1000])


def exact(value: Any) -> str:
    """Return a text that differs whenever JSON values differ in type, order or sign."""
    return repr(value)


@pytest.mark.parametrize("seed", range(20))
def test_every_object_stays_the_same_json(seed: int) -> None:
    rng, siblings = random.Random(seed), Siblings()
    objects = [{name: random_json(rng, 4) for name in rng.sample("abcd", 4)} for _ in range(60)]
    objects += [deepcopy(rng.choice(objects)) for _ in range(60)]
    before = [exact(each) for each in objects]
    for number, each in enumerate(objects):
        siblings.share(f"core/things/x-{number % 3}-{number}", each)
        siblings.share("core/things/other", each)
    assert [exact(each) for each in objects] == before


def test_objects_with_another_order_of_members_stay_apart() -> None:
    siblings, first, second = Siblings(), {"spec": {"a": 1, "b": 2}}, {"spec": {"b": 2, "a": 1}}
    siblings.share("core/things/x-1", first)
    siblings.share("core/things/x-2", second)
    assert [*second["spec"]] == ["b", "a"]


def test_the_number_of_siblings_is_bounded() -> None:
    siblings = Siblings()
    for number in range(2_000):
        siblings.share(f"core/pods/default/set{number}-a", {"metadata": {}})
    assert len(siblings._latest) <= 256
