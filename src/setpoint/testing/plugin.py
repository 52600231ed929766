"""The pytest plugin, which pytest finds by itself.

async def test_my_operator(cluster):                 # a whole cluster of its own, in virtual time
    async with cluster.running(my_operator):
        await cluster.client.create(my_object)
        await cluster.settle()
        await cluster.advance("1h")

async def test_with_a_clock(virtual_time):           # virtual time without a cluster, or the clock of its cluster
    await virtual_time.advance("5m")

@pytest.mark.cluster(nodes=100, seed=7)              # see `setpoint.testing.virtual_cluster` for the options
async def test_at_scale(cluster): ...

@pytest.mark.cluster(start=busy)                     # on a copy of what `@prepared async def busy(cluster)` has left
async def test_on_a_busy_one(cluster): ...

def test_whatever_happens(explore):                  # again under every single fault at every point
    explore(my_operator, scenario)

def test_in_any_language(live_cluster):              # in real time, over HTTPS: `live_cluster.kubeconfig`
    subprocess.run(["my-operator"], env={"KUBECONFIG": str(live_cluster.kubeconfig)})
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from setpoint.testing.exploring import Explored, Progress
    from setpoint.testing.live import LiveCluster


class _PlainImports:
    """Imports the modules of this package as usual.

    Pytest rewrites the assertions in all modules of a distribution with a plugin. This package has hundreds of modules
    and no assertions for users: the rewriting would only make each start of pytest slower, and the first one most.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, path, target) if name.startswith("setpoint.") else None


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    sys.meta_path.insert(0, _PlainImports)


def pytest_unconfigure() -> None:
    sys.meta_path.remove(_PlainImports)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cluster(**options): what the cluster of the test is like")


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: Any, name: str, obj: Any) -> list[Any] | None:
    """Collect async tests with a `cluster` or `virtual_time` parameter so that they run on a virtual loop."""
    if not inspect.iscoroutinefunction(obj) or not collector.istestfunction(obj, name):
        return None
    wanted = {"cluster", "virtual_time"} & inspect.signature(obj).parameters.keys()
    if not wanted or any(_is_overridden(each, collector) for each in wanted):
        return None
    # Imported here because a test run without such a test need not load a cluster.
    from setpoint.testing.cluster import virtual

    options: dict[str, Any] = {}
    for mark in collector.iter_markers("cluster"):
        options = {**mark.kwargs, **options}
    for mark in getattr(obj, "pytestmark", ()):
        if mark.name == "cluster":
            options |= mark.kwargs
    test = virtual(**options)(obj)
    setattr(collector.obj, name, test)
    return list(collector._genfunctions(name, test))


def _is_overridden(name: str, collector: Any) -> bool:
    """Return whether the test's module or a conftest overrides the fixture of this name."""
    return bool(collector.session._fixturemanager.getfixturedefs(name, collector))


@pytest.fixture
def live_cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LiveCluster]:
    """Run a cluster in real time, over HTTPS on a loopback port."""
    from setpoint.testing.live import live_cluster  # most test runs need no cluster

    options: dict[str, Any] = {}
    for mark in reversed(list(request.node.iter_markers("cluster"))):
        options |= mark.kwargs
    with live_cluster(tmp_path / "cluster", **options) as found:
        yield found


@pytest.fixture
def explore(request: pytest.FixtureRequest) -> Callable[..., Explored]:
    """Return `setpoint.testing.explore` with the options of the test's `cluster` mark."""
    from setpoint.testing.exploring import explore  # most test runs need no cluster

    options: dict[str, Any] = {}
    for mark in reversed(list(request.node.iter_markers("cluster"))):
        options |= mark.kwargs

    def with_options(*args: Any, **named: Any) -> Explored:
        __tracebackhide__ = True
        return explore(*args, **{"progress": _progress(request.config), **options, **named})

    return with_options


def _progress(config: pytest.Config) -> Progress:
    """Return a progress on pytest's own terminal: the output of tests is captured, and shown only when they fail."""
    from setpoint.system import SystemClock
    from setpoint.testing.exploring import Progress  # most test runs need no cluster

    capture, reporter = config.pluginmanager.getplugin("capturemanager"), config.get_terminal_writer()
    terminal = config.pluginmanager.getplugin("terminalreporter")

    before = "\n"  # start a new line after the dots of the tests

    def write(text: str) -> None:
        nonlocal before
        with capture.global_and_fixture_disabled():
            reporter.write(before + text, flush=True)
        before = ""

    return Progress(write, SystemClock().monotonic, live=bool(getattr(terminal, "isatty", False)))
