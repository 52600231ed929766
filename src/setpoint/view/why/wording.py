"""Renders an `Answer` as text for a terminal, and as a graph for Graphviz."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

from setpoint.view.why.answer import Answer, Finding, Step

_WIDTH = 92
"""The column at which the revision of a step begins, if the line is shorter."""


def text(answer: Answer, zone: tzinfo | None = UTC, *, ascii_only: bool = False) -> str:
    """Return the answer as text: the sentence, then one line per step, newest first.

    Times are in `zone`; None means the zone of the machine."""
    connect(answer)
    probably = "~" if ascii_only else "≈"
    lines = [answer.sentence]
    namespace = str(answer.question.get("namespace", ""))
    for finding in answer.findings[1 if answer.findings and answer.findings[0].sentence == answer.sentence else 0 :]:
        lines += ["", finding.sentence, *_body(finding)]
    if answer.findings and answer.findings[0].sentence == answer.sentence:
        body = _body(answer.findings[0])
        lines[1:1] = ["", *body] if body else []
    if answer.chain:
        lines.append("")
    for place, step in enumerate(answer.chain):
        if step.inferred:
            lines.append(f"{probably} probably triggered by (no record: {step.inferred})")
        lines += _step_lines(step, namespace, zone)
        if step.via:
            lines.append(f"    {step.via}")
        following = answer.chain[place + 1].others if place + 1 < len(answer.chain) else []
        for other in following:
            lines += [f"    also {each.strip()}" for each in _step_lines(other, namespace, zone)[:1]]
    if answer.earlier:
        lines += ["", "Earlier values:"]
        for step in answer.earlier:
            what = ", ".join(step.changes)
            lines.append(_with_revision(f"  {_time(step.at, zone)}  {what}, by {step.actor}", step.revision))
    # The origin of a single step is in the sentence, except its address.
    single = len(answer.chain) == 1 and not answer.chain[0].address
    origin = "" if single and answer.origin.startswith("Origin:") else answer.origin
    tail = [each for each in (origin, *answer.notes) if each]
    helping = [each for finding in answer.findings for each in finding.help]
    if tail or answer.hints or helping:
        lines.append("")
    lines += tail
    lines += [f"What would help: {each}" for each in dict.fromkeys(helping)]
    lines += [f"To undo it: {each}" for each in answer.hints]
    printed = "\n".join(lines) + "\n"
    return printed.encode("ascii", "replace").decode() if ascii_only else printed


def _body(finding: Finding) -> list[str]:
    lines = [f"  {each}" for each in finding.evidence]
    if finding.log is not None and finding.log.lines:
        lines += ["  the end of its log:", *(f"    | {each}" for each in finding.log.lines)]
    return [*lines, f"  {finding.until}"] if finding.until else lines


def _step_lines(step: Step, namespace: str, zone: tzinfo | None) -> list[str]:
    when = _time(step.at, zone)
    if step.kind == "hidden":
        return [_with_revision(f"  {when}  a change of an object that you may not read", step.revision)]
    where = f" in {step.namespace}" if step.namespace and step.namespace != namespace else ""
    what = f" {', '.join(step.changes)}" if step.action == "bound" else f": {', '.join(step.changes)}"
    times = f" ({step.times} times)" if step.times > 1 else ""
    line = f"  {when}  {step.actor} {step.action} {step.object}{where}{what if step.changes else ''}{times}"
    lines = [_with_revision(line, step.revision)]
    if step.reason:
        lines.append(f'      "{step.reason}"')
    return lines


def connect(answer: Answer) -> None:
    """Set how each step of the chain and the next one are connected."""
    for place, step in enumerate(answer.chain):
        following = answer.chain[place + 1] if place + 1 < len(answer.chain) else None
        if following is not None or step.besides:
            step.via = _link(step, following)


def _link(step: Step, following: Step | None) -> str:
    """Return how a step and the next one are connected; empty if it is only assumed."""
    if step.completes:
        return "the deletion was requested by"
    if following is not None and following.inferred:
        return ""
    of = f" of {step.reconciled}" if step.reconciled else ""
    run = f"in a reconcile{of}" if step.controller else ""
    more = f" and {step.triggers - 1} more" if step.triggers > 1 else ""
    if following is None:
        return f"{run}, triggered by {step.besides}".removeprefix(", ")
    this = f" this{more}:" if more else ""
    if step.besides.startswith("a timer"):
        line = f"{run}, triggered by {step.besides} that was set after{this}"
    elif step.besides.startswith(("retry", "a retry", "cluster event", "a cluster event")):
        line = f"{run} ({step.besides}), triggered by{this}"
    elif step.besides:
        line = f"{run}, triggered by {step.besides}, after{this}"
    else:
        line = f"{run}, triggered by{this}"
    return line.removeprefix(", ")


def _with_revision(line: str, revision: int) -> str:
    return f"{line:<{_WIDTH}}  rev {revision}" if revision else line


def _time(at: int, zone: tzinfo | None) -> str:
    if not at:
        return "unknown time"
    when = datetime.fromtimestamp(at / 1000, UTC).astimezone(zone)
    return f"{when:%H:%M:%S}.{at % 1000:03d}"


def dot(answer: Answer) -> str:
    """Return the chain as a graph in the language of Graphviz: arrows lead from trigger to effect."""
    lines = ["digraph why {", "  rankdir=BT;", "  node [shape=box, fontname=monospace];"]
    for step in answer.chain:
        what = f": {', '.join(step.changes)}" if step.changes else ""
        label = (
            f"{step.actor} {step.action} {step.object}{what}"
            if step.kind != "hidden"
            else "an object that you may not read"
        )
        where = f", from {step.address}" if step.address else ""
        lines.append(f'  r{step.revision} [label="{_escaped(label)}\\nrev {step.revision}{where}"];')
        for other in step.others:
            lines.append(f'  r{other.revision} [label="{_escaped(f"{other.actor} {other.action} {other.object}")}"];')
    for effect, trigger in zip(answer.chain, answer.chain[1:], strict=False):
        style = ' [style=dashed, label="probably"]' if trigger.inferred else ""
        lines.append(f"  r{trigger.revision} -> r{effect.revision}{style};")
        lines += [f"  r{other.revision} -> r{effect.revision};" for other in trigger.others]
    return "\n".join([*lines, "}"]) + "\n"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
