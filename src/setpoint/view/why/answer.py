"""The answer to a question as a value: the same for the command line, the page and JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

FORMAT = 1
"""The version of the JSON form."""


@dataclass(slots=True)
class Step:
    """One write on the way back from effect to origin."""

    revision: int
    at: int
    """Milliseconds since the epoch; 0 if it is not known."""
    actor: str
    object: str
    """`deployment/web`; empty if the asker may not read the object."""
    namespace: str
    action: str
    """`created`, `changed`, `deleted`, `scaled`, `bound` and so on."""
    changes: list[str] = field(default_factory=list)
    """The changed fields in short form."""
    reason: str = ""
    """The controller's own sentence."""
    kind: str = "write"
    """`write`, or `hidden` if the asker may not read the object."""
    inferred: str = ""
    """Why the step is assumed to be the trigger of the previous one; empty if the record says so."""
    run: str = ""
    """The reconcile that made the write, as its client names it: `<controller>/<process>.<number>`; empty if there was
    none."""
    trace: str = ""
    """The `traceparent` of the request; empty if the client sent none."""
    address: str = ""
    """The address from which the request came over a network; empty if it is not recorded."""
    link: str = ""
    """The annotation `tracing.k8s.io/traceparent` of the object; empty if it has none."""
    controller: str = ""
    """The controller whose reconcile made the write; empty if there was none."""
    reconciled: str = ""
    """The object that was reconciled, if the asker may read it."""
    besides: str = ""
    """A trigger that is not a write, as text: `a timer (600 s)`."""
    triggers: int = 0
    """The number of writes that triggered the reconcile."""
    via: str = ""
    """How the next step of the chain led to this one, in words; empty if it is the last one."""
    completes: bool = False
    """Whether the write completes a deletion, which the next step requested."""
    times: int = 1
    """The number of equal writes in a row that this step stands for."""
    others: list[Step] = field(default_factory=list)
    """The other triggers of the previous step, if they were asked for."""


@dataclass(slots=True)
class ContainerLog:
    """The end of the log of a container that has exited."""

    namespace: str
    pod: str
    container: str
    previous: bool
    """Whether it is the log of the instance before the current one."""
    lines: list[str] = field(default_factory=list)
    """The last lines, bounded, with visible control characters; empty if they are not known to the asker."""


@dataclass(slots=True)
class Finding:
    """A reason why something does not happen."""

    rule: str
    """A stable name of the reason: `unschedulable`, `image-pull`."""
    sentence: str
    evidence: list[str] = field(default_factory=list)
    until: str = ""
    """A text that says what ends it, or when: `it tries again at 13:04:07 UTC`."""
    help: list[str] = field(default_factory=list)
    """Advice on what a person can do."""
    log: ContainerLog | None = None
    """The log of the container that the finding is about; None if it has not exited."""


@dataclass(slots=True)
class Answer:
    question: dict[str, Any]
    now: int
    """The server's time, in milliseconds since the epoch."""
    sentence: str = ""
    chain: list[Step] = field(default_factory=list)
    """The writes from the effect to the origin, newest first."""
    origin: str = ""
    """A sentence that says where the chain ends; empty if the last step does."""
    earlier: list[Step] = field(default_factory=list)
    """The earlier writes of the field in question, newest first."""
    findings: list[Finding] = field(default_factory=list)
    """Why it does not happen: the blocking reason first."""
    notes: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)
    """Commands that may help."""
    cluster: str = ""
    """The uid of the namespace kube-system, which identifies the cluster; empty if it is not known."""

    def to_json(self) -> dict[str, Any]:
        return {"version": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Answer:
        """Decode the JSON form. Raises ValueError for another version."""
        if document.get("version") != FORMAT:
            raise ValueError(f"the server answers in version {document.get('version')}, this program reads {FORMAT}")
        known = {name: value for name, value in document.items() if name in cls.__dataclass_fields__}
        for name in ("chain", "earlier"):
            known[name] = [_step(each) for each in known.get(name) or ()]
        known["findings"] = [_finding(each) for each in known.get("findings") or ()]
        return cls(**known)


def _step(document: dict[str, Any]) -> Step:
    known = _known(Step, document)
    known["others"] = [_step(each) for each in known.get("others") or ()]
    return Step(**known)


def _finding(document: dict[str, Any]) -> Finding:
    known = _known(Finding, document)
    log = known.get("log")
    known["log"] = ContainerLog(**_known(ContainerLog, log)) if log else None
    return Finding(**known)


def _known(cls: Any, document: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that this version knows."""
    return {name: value for name, value in document.items() if name in cls.__dataclass_fields__}
