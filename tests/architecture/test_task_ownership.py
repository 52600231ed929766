"""Every asyncio task belongs to a task group or to an owner in `setpoint/tasks.py`."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "setpoint"
OWNERS = "tasks.py"
SPELLINGS = ("create_task", "ensure_future", "Task", "run_coroutine_threadsafe", "gather", "as_completed")
TASK_GROUP = "asyncio.TaskGroup"


def task_groups(tree: ast.AST) -> set[str]:
    """Return the names and attributes that the module binds to a task group, or declares as one."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.withitem) and node.optional_vars is not None and _is_group(node.context_expr):
            found.add(ast.unparse(node.optional_vars))
        elif isinstance(node, ast.Assign) and _is_group(node.value):
            found.update(ast.unparse(target) for target in node.targets)
        elif isinstance(node, ast.AnnAssign) and TASK_GROUP in ast.unparse(node.annotation):
            found.add(ast.unparse(node.target))
        elif isinstance(node, ast.arg) and node.annotation is not None and TASK_GROUP in ast.unparse(node.annotation):
            found |= {node.arg, f"self.{node.arg}", f"self._{node.arg}"}
    return found


def _is_group(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func) == TASK_GROUP


def unowned_tasks(tree: ast.AST) -> set[str]:
    """Return the calls that create a task without an owner."""
    groups, found = task_groups(tree), set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name not in SPELLINGS:
            continue
        if name == "create_task" and isinstance(function, ast.Attribute) and ast.unparse(function.value) in groups:
            continue
        if name == "gather":
            # With return_exceptions, no awaitable outlives the call.
            if any(each.arg == "return_exceptions" and ast.unparse(each.value) == "True" for each in node.keywords):
                continue
            if ast.unparse(function) != "asyncio.gather":
                continue
        found.add(ast.unparse(function))
    return found


def test_every_spelling_is_found() -> None:
    text = """
async def run(self, tasks: asyncio.TaskGroup, loop):
    tasks.create_task(work())
    async with asyncio.TaskGroup() as group:
        group.create_task(work())
    await asyncio.gather(work(), return_exceptions=True)
    asyncio.create_task(work())
    create_task(work())
    loop.create_task(work())
    asyncio.get_running_loop().create_task(work())
    asyncio.ensure_future(work())
    asyncio.Task(work())
    asyncio.run_coroutine_threadsafe(work(), loop)
    await asyncio.gather(work())
"""
    assert unowned_tasks(ast.parse(text)) == {
        "asyncio.create_task",
        "create_task",
        "loop.create_task",
        "asyncio.get_running_loop().create_task",
        "asyncio.ensure_future",
        "asyncio.Task",
        "asyncio.run_coroutine_threadsafe",
        "asyncio.gather",
    }


def test_every_task_has_an_owner() -> None:
    offenders = {}
    for path in SOURCE.rglob("*.py"):
        text, name = path.read_text(), path.relative_to(SOURCE).as_posix()
        if name != OWNERS and any(f"{spelling}(" in text for spelling in SPELLINGS):
            if found := unowned_tasks(ast.parse(text)):
                offenders[name] = found
    assert offenders == {}
