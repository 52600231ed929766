"""`setpoint demo`: show a running cluster step by step, with explanations."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed, first_of
from setpoint.cli.flags import switch
from setpoint.cli.invocation import Invocation
from setpoint.meta.errors import ApiError


async def run(invocation: Invocation) -> None:
    from setpoint.cli.lessons.playing import demo_lesson, player, scenes_of

    lesson = demo_lesson()
    scenes = scenes_of(lesson)
    wanted = [_number(word, len(scenes)) for word in invocation.args] or list(range(1, len(scenes) + 1))
    if wanted and 1 not in wanted:
        wanted.insert(0, 1)  # the other scenes use the objects of the first
    invocation.print("A cluster of its own is started for this, in memory. Yours, if you have one, is not touched.")
    try:
        async with player(invocation, lesson) as playing:
            for number in sorted(set(wanted)):
                await playing.play(scenes[number - 1])
    except* (Failed, ApiError) as found:
        raise first_of(found) from None
    invocation.print("`setpoint up` starts a cluster that stays; `setpoint lesson` lets you do all this yourself.")


def _number(word: str, most: int) -> int:
    if not word.isdigit() or not 1 <= int(word) <= most:
        raise Failed(f"unknown scene {word!r}: the scenes are 1 to {most}")
    return int(word)


COMMAND = Command(
    "See a control plane at work, one step at a time",
    run,
    (switch("no-wait", help="Do not wait for Enter after each scene."),),
    usage="[SCENE ...] [flags]",
    about="""
    Shows six scenes on a separate cluster: desired state and the controllers that reach it, a replaced Pod, controllers
    that were down, leader election, a lost node, and a Pod that cannot be scheduled yet.
    """,
    connects=False,
)
