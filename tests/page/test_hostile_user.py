"""The name of a user is text, also in refusals, which contain it."""

from __future__ import annotations

import re
from html import escape

import pytest
from browser import GuardedPage
from hostile_page import assert_harmless, assert_shown
from hostile_texts import hostile_texts
from page_cluster import PageCluster
from page_typist import Typist

from setpoint.meta.goformat import quote

TEXTS = [text.strip() for text in hostile_texts()]
NAME = "  ".join(TEXTS)
REFUSED = [escape(quote(text)[1:-1], quote=False) for text in TEXTS]
"""The texts as they are in refusals: the API server, as upstream's, quotes the name of a user and escapes it as HTML."""
UP_FLAGS = ("--page-user", NAME, "--page-group", "hostile")


@pytest.fixture(scope="module")
def hostile(cluster: PageCluster) -> PageCluster:
    """The user may read ConfigMaps, and nothing else."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}]
    cluster.create(f"{rbac}/clusterroles", {"metadata": {"name": "maps"}, "rules": rules})
    subject = {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "hostile"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maps"}
    binding = {"metadata": {"name": "maps"}, "subjects": [subject], "roleRef": role}
    cluster.create(f"{rbac}/clusterrolebindings", binding)
    cluster.create("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "target"}, "data": {"a": "b"}})
    return cluster


def test_refused_feeds(hostile: PageCluster, page: GuardedPage) -> None:
    """Every view names the user who may not see it, or nobody."""
    page.go("#/objects/pods?ns=default")
    main = page.get_by_role("main")
    main.get_by_text("You may not use pods here.").wait_for()
    assert_shown(main.text_content() or "", REFUSED)
    views = page.get_by_role("navigation", name="Views").get_by_role("link")
    for number in range(views.count()):
        views.nth(number).click()
        page.until("document.querySelector('main .loading') === null")
        assert_harmless(page)
    page.press("g", "u")
    about = page.get_by_role("dialog", name="See as another user")
    about.wait_for()
    assert_shown(about.text_content() or "", TEXTS)
    assert_harmless(page)


def test_refused_answers_and_writes(hostile: PageCluster, page: GuardedPage) -> None:
    page.go("#/objects/configmaps/default/target?ns=default")
    inspector = page.get_by_role("complementary")
    tabs = inspector.get_by_role("tab")
    tabs.first.wait_for()
    for number in range(tabs.count()):
        tabs.nth(number).click()
        page.until("document.querySelector('aside .loading') === null")
        assert_harmless(page)
    page.get_by_role("button", name="Delete this object").click()
    page.get_by_role("dialog").get_by_role("button", name=re.compile("^Delete")).click()
    toast = page.locator(".toast.error")
    toast.wait_for()
    assert_shown(toast.text_content() or "", REFUSED)
    assert_shown(page.locator("#live-urgent").text_content() or "", REFUSED)
    assert_harmless(page)
    page.go("#/objects/configmaps/default/target?ns=default&tab=yaml")
    page.get_by_role("button", name="Edit", exact=True).first.click()
    field = page.locator(".editor-field")
    field.wait_for()
    field.fill(field.input_value().replace("a: b", "a: c"))
    problem = page.locator(".editor-problems li")
    problem.wait_for()
    assert_shown(problem.text_content() or "", REFUSED)
    page.press("Control+s")
    error = page.locator(".editor-error")
    error.wait_for()
    assert_shown(error.text_content() or "", REFUSED)
    assert_harmless(page)


def test_refused_commands(hostile: PageCluster, page: GuardedPage) -> None:
    """A terminal shows the message that `kubectl` prints, without its control characters."""
    typist = Typist(page).open()
    typist.line("kubectl delete configmap target 2> refusal; wc -l < refusal")
    typist.line("cat refusal")
    assert_harmless(page)
