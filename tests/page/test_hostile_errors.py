"""Messages of refusals, answers to "why" and plans of undo are text, no matter who wrote what they contain."""

from __future__ import annotations

import re
from typing import Any

import pytest
from browser import GuardedPage
from hostile_page import assert_harmless, assert_shown, parcels
from hostile_texts import hostile_texts
from page_cluster import PageCluster
from page_typist import Typist

from setpoint.cli.escaping import escaped
from setpoint.view.terminal_text import TerminalFilter

TEXTS = [text.strip() for text in hostile_texts()]
MESSAGES = parcels(4_900, TEXTS)
"""What policies answer, which is at most 5 KiB."""
REASONS = parcels(800, TEXTS)
"""Messages that are remembered whole, which those of 1,000 characters are not, and that fit on a terminal."""
MAPS = "/api/v1/namespaces/default/configmaps"
GROUP = "hostile.example.com"
BOMB = f"/apis/{GROUP}/v1/namespaces/default/bombs"
APPLY = "application/apply-patch+yaml"


def policy() -> dict[str, Any]:
    """A policy that refuses every write of a ConfigMap, with the text that the ConfigMap contains."""
    operations = ["CREATE", "UPDATE", "DELETE"]
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": operations, "resources": ["configmaps"]}
    written = "(oldObject == null ? object : oldObject)"
    validation = {
        "expression": f"!has({written}.data) || !has({written}.data.said)",
        "messageExpression": f"string({written}.data.said)",
    }
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [validation], "failurePolicy": "Fail"}
    return {"metadata": {"name": "says"}, "spec": spec}


def custom_kind() -> dict[str, Any]:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    names = {"plural": "bombs", "singular": "bomb", "kind": "Bomb"}
    spec = {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": f"bombs.{GROUP}"}, "spec": spec}


@pytest.fixture(scope="module")
def hostile(cluster: PageCluster) -> PageCluster:
    admission = "/apis/admissionregistration.k8s.io/v1"
    for number, message in enumerate(MESSAGES):
        cluster.create(MAPS, {"metadata": {"name": f"says-{number}"}, "data": {"said": message}})
    for number, message in enumerate(REASONS):
        cluster.create(MAPS, {"metadata": {"name": f"brief-{number}"}, "data": {"said": message}})
    cluster.create(f"{admission}/validatingadmissionpolicies", policy())
    binding = {"policyName": "says", "validationActions": ["Deny"]}
    cluster.create(f"{admission}/validatingadmissionpolicybindings", {"metadata": {"name": "says"}, "spec": binding})
    cluster.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", custom_kind())
    kind = {"apiVersion": f"{GROUP}/v1", "kind": "Bomb", "metadata": {"name": "bomb"}}
    cluster.create(BOMB, {**kind, "spec": {"keys": {"first": 1}}}, kind_within=10)
    for manager in ("ann", "bob"):
        keys = {text: f"{manager} {text}" for text in TEXTS}
        body = {**kind, "spec": {"keys": keys}, "status": {"conditions": conditions()}}
        cluster.api("PATCH", f"{BOMB}/bomb?fieldManager={manager}&force=true", body, APPLY)
    return cluster


def conditions() -> list[dict[str, str]]:
    return [
        {"type": f"C{number}", "status": "False", "reason": text[:100], "message": text}
        for number, text in enumerate(MESSAGES)
    ]


@pytest.mark.parametrize("number", range(len(MESSAGES)))
def test_refused_writes(hostile: PageCluster, page: GuardedPage, number: int) -> None:
    texts = MESSAGES[number].split("  ")
    page.go(f"#/objects/configmaps/default/says-{number}?ns=default&tab=yaml")
    page.get_by_role("button", name="Edit", exact=True).first.click()
    field = page.locator(".editor-field")
    field.wait_for()
    text = field.input_value()
    field.fill(text.replace("\ndata:\n", "\ndata:\n  more: x\n"))
    problem = page.locator(".editor-problems li")
    problem.wait_for()
    assert_shown(problem.text_content() or "", texts)
    page.press("Control+s")
    error = page.locator(".editor-error")
    error.wait_for()
    assert_shown(error.text_content() or "", texts)
    assert_harmless(page)
    page.get_by_role("tab", name="Difference").click()
    page.locator(".diff-added").wait_for()
    assert_harmless(page)
    page.get_by_role("button", name="Close (Ctrl-X)").click()
    page.get_by_role("dialog").get_by_role("button", name="Close without saving").click()
    page.get_by_role("button", name="Delete this object").click()
    page.get_by_role("dialog").get_by_role("button", name=re.compile("^Delete")).click()
    toast = page.locator(".toast.error")
    toast.wait_for()
    assert_shown(toast.text_content() or "", texts)
    assert_shown(page.locator("#live-urgent").text_content() or "", texts)
    assert_harmless(page)


def test_answers_to_why(hostile: PageCluster, page: GuardedPage) -> None:
    """The answer about an object that could not be created contains the message of the refusal."""
    answer = page.locator(".why-answer")
    for number, message in enumerate(REASONS):
        body = {"metadata": {"name": f"refused-{number}"}, "data": {"said": message}}
        with pytest.raises(RuntimeError, match="denied request"):
            hostile.api("POST", MAPS, body)
        page.go(f"#/objects/configmaps/default/refused-{number}?ns=default&tab=why")
        page.until_text(f"refused-{number} does not exist, and a write of it was refused.")
        assert_shown(answer.text_content() or "", message.split("  "))
        assert_harmless(page)
    page.go(f"#/objects/{GROUP}.bombs/default/bomb?ns=default&tab=why")
    for question in page.locator(".why-questions .toolbar button").all():
        question.click()
        page.until("document.querySelector('.why-answer') !== null")
        assert_harmless(page)


def test_plans_of_undo(hostile: PageCluster, page: GuardedPage) -> None:
    page.go(f"#/objects/{GROUP}.bombs/default/bomb?ns=default&tab=history")
    entries = page.locator(".history-entry")
    entries.nth(2).wait_for()
    assert_harmless(page)
    entries.nth(1).get_by_role("button", name="Undo").click()
    plan = page.locator(".undo-plan")
    plan.wait_for()
    assert_shown(plan.text_content() or "", TEXTS)
    assert_harmless(page)


def test_errors_of_commands(hostile: PageCluster, page: GuardedPage) -> None:
    """A terminal shows the messages that `kubectl` prints, without control characters."""
    typist = Typist(page).open()
    for number, message in enumerate(REASONS):
        printed = typist.line(f"kubectl delete configmap brief-{number}")
        texts = [TerminalFilter().filtered(escaped(text)) for text in message.split("  ")]
        # A line that is wrapped at a blank does not have it.
        assert [text for text in texts if "".join(text.split()) not in "".join(printed.split())] == []
        assert_harmless(page)
