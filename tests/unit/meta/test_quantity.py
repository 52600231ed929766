from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.meta import quantity
from setpoint.meta.quantity import QuantityError, parse

TEXTS = st.builds(
    lambda sign, whole, fraction, suffix: f"{sign}{whole}{fraction}{suffix}",
    st.sampled_from(["", "-", "+"]),
    st.integers(0, 10**6),  # with Ti still below 2**63, past which the reference caps and drops suffixes
    st.one_of(st.just(""), st.integers(0, 10**6).map(lambda digits: f".{digits}")),
    st.sampled_from(["", "n", "u", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti", "e3", "e-3", "E2"]),
)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0", "0"),
        ("0m", "0"),
        ("100", "100"),
        ("1000", "1k"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.5", "500m"),
        ("1024Mi", "1Gi"),
        ("1500Mi", "1500Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Gi", "512Mi"),
        ("1000Ki", "1000Ki"),
        ("1e3", "1e3"),
        ("1e2", "100"),
        ("1E3", "1E3"),
        ("1E", "1E"),
        ("12000e3", "12e6"),
        ("-0.5", "-500m"),
        ("0.0000000001", "1n"),
        ("-0.0000000001", "-1n"),
        ("1.1Ki", "1126400m"),
        ("0.001Ki", "1024m"),
        ("+1", "+1"),
        ("1.500", "1.500"),
        ("1.", "1."),
        ("007Mi", "007Mi"),
        ("100Ei", "9223372036854775807"),
        ("9223372036854775808", "9223372036854775808"),
        ("1000E", "1"),
        ("512", "512"),
        ("1023Ki", "1023Ki"),
    ],
)
def test_canonical_form(text: str, canonical: str) -> None:
    assert quantity.canonical(text) == canonical


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"),
        ("1.2.3", "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"),
        ("1 Gi", "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"),
        ("1K", "unable to parse quantity's suffix"),
        ("1e", "unable to parse quantity's suffix"),
        ("1Mm", "unable to parse quantity's suffix"),
        ("1e999999999", "unable to parse numeric part of quantity"),
    ],
)
def test_invalid_quantities(text: str, message: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse(text)
    assert str(caught.value) == message


def test_values_round_away_from_zero() -> None:
    assert quantity.value("1500m") == 2
    assert quantity.value("-1500m") == -2
    assert quantity.milli_value("1.5") == 1500
    assert quantity.milli_value("1u") == 1
    assert quantity.value("1Ki") == 1024
    assert quantity.is_integer("1000m")
    assert not quantity.is_integer("1500m")


def test_sums_have_the_format_of_the_first_operand() -> None:
    assert quantity.add("1Gi", "1G") == "2073741824"
    assert quantity.add("1Gi", "1Gi") == "2Gi"
    assert quantity.add("0", "1Gi") == "1Gi"
    assert quantity.sub("1", "1500m") == "-500m"
    assert quantity.compare("1Gi", "1G") == 1
    assert quantity.compare("1000m", "1") == 0


@given(TEXTS)
def test_canonical_form_is_stable_and_has_the_same_value(text: str) -> None:
    once = quantity.canonical(text)
    assert quantity.canonical(once) == once
    assert parse(once).nano == parse(text).nano


@given(TEXTS, TEXTS)
def test_subtraction_inverts_addition_and_order_is_consistent(left: str, right: str) -> None:
    a, b = parse(left), parse(right)
    total = a.plus(b)
    assert total.minus(b).nano == a.nano
    assert parse(total.text).nano == total.nano
    assert quantity.compare(left, right) == (a.nano > b.nano) - (a.nano < b.nano)
    assert quantity.compare(left, right) == -quantity.compare(right, left)


LONG = "1" * 100_000


@pytest.mark.parametrize(
    "text", [LONG, f"{LONG}x", f"0.{LONG}", f"{LONG}Gi", f"{LONG}e3", f"1e{LONG}", f"1e-{LONG}", "0" * 100_000 + "!"]
)
def test_very_long_texts_are_rejected_quickly(text: str) -> None:
    with pytest.raises(QuantityError):
        parse(text)
