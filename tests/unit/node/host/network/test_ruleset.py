"""Rules as data: rendering, and the order of changes."""

from __future__ import annotations

from setpoint.node.host.network.ruleset import ElementKey, Fragment, NftChain, NftSet, Ruleset, StateSection

HOOK = "type filter hook input priority 0; policy accept"
BASE = Fragment(
    sets={"s": NftSet("ipv4_addr"), "m": NftSet("inet_service : verdict")},
    chains={"in": NftChain(("tcp dport vmap @m", "ip saddr @s drop"), HOOK)},
)


def claim(owner: str) -> Fragment:
    return Fragment(chains={f"c-{owner}": NftChain(("accept",))}, elements={ElementKey("m", "80"): f"goto c-{owner}"})


def lines(rules: Ruleset) -> list[str]:
    found = rules.changes()
    assert found is not None
    return found.splitlines()


def test_full_text() -> None:
    rules = Ruleset("inet t")
    rules.put("", BASE)
    rules.put("a", Fragment(elements={ElementKey("s", "10.0.0.2"): "", ElementKey("s", "10.0.0.1"): ""}))
    rules.put("b", claim("b"))
    rules.put("c", Fragment({"own": NftSet("ipv4_addr", frozenset({"10.0.0.9"}), "dynamic,timeout", 10)}))
    assert rules.full() == (
        "\tset s {\n\t\ttype ipv4_addr;\n\t\telements = { 10.0.0.1, 10.0.0.2 }\n\t}\n"
        "\tmap m {\n\t\ttype inet_service : verdict;\n\t\telements = { 80 : goto c-b }\n\t}\n"
        "\tset own {\n\t\ttype ipv4_addr; flags dynamic,timeout; timeout 10s;\n\t\telements = { 10.0.0.9 }\n\t}\n"
        f"\tchain in {{\n\t\t{HOOK};\n\t\ttcp dport vmap @m\n\t\tip saddr @s drop\n\t}}\n"
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
    assert lines(rules) == [
        "add chain inet t c-a",
        "add rule inet t c-a accept",
        "delete element inet t m { 80 }",
        "add element inet t m { 80 : goto c-a }",
    ]
    rules.put("a", None)
    assert lines(rules) == [
        "delete element inet t m { 80 }",
        "add element inet t m { 80 : goto c-b }",
        "flush chain inet t c-a",
        "delete chain inet t c-a",
    ]


def test_changes_after_the_full_text_begin_there() -> None:
    rules = Ruleset("inet t")
    rules.put("a", claim("a"))
    rules.full()
    assert rules.changes() == ""


# -- parts that are computed as a whole --------------------------------------------------------------------------------


def state(elements: str = "", *, rules: str = "drop", target: str = "a", hook: str = HOOK) -> Fragment:
    """Return a base chain that uses a map, which leads to another chain."""
    return Fragment(
        {"m": NftSet("ipv4_addr : verdict", frozenset(f"{each} : jump {target}" for each in elements.split()))},
        {"base": NftChain(("ip saddr vmap @m",), hook), target: NftChain(tuple(rules.split(";")))},
    )


def between(old: Fragment, new: Fragment) -> list[str]:
    rules = Ruleset("inet t")
    rules.put("", old)
    rules.full()
    rules.put("", new)
    return lines(rules)


def test_equal_states_give_no_commands() -> None:
    assert between(state("10.0.0.1"), state("10.0.0.1")) == []


def test_elements_and_rules_change_alone() -> None:
    assert between(state("10.0.0.1 10.0.0.2"), state("10.0.0.2 10.0.0.3")) == [
        "delete element inet t m { 10.0.0.1 }",
        "add element inet t m { 10.0.0.3 : jump a }",
    ]
    assert between(state(), state(rules="accept;drop")) == [
        "flush chain inet t a",
        "add rule inet t a accept",
        "add rule inet t a drop",
    ]


def test_definitions_precede_uses_and_uses_end_before_deletions() -> None:
    assert between(state("10.0.0.1"), state("10.0.0.1", target="b")) == [
        "add chain inet t b",
        "add rule inet t b drop",
        "delete element inet t m { 10.0.0.1 }",
        "add element inet t m { 10.0.0.1 : jump b }",
        "flush chain inet t a",
        "delete chain inet t a",
    ]
    assert between(Fragment(), state("10.0.0.1")) == [
        "add map inet t m { type ipv4_addr : verdict; }",
        "add chain inet t a",
        f"add chain inet t base {{ {HOOK}; }}",
        "add rule inet t base ip saddr vmap @m",
        "add rule inet t a drop",
        "add element inet t m { 10.0.0.1 : jump a }",
    ]
    assert between(state("10.0.0.1"), Fragment()) == [
        "flush map inet t m",
        "flush chain inet t a",
        "flush chain inet t base",
        "delete chain inet t a",
        "delete chain inet t base",
        "delete map inet t m",
    ]


def test_another_declaration_needs_another_table() -> None:
    rules = Ruleset("inet t")
    rules.put("", state())
    rules.full()
    rules.put("", state(hook=HOOK.replace("input", "output")))
    assert rules.changes() is None
    assert "hook output" in rules.full()
    assert rules.changes() == ""


def test_commands_have_a_bounded_length() -> None:
    new = Fragment({"s": NftSet("ipv4_addr", frozenset(f"10.0.{i // 250}.{i % 250}" for i in range(2500)))})
    assert len(between(Fragment({"s": NftSet("ipv4_addr")}), new)) == 3


def test_a_section_remembers_what_it_rendered() -> None:
    desired: list[Fragment | None] = [None]
    section = StateSection("inet t", lambda: desired[0])
    assert section.full() is None
    assert section.changes() == ""
    desired[0] = state()
    assert "chain base" in (section.full() or "")
    assert section.changes() == ""
    desired[0] = state("10.0.0.1")
    assert section.changes() == "add element inet t m { 10.0.0.1 : jump a }\n"
    assert section.changes() == ""
    assert section.rendered is desired[0]
