"""Flags are parsed as kubectl parses them."""

from __future__ import annotations

import pytest

from setpoint.cli.component_options import LOAD_BALANCER_POOL
from setpoint.cli.flags import Flags, UsageProblem, array, duration, number, switch, text, texts

FLAGS = Flags(
    (
        text("output", "o"),
        text("namespace", "n"),
        switch("watch", "w"),
        switch("stdin", "i"),
        switch("tty", "t"),
        number("replicas", default=1),
        texts("labels", "l"),
        array("env", "e"),
        duration("timeout", default=30.0),
        text("dry-run", default="none", bare="unchanged"),
        LOAD_BALANCER_POOL,
    )
)


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("-o yaml", "output", "yaml"),
        ("-oyaml", "output", "yaml"),
        ("-o=yaml", "output", "yaml"),
        ("--output=yaml", "output", "yaml"),
        ("--output yaml", "output", "yaml"),
        ("--output=", "output", ""),
        ("--output=a=b", "output", "a=b"),
        ("-w", "watch", True),
        ("--watch=false", "watch", False),
        ("-w=false", "watch", False),
        ("-it", "tty", True),
        ("-itn kube-system", "namespace", "kube-system"),
        ("-wojson", "output", "json"),
        ("--replicas -1", "replicas", -1),
        ("--replicas=0x10", "replicas", 16),
        ("-l a=b,c=d -l e=f", "labels", ["a=b", "c=d", "e=f"]),
        ("-e A=1,2 -e B=3", "env", ["A=1,2", "B=3"]),
        ("--timeout 1m30s", "timeout", 90.0),
        ("", "timeout", 30.0),
        ("--dry-run", "dry_run", "unchanged"),
        ("--dry-run=client", "dry_run", "client"),
        ("-o yaml -o json", "output", "json"),
    ],
)
def test_values_of_flags(line: str, key: str, value: object) -> None:
    assert getattr(FLAGS.parse(line.split()).values, key) == value


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("--nope", "unknown flag: --nope"),
        ("--namespce x", "unknown flag: --namespce (did you mean --namespace?)"),
        ("-wx", "unknown shorthand flag: 'x' in -wx"),
        ("-o", "flag needs an argument: 'o' in -o"),
        ("--output", "flag needs an argument: --output"),
        ("--=x", "bad flag syntax: --=x"),
        ("---output x", "bad flag syntax: ---output"),
        (
            "--watch=maybe",
            'invalid argument "maybe" for "-w, --watch" flag: strconv.ParseBool: parsing "maybe": invalid syntax',
        ),
        (
            "--replicas=many",
            'invalid argument "many" for "--replicas" flag: strconv.ParseInt: parsing "many": invalid syntax',
        ),
        (
            "--load-balancer-pool=10.0.0.1,10.0.0.9-10.0.0.8",
            'invalid argument "10.0.0.1,10.0.0.9-10.0.0.8" for "--load-balancer-pool" flag: 10.0.0.9-10.0.0.8: '
            "the first address of a range must not be greater than the last one",
        ),
        ("--timeout=5", 'invalid argument "5" for "--timeout" flag: time: missing unit in duration "5"'),
    ],
)
def test_errors_of_flags(line: str, problem: str) -> None:
    with pytest.raises(UsageProblem) as raised:
        FLAGS.parse(line.split())
    assert str(raised.value) == problem


def test_arguments_may_stand_between_flags() -> None:
    line = FLAGS.parse(["pods", "-o", "yaml", "web", "--watch", "api"])
    assert line.args == ["pods", "web", "api"]
    assert line.dash == -1


def test_two_dashes_end_the_flags() -> None:
    line = FLAGS.parse(["pod", "-it", "--", "sh", "-c", "true"])
    assert (line.args, line.dash) == (["pod", "sh", "-c", "true"], 1)


def test_not_interspersed() -> None:
    assert FLAGS.parse(["-i", "pod", "-t"], interspersed=False).args == ["pod", "-t"]


def test_a_single_dash_is_an_argument() -> None:
    assert FLAGS.parse(["-"]).args == ["-"]


def test_given_flags_are_distinguished_from_defaults() -> None:
    values = FLAGS.parse(["--watch=false"]).values
    assert values.given("watch")
    assert not values.given("output")


@pytest.mark.parametrize(
    ("line", "at"),
    [
        ("get pods", 0),
        ("-n x get", 2),
        ("-n=x get", 1),
        ("-nx get", 1),
        ("--watch get", 1),
        ("-wn x get", 2),
        ("-- get", -1),
        ("", -1),
    ],
)
def test_first_argument(line: str, at: int) -> None:
    assert FLAGS.first_argument(line.split()) == at
