"""The record of a write's cause and the header in which clients claim it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.meta.cause import (
    CAUSE_HEADER,
    MAX_HEADER_LENGTH,
    MAX_REASON_LENGTH,
    MAX_TRIGGERS,
    Claim,
    WriteCause,
    claim_header,
    decode,
    encode,
    merged,
    parse_claim,
    product_of,
)

_WORDS = st.text(st.characters(categories=("L", "N", "P"), include_characters=" "), max_size=40)
_NAMES = st.text(st.characters(codec="ascii", categories=("L", "N"), include_characters="/:.-"), max_size=128)
_KEYS = _NAMES.filter(lambda key: not key.startswith("/"))
_REVISIONS = st.lists(st.integers(1, 2**40), max_size=MAX_TRIGGERS, unique=True).map(lambda found: tuple(sorted(found)))
_CLAIMS = st.builds(Claim, _NAMES, _KEYS, _REVISIONS, st.just(0), _NAMES, _WORDS)
_PARTS_OF_USERS = ["system:", "serviceaccount:", "kube-system:", "kubelet", *"@:=< a"]
_USERS = st.one_of(_WORDS, st.builds("".join, st.lists(st.sampled_from(_PARTS_OF_USERS))))
_AGENTS = st.one_of(_NAMES, st.sampled_from(["", "a", "kubelet"]))
_ADDRESSES = st.one_of(st.just(""), st.ip_addresses().map(str))
_CAUSES = st.builds(WriteCause, st.integers(0, 2**45), _NAMES, _USERS, _AGENTS, _CLAIMS, _WORDS, _WORDS, _ADDRESSES)


@given(_CAUSES)
def test_a_cause_is_decoded_as_it_was_encoded(cause: WriteCause) -> None:
    assert decode(encode(cause)) == cause


def test_the_cause_of_a_controller_is_short() -> None:
    claim = Claim("replicaset-controller/b3f1.48213", "default/web-6cf4", (102993, 102994), 0, "", "2 Pods, 3 wanted")
    user = "system:serviceaccount:kube-system:replicaset-controller"
    assert len(encode(WriteCause(1763299132123, "create", user, "setpoint", claim))) < 150
    scheduler = WriteCause(1763299132123, "bind", "system:kube-scheduler", "kube-scheduler")
    assert len(encode(scheduler)) < 45
    person = WriteCause(1763299132123, "patch", "admin", "kubectl")
    assert len(encode(person)) < 50
    remote = person._replace(address="10.0.0.7")
    assert decode(encode(remote)) == remote and len(encode(remote)) < 75


@pytest.mark.parametrize(
    ("recorded", "cause"),
    [
        (
            b'{"user":"alice","agent":"kubectl/v1.33.1 (linux/amd64)","verb":"patch","lease":"kube-system/a/3/me"}',
            WriteCause(0, "patch", "alice", "kubectl", term="kube-system/a/3/me"),
        ),
        (b"", WriteCause(0, "", "")),
        (b"[]", WriteCause(0, "", "")),
        (b"[2,3]", WriteCause(0, "", "")),
        (b'[2,3,"create bob",{"a":1}]', WriteCause(0, "", "")),
        (b'[3,3,"create  bob"]', WriteCause(0, "", "")),
        # Before addresses were recorded.
        (b'[2,3,"patch kubectl bob",{"trace":"00-trace"}]', WriteCause(3, "patch", "bob", "kubectl", trace="00-trace")),
        (b'[2,3,"patch kubectl bob",{"term":"a/3/me"}]', WriteCause(3, "patch", "bob", "kubectl", term="a/3/me")),
        (b'"text"', WriteCause(0, "", "")),
        (b'[1,5,"create","bob"]', WriteCause(5, "create", "bob")),
        (
            b'[1,5,"create","system:bob","kubectl","c/1.2","default/web",[7],0,"","1 is missing"]',
            WriteCause(
                5, "create", "system:bob", "kubectl", Claim("c/1.2", "default/web", (7,), reason="1 is missing")
            ),
        ),
        (
            b'[2,5,"bind kube-scheduler :kube-scheduler"]',
            WriteCause(5, "bind", "system:kube-scheduler", "kube-scheduler"),
        ),
        (b'[2,5,"patch a @kube-system:b"]', WriteCause(5, "patch", "system:serviceaccount:kube-system:b", "a")),
        (
            b'[1,5,"create","bob","","","",[],0,"","","00-trace","kube-system/a/3/me"]',
            WriteCause(5, "create", "bob", trace="00-trace", term="kube-system/a/3/me"),
        ),
    ],
)
def test_earlier_and_unknown_forms_are_decoded(recorded: bytes, cause: WriteCause) -> None:
    assert decode(recorded) == cause


def test_a_claim_that_cannot_be_encoded_is_left_out() -> None:
    claim = Claim("c/1.2", reason="not Unicode: \ud800")
    assert decode(encode(WriteCause(5, "create", "bob", claim=claim))) == WriteCause(5, "create", "bob")


@given(_CLAIMS)
def test_a_claim_is_parsed_as_it_was_sent(claim: Claim) -> None:
    header = claim_header(claim)
    assert len(header) <= MAX_HEADER_LENGTH and header.isascii(), CAUSE_HEADER
    parsed = parse_claim(header)
    if parsed is None:
        assert not any(claim)
    else:
        assert parsed._replace(reason="") == claim._replace(reason="")
        assert claim.reason.startswith(parsed.reason)


@given(st.text(max_size=1100))
def test_any_header_is_parsed_or_ignored(header: str) -> None:
    parsed = parse_claim(header)
    if parsed is not None:
        assert len(parsed.triggers) <= MAX_TRIGGERS and len(parsed.reason) <= MAX_REASON_LENGTH
        assert (parsed.reason + parsed.key + parsed.reconcile + parsed.besides).isprintable()


def test_a_foreign_client_needs_only_the_revision() -> None:
    assert parse_claim("t=412") == Claim(triggers=(412,))
    assert parse_claim("t=412; k=default/web; why=the backup is due") == Claim(
        "", "default/web", (412,), 0, "", "the backup is due"
    )
    # The key of a cluster-scoped object, as types.NamespacedName of Go prints it.
    assert parse_claim("k=/node-1") == parse_claim("k=node-1") == Claim("", "node-1")


@pytest.mark.parametrize("header", ["", "t=x", "t=0", "t=-1", f"t={2**63}", "t=1;t=2", "nonsense", "why=" + "x" * 1100])
def test_what_is_not_a_claim_is_ignored(header: str) -> None:
    assert parse_claim(header) is None


@given(st.lists(st.integers(1, 1000), max_size=40))
def test_merged_triggers_are_bounded_and_counted(revisions: list[int]) -> None:
    found: tuple[int, ...] = ()
    count = 0
    for revision in revisions:
        found, count = merged(found, count, (revision,), 0)
    assert len(found) <= MAX_TRIGGERS and list(found) == sorted(set(found)) and set(found) <= set(revisions)
    if len(set(revisions)) <= MAX_TRIGGERS:
        assert set(found) == set(revisions) and not count
    else:
        assert count > MAX_TRIGGERS and min(revisions) in found and max(revisions) in found


def test_the_product_of_a_user_agent() -> None:
    assert product_of("kubectl/v1.33.1 (linux/amd64) kubernetes/abc") == "kubectl"
    assert product_of("") == ""
    assert product_of("bad\x1b[31m/1") == "bad[31m"
