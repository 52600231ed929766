"""What `--controllers` means."""

from __future__ import annotations

import pytest

from setpoint.cluster.config import ConfigError
from setpoint.cluster.remote import chosen
from setpoint.controllers.builtin import ALIASES, CONTROLLERS, DEFERRED_UNTIL, GARBAGE_COLLECTOR, OFF_BY_DEFAULT

KNOWN = [*CONTROLLERS, GARBAGE_COLLECTOR]


def pick(*wanted: str) -> set[str]:
    return set(chosen(wanted, KNOWN, OFF_BY_DEFAULT, ALIASES))


def test_all_but_those_that_must_be_asked_for() -> None:
    assert pick("*") == set(KNOWN) - set(OFF_BY_DEFAULT)
    assert pick("*", "bootstrapsigner", "tokencleaner") == set(KNOWN)
    assert pick("*", "-deployment", "-job-controller") == pick("*") - {"deployment-controller", "job-controller"}


def test_some() -> None:
    assert pick("deployment", "replicaset-controller") == {"deployment-controller", "replicaset-controller"}
    assert pick("-deployment") == set()


def test_a_name_that_there_is_not() -> None:
    with pytest.raises(ConfigError, match="--controllers: 'deploymnet' is not one of bootstrap-signer-controller, "):
        pick("*", "-deploymnet")


def test_every_other_name_stands_for_one_that_there_is() -> None:
    assert set(ALIASES.values()) <= set(KNOWN)
    assert set(DEFERRED_UNTIL) <= set(CONTROLLERS) and set(OFF_BY_DEFAULT) <= set(CONTROLLERS)
