"""The meaning of `--controllers`."""

from __future__ import annotations

import pytest

from setpoint.cluster.config import ConfigError
from setpoint.cluster.remote import enabled_controllers
from setpoint.controllers.builtin import ALIASES, CONTROLLERS, DEFERRED_UNTIL, GARBAGE_COLLECTOR, OFF_BY_DEFAULT

KNOWN = [*CONTROLLERS, GARBAGE_COLLECTOR]


def enabled(*wanted: str) -> set[str]:
    return set(enabled_controllers(wanted, KNOWN, OFF_BY_DEFAULT, ALIASES))


def test_a_star_enables_all_that_are_on_by_default() -> None:
    assert enabled("*") == set(KNOWN) - set(OFF_BY_DEFAULT)
    assert enabled("*", "bootstrapsigner", "tokencleaner") == set(KNOWN)
    assert enabled("*", "-deployment", "-job-controller") == enabled("*") - {"deployment-controller", "job-controller"}


def test_names_enable_and_disable_controllers() -> None:
    assert enabled("deployment", "replicaset-controller") == {"deployment-controller", "replicaset-controller"}
    assert enabled("-deployment") == set()


def test_an_unknown_name_is_rejected() -> None:
    with pytest.raises(ConfigError, match="--controllers: 'deploymnet' is not one of bootstrap-signer-controller, "):
        enabled("*", "-deploymnet")


def test_every_alias_names_a_controller() -> None:
    assert set(ALIASES.values()) <= set(KNOWN)
    assert set(DEFERRED_UNTIL) <= set(CONTROLLERS) and set(OFF_BY_DEFAULT) <= set(CONTROLLERS)
