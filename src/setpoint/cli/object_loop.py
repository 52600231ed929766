"""`setpoint status TYPE/NAME`: the desired and the observed state of one object, in the words of `setpoint watch`."""

from __future__ import annotations

from setpoint.cli.escaping import escaped
from setpoint.cli.failures import Failed
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import choose
from setpoint.client.resources import builtin
from setpoint.view.loop import Loop, Related, look, pods_of


async def show(invocation: Invocation) -> None:
    """Print the loop of the object that the arguments name."""
    if invocation.flags.at:
        from setpoint.cli.past import read_at  # rarely needed

        read_at(invocation, invocation.flags.at)
    chosen = await choose(invocation, list(invocation.args))
    if len(chosen.targets) != 1:
        raise Failed("name one object: `setpoint status deployment/web`")
    target = chosen.targets[0]
    resource = target.resource
    obj = await invocation.client.get(resource, target.name, target.namespace)
    pods = None
    if pods_of(resource.group, resource.kind, obj, ()) is not None:
        listed = await invocation.client.list(builtin("pods"), target.namespace)
        pods = pods_of(resource.group, resource.kind, obj, listed.items)
    loop = look(resource.group, resource.kind, obj, Related(invocation.io.clock.now(), pods))
    invocation.print(f"{resource.kind} {target.name} is {loop.phase}.")
    for line in loop_lines(loop):
        invocation.print(escaped(line))


def loop_lines(loop: Loop) -> list[str]:
    """Return the loop as lines of text."""
    rows = [
        ("desired", ", ".join(loop.desired)),
        ("observed", ", ".join(loop.observed)),
        ("drift", loop.note or "none"),
        ("action", loop.action),
    ]
    return [f"  {name:<8}  {value}" for name, value in rows if value]
