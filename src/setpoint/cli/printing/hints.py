"""Hints about failed paths, in addition to kubectl's message."""

from __future__ import annotations

from setpoint.meta.jsonpath import JsonPathError

_MOST = 12


def path_hint(problem: JsonPathError) -> str:
    """Return where the path failed and which keys exist there."""
    if problem.at is not None:
        line_start = problem.template.rfind("\n", 0, problem.at) + 1
        line = problem.template[line_start:].partition("\n")[0]
        return f"  {line}\n  {' ' * max(0, problem.at - line_start - 1)}^"
    if not problem.path:
        return ""
    hint = f"  the path fails at {problem.path}"
    if not problem.known:
        return hint
    from difflib import get_close_matches  # only needed after an error

    missing = str(problem).removesuffix(" is not found")
    near = get_close_matches(missing, problem.known, n=1)
    there = ", ".join(problem.known[:_MOST]) + (", ..." if len(problem.known) > _MOST else "")
    return f"{hint}; there are: {there}" + (f" (did you mean {near[0]}?)" if near else "")
