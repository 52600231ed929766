"""All checks of a history."""

from __future__ import annotations

from itertools import chain

from tests.robustness.cluster_checks import addresses, convergence, leaders, terms
from tests.robustness.commits import Bounds, Log
from tests.robustness.history import Commit, History, Violation
from tests.robustness.register_checks import (
    acknowledged_writes,
    compare_and_swap,
    linearizable,
    lists,
    monotonic,
    no_quorum,
    single_effect,
)
from tests.robustness.watch_checks import watches, watches_end


def violations(history: History) -> list[Violation]:
    log = Log(history.of(Commit))
    return list(
        chain(
            acknowledged_writes(history, log),
            compare_and_swap(history, log),
            single_effect(history, log),
            linearizable(history, log, Bounds(history, log)),
            monotonic(history),
            lists(history, log),
            no_quorum(history),
            watches(history, log),
            watches_end(history),
            terms(log),
            leaders(history),
            addresses(log),
            convergence(history),
        )
    )
