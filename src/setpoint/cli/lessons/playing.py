"""Plays a lesson that needs no learner: `setpoint demo` runs one on a cluster of its own, scene by scene."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from textwrap import indent
from typing import Final, NamedTuple

from setpoint.cli.failures import Failed
from setpoint.cli.invocation import Invocation
from setpoint.cli.lessons.rendering import DIM, GREEN, Renderer
from setpoint.cli.lessons.typing import TypedTerminal, typed_terminal
from setpoint.cluster.allinone import controller_options
from setpoint.cluster.components import ComponentOptions
from setpoint.cluster.embedded import EmbeddedOptions, embedded_cluster
from setpoint.cluster.fork_controls import ForkControls
from setpoint.node.options import FleetOptions, NodeTemplate
from setpoint.system import RandomIds
from setpoint.view.course.blocks import CheckBlock, FaultBlock, Part, Run, StarterFile, Text
from setpoint.view.course.checks import Check
from setpoint.view.course.lesson import Lesson, read_lesson
from setpoint.view.course.markdown import plain_text
from setpoint.web.lessons.actions import LessonActions
from setpoint.web.lessons.folder import DEMO, package_file
from setpoint.web.lessons.observer import Observer

_POLL: Final = 0.05
_LONGEST: Final = 60.0
_SERVICES: Final = "10.96.0.0/12"
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


class Scene(NamedTuple):
    title: str
    parts: list[Part]


def demo_lesson() -> Lesson:
    """Return the lesson that `setpoint demo` plays."""
    return read_lesson("demo", DEMO, package_file(DEMO))


def scenes_of(lesson: Lesson) -> list[Scene]:
    """Return the parts of a lesson between its headings of the first level."""
    found: list[Scene] = []
    for part in lesson.parts:
        if not isinstance(part, Text):
            found[-1].parts.append(part)
            continue
        for block in part.blocks:
            if block["type"] == "heading" and block["level"] == 1:
                found.append(Scene(plain_text(block["inline"]), []))
            else:
                found[-1].parts.append(Text([block]))
    return found


class Player:
    """Plays scenes on one cluster."""

    def __init__(
        self, invocation: Invocation, terminal: TypedTerminal, observer: Observer, actions: LessonActions, wait: bool
    ) -> None:
        """`wait` says whether to wait for Enter after each scene."""
        self._invocation = invocation
        self._terminal = terminal
        self._observer = observer
        self._actions = actions
        self._wait = wait
        self._colour = invocation.io.colour
        self._renderer = Renderer(self._colour)

    async def play(self, scene: Scene) -> None:
        self._show("\n" + self._renderer.title(scene.title) + "\n")
        for part in scene.parts:
            await self._play(part)
        if self._wait:
            self._invocation.print(self._renderer.painted("[Enter]", DIM), end="")
            self._invocation.flush()
            self._wait = bool(await self._invocation.io.read_line())
            self._show("")

    async def _play(self, part: Part) -> None:
        match part:
            case Text(blocks):
                self._show(self._renderer.blocks(blocks) + "\n")
            case StarterFile(name, text):
                self._terminal.write_file(name, text)
                self._show(self._renderer.part(part) + "\n")
            case Run(_, commands):
                for command in commands:
                    await self._type(command)
            case FaultBlock(faults):
                for fault in faults:
                    await self._actions.fault(fault)
            case CheckBlock(check):
                await self._until(check)

    async def _type(self, command: str) -> None:
        self._show(self._renderer.painted(f"$ {command}", GREEN))
        typed = await self._terminal.type(command)
        text = typed.output if self._colour else _COLOURS.sub("", typed.output)
        self._show(indent(text.rstrip("\n"), "  ") + "\n")

    async def _until(self, check: Check) -> None:
        clock = self._invocation.io.clock
        end = clock.monotonic() + _LONGEST
        while True:
            await self._observer.read_writes()
            if await self._observer.is_met(check):
                return
            if clock.monotonic() > end:
                raise Failed(f"this was to happen and did not: {check.message}. Please report it, with the lines above")
            await clock.sleep(_POLL)

    def _show(self, text: str) -> None:
        self._invocation.print(text)
        self._invocation.flush()


@asynccontextmanager
async def player(invocation: Invocation, lesson: Lesson) -> AsyncIterator[Player]:
    """Run a cluster in this process and in memory: no other cluster is touched, and nothing is left behind."""
    clock, ids = invocation.io.clock, RandomIds()
    # The default timeouts for lost nodes are too long for a demo.
    settings = replace(
        controller_options(None, nodes=lesson.start.nodes, services=_SERVICES),
        node_monitor_period=0.5,
        node_monitor_grace_period=4.0,
    )
    fleet = FleetOptions(lesson.start.nodes, NodeTemplate(lease_seconds=4))
    options = EmbeddedOptions(
        ComponentOptions(nodes=lesson.start.nodes, controller_options=settings, fleet=fleet, identity="demo")
    )
    wait = invocation.io.in_is_terminal and not invocation.flags.no_wait
    async with embedded_cluster(clock, ids, options) as cluster:
        controls = ForkControls()
        async with controls.serving(cluster, clock, ids), typed_terminal(cluster.client, clock, ids.suffix) as terminal:
            observer = Observer(cluster.client, clock, lesson, await Observer.newest(cluster.client))
            actions = LessonActions(cluster.client, clock, lambda wanted: controls.change(cluster, dict(wanted)))
            yield Player(invocation, terminal, observer, actions, wait)
