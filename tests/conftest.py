from __future__ import annotations

import gc
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent / "support"))
sys.path.insert(1, str(Path(__file__).parents[1]))  # for the examples

from effort import THOROUGH, tries
from store_choice import STORES

# How long an example takes says nothing about the code, on machines that do other things too. The examples are the same
# in every run, so that a run fails because of the change it tests; thorough runs look for new ones.
settings.register_profile(
    "setpoint",
    max_examples=tries(50, 200),
    deadline=None,
    derandomize=not THOROUGH,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("setpoint")

if TYPE_CHECKING:
    from local_server import LocalServer

    from setpoint.client import Client


# While tests are collected hardly anything is thrown away.
gc.disable()


LONGEST_FIRST = (
    "page/test_learn_solutions.py",
    "page/test_learn.py",
    "page/test_accessibility.py",
    "page/test_terminal.py",
    "page/test_slow_tab.py",
    "scenarios/test_high_availability.py",
    "scenarios/test_lessons.py",
    "scenarios/test_crashes.py",
    "interop/test_tutorial_commands.py",
    "interop/test_kubectl_stories.py",
    "interop/test_compare_writing.py",
    "page/test_class.py",
    "real/test_agent_crashes.py",
    "real/test_three_tier.py",
    "real/test_lifecycle.py",
    "real/test_postgres_cluster.py",
    "real/test_images.py",
    "real/test_three_machines.py",
    "contracts/test_store.py",
    "unit/testing/test_plugin.py",
    "unit/web/test_lesson_conversation.py",
)
"""The files that take longest. Workers take whole files, and one that began such a file last would end after all others."""


ABOVE_THE_STORE = (
    *(f"unit/{each}/" for each in ("controllers", "node", "reconcile", "scheduler", "sdk")),
    "examples/",
)
"""The suites that thorough runs repeat on lagging stores."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the longest files begin first."""
    ranks = {Path(__file__).parent / name: rank for rank, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


def pytest_collection_finish() -> None:
    """What is there now stays until the end: it need not be looked at each time that garbage is collected. And many
    tests leave a whole cluster behind, at once."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--store",
        choices=STORES,
        default="memory",
        help="the store on which servers and clusters work: `lagging` shows nothing earlier than the contract demands; "
        "`two-views` is the same, and the components of a virtual cluster have a view of their own",
    )
    parser.addoption("--lag-seed", type=int, default=1, help="another seed for the lags of these stores")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of modules that name `STORES` on each of them, and in a thorough run all that may use a server."""
    if metafunc.config.getoption("store") != "memory" or metafunc.definition.get_closest_marker("memory_store"):
        return
    path = metafunc.definition.path.relative_to(Path(__file__).parent).as_posix()
    default = STORES if THOROUGH and path.startswith(ABOVE_THE_STORE) else ()
    if stores := getattr(metafunc.module, "STORES", default):
        metafunc.parametrize("chosen_store", stores, indirect=True)


@pytest.fixture(autouse=True)
def chosen_store(request: pytest.FixtureRequest) -> Iterator[None]:
    """Choose the store of the servers and clusters that the test makes."""
    kind: str = getattr(request, "param", request.config.getoption("store"))
    if kind == "memory":
        yield
        return
    if mark := request.node.get_closest_marker("memory_store"):
        pytest.skip(mark.args[0])
    # Imported here so that tests that need no server do not load one.
    from chosen_stores import on_lagging_stores

    with on_lagging_stores(kind, request.config.getoption("lag_seed")):
        yield


@pytest.fixture(autouse=True)
def nothing_shared_is_changed() -> Iterator[None]:
    """What components in one process are given, all of them share: after the test it must still be what it was."""
    if "setpoint.apiserver.watch_cache" not in sys.modules:
        yield  # a test of a small room, without a server
        return
    from mutation_detector import nothing_shared_is_changed

    with nothing_shared_is_changed():
        yield


@pytest.fixture
async def local_server(tmp_path: Path) -> AsyncIterator[LocalServer]:
    """A whole API server in the test's own process: `.client` is its administrator, `.clock` stands still."""
    # Imported here so that tests that need no server do not load one.
    from local_server import local_server

    async with local_server(tmp_path) as server:
        yield server


@pytest.fixture
def client(local_server: LocalServer) -> Client:
    return local_server.client
