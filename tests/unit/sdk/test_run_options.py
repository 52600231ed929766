"""The flags of an operator's process."""

from __future__ import annotations

import pytest

from setpoint.reconcile import ElectionTimes
from setpoint.sdk.options import Address, RunOptions, Service, parse


def test_defaults_of_all_flags() -> None:
    assert parse("tea", []) == RunOptions()
    assert RunOptions().times == ElectionTimes(15.0, 10.0, 2.0)


def test_every_flag_is_parsed() -> None:
    given = (
        "--kubeconfig f --context c -n ns --no-install --dry-run --leader-elect --leader-elect-resource-namespace l "
        "--leader-elect-lease-duration 1m --leader-elect-renew-deadline 40s --leader-elect-retry-period 1s "
        "--metrics-bind-address :8080 --health-probe-bind-address 127.0.0.1:8081 --webhook-bind-address [::1]:1 "
        "--webhook-url https://x --webhook-service a/b:8443 --webhook-cert-dir d "
        "--graceful-shutdown-timeout 5s -vv --print-manifests"
    )
    assert parse("tea", given.split()) == RunOptions(
        "f",
        "c",
        "ns",
        False,
        True,
        True,
        "l",
        ElectionTimes(60.0, 40.0, 1.0),
        Address("", 8080),
        Address("127.0.0.1", 8081),
        Address("::1", 1),
        "https://x",
        Service("a", "b", 8443),
        "d",
        5.0,
        2,
        True,
    )
    assert parse("tea", ["--metrics-bind-address=0"]).metrics is None
    assert parse("tea", ["--webhook-service=a/b"]).webhook_service == Service("a", "b", 443)


@pytest.mark.parametrize(
    ("flag", "problem"),
    [
        ("--metrics-bind-address=8080", "'8080' is not an address such as :8080 or 127.0.0.1:8080"),
        ("--metrics-bind-address=:99999", "is not an address such as :8080"),
        ("--webhook-service=hooks", "'hooks' is not a Service such as tea-system/tea-webhook:443"),
        ("--graceful-shutdown-timeout=5", "time: missing unit in duration"),
        ("--graceful-shutdown-timeout=-5s", "a duration cannot be negative"),
        ("--leader-elect-renew-deadline=20s", "must be greater than the renew deadline"),
        ("--lead", "unrecognized arguments: --lead"),
    ],
)
def test_invalid_flags_are_rejected(flag: str, problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse("tea", [flag])
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("tea", ["--help"])
    shown = capsys.readouterr().out
    assert "The operator tea." in shown and "--leader-elect-lease-duration TIME" in shown
