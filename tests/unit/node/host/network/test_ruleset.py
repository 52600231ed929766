"""Rules as data: rendering, and the order of changes."""

from __future__ import annotations

from setpoint.node.host.network.ruleset import ElementKey, Fragment, Ruleset

BASE = Fragment(
    sets={"s": "type ipv4_addr;"},
    maps={"m": "type inet_service : verdict;"},
    hooks={"in": "type filter hook input priority 0;"},
    chains={"in": ("tcp dport vmap @m", "ip saddr @s drop")},
)


def claim(owner: str) -> Fragment:
    return Fragment(chains={f"c-{owner}": ("accept",)}, elements={ElementKey("m", "80"): f"goto c-{owner}"})


def test_full_text() -> None:
    rules = Ruleset("inet t")
    rules.put("", BASE)
    rules.put("a", Fragment(elements={ElementKey("s", "10.0.0.2"): "", ElementKey("s", "10.0.0.1"): ""}))
    rules.put("b", claim("b"))
    assert rules.full() == (
        "\tset s {\n\t\ttype ipv4_addr;\n\t\telements = { 10.0.0.1, 10.0.0.2 }\n\t}\n"
        "\tmap m {\n\t\ttype inet_service : verdict;\n\t\telements = { 80 : goto c-b }\n\t}\n"
        "\tchain in {\n\t\ttype filter hook input priority 0;\n\t\ttcp dport vmap @m\n\t\tip saddr @s drop\n\t}\n"
        "\tchain c-b {\n\t\taccept\n\t}\n"
    )
    assert Ruleset("inet t").full() == ""


def test_a_fragment_that_does_not_change_causes_no_command() -> None:
    rules = Ruleset("inet t")
    assert rules.put("a", claim("a"))
    assert not rules.put("a", claim("a"))
    assert rules.changes() != ""
    assert rules.changes() == ""
    rules.put("a", None)
    rules.put("a", claim("a"))
    assert rules.changes() == ""


def test_the_first_owner_has_an_element_that_several_claim() -> None:
    rules = Ruleset("inet t")
    rules.put("b", claim("b"))
    rules.full()
    rules.put("a", claim("a"))
    assert rules.changes().splitlines() == [
        "add chain inet t c-a",
        "add rule inet t c-a accept",
        "delete element inet t m { 80 : goto c-b }",
        "add element inet t m { 80 : goto c-a }",
    ]
    rules.put("a", None)
    assert rules.changes().splitlines() == [
        "delete element inet t m { 80 : goto c-a }",
        "add element inet t m { 80 : goto c-b }",
        "flush chain inet t c-a",
        "delete chain inet t c-a",
    ]


def test_sets_are_made_before_rules_refer_to_them_and_deleted_afterwards() -> None:
    rules = Ruleset("inet t")
    made = Fragment(
        sets={"s": "type ipv4_addr;"}, maps={"m": "type ipv4_addr : verdict;"}, chains={"c": ("ip saddr @s drop",)}
    )
    rules.put("a", made)
    assert rules.changes().splitlines() == [
        "add set inet t s { type ipv4_addr; }",
        "add map inet t m { type ipv4_addr : verdict; }",
        "add chain inet t c",
        "add rule inet t c ip saddr @s drop",
    ]
    rules.put("a", None)
    assert rules.changes().splitlines() == [
        "flush chain inet t c",
        "delete chain inet t c",
        "delete set inet t s",
        "delete map inet t m",
    ]


def test_changes_after_the_full_text_begin_there() -> None:
    rules = Ruleset("inet t")
    rules.put("a", claim("a"))
    rules.full()
    assert rules.changes() == ""
