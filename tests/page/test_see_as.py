"""A tab that acts as another user: the dialog, what this user may not do, the banner, and the way back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from axe_findings import findings
from browser import GuardedContext, GuardedPage
from page_cluster import PageCluster
from playwright.sync_api import Locator, expect

ACCOUNT = "system:serviceaccount:default:default"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PHONE = {"width": 390, "height": 844}


def see_as(page: GuardedPage, user: str, groups: str = "") -> None:
    page.press("g", "u")
    dialog = page.get_by_role("dialog", name="See as another user")
    dialog.get_by_label("User, or service account").fill(user)
    dialog.get_by_label("Groups").fill(groups)
    dialog.get_by_role("button", name="See as this user").click()
    expect(banner(page, user)).to_be_visible()


def banner(page: GuardedPage, user: str) -> Locator:
    return page.get_by_role("region", name=f"You see this cluster as {user}")


def test_another_user_is_refused_and_one_returns(cluster: PageCluster, page: GuardedPage) -> None:
    cluster.create_deployment("web", 1)
    page.until_text("web-")
    dock = page.locator(".dock")
    expect(dock.locator(".timeline-strip")).to_be_visible()
    place = dock.bounding_box()
    page.get_by_role("button", name="See as another user").click()
    dialog = page.get_by_role("dialog", name="See as another user")
    field = dialog.get_by_label("User, or service account")
    expect(field).to_be_focused()
    # Service accounts, users and groups that the server knows are offered; an empty name leads nowhere.
    expect(dialog.locator(f"#see-as-users option[value='{ACCOUNT}']")).to_be_attached()
    expect(dialog.locator("#see-as-group-names option[value='system:masters']")).to_be_attached()
    page.press("Enter")
    expect(dialog).to_be_visible()
    field.fill("jäne")
    page.press("Enter")
    expect(dialog.get_by_role("alert")).to_contain_text("printable ASCII characters")
    field.fill(ACCOUNT)
    page.press("Enter")

    shown = banner(page, ACCOUNT)
    expect(shown).to_contain_text("the server records both names")
    main = page.get_by_role("main")
    expect(main).to_contain_text("You may not use pods here.")
    expect(main).to_contain_text(f'User "{ACCOUNT}" cannot list resource "pods"')
    expect(main.get_by_text("web-")).to_have_count(0)
    expect(dock.locator(".notice")).to_contain_text("You may not use")
    assert dock.bounding_box() == place, "a refusal takes the place of the timeline"
    page.go("#/chain")
    expect(main).to_contain_text("You may not read what would be shown here")
    expect(main).not_to_contain_text("Nothing runs here yet")
    page.go("#/objects/pods")
    # A reload of the tab keeps the user, and the address does not name them: another tab acts as its own user.
    page.page.reload()
    expect(shown).to_be_visible()
    assert ACCOUNT not in page.page.url
    other = page.guard.new_page()
    other.page.goto(page.page.url)
    other.until_text("web-")
    expect(other.locator(".banner.other")).to_have_count(0)

    shown.get_by_role("button", name="Back to your own user").click()
    page.until_text("web-")
    expect(page.locator(".banner.other")).to_have_count(0)


def test_a_user_with_some_rights_sees_and_does_what_they_may(cluster: PageCluster, page: GuardedPage) -> None:
    subject = {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "viewers"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    binding = {"metadata": {"name": "viewers"}, "subjects": [subject], "roleRef": role}
    cluster.create(f"{RBAC}/namespaces/default/rolebindings", binding)
    cluster.create_deployment("seen", 1)
    page.until_text("seen-")
    see_as(page, "jane", "viewers, others")
    expect(banner(page, "jane")).to_contain_text("in the groups viewers, others")
    page.go("#/objects/apps.deployments/default/seen?ns=default")
    inspector = page.get_by_role("complementary", name="Selected object")
    inspector.get_by_role("button", name="Actions").click()
    page.get_by_role("menuitem", name="Scale…").click()
    page.get_by_label("Number of Pods").fill("2")
    page.get_by_role("dialog").get_by_role("button", name="Scale", exact=True).click()
    page.until_text('User "jane" cannot patch resource')
    assert cluster.api("GET", "/apis/apps/v1/namespaces/default/deployments/seen")["spec"]["replicas"] == 1


def test_the_terminal_acts_as_the_other_user(cluster: PageCluster, page: GuardedPage) -> None:
    see_as(page, "jane")
    page.press("`")
    page.page.locator(".xterm-helper-textarea").wait_for(state="attached")
    page.keyboard.type("kubectl auth whoami; kubectl get pods\n")
    page.until("document.querySelector('.xterm-rows')?.innerText.includes('cannot list resource')")
    assert "jane" in page.locator(".xterm-rows").inner_text()


@pytest.mark.parametrize("options", [{"color_scheme": "light"}, {"color_scheme": "dark"}, {"viewport": PHONE}], ids=str)
def test_axe_finds_nothing(
    cluster: PageCluster, new_context: Callable[..., GuardedContext], options: dict[str, object]
) -> None:
    page = new_context(**options).new_page().enter()
    page.until("document.querySelector('.data-rows, .notice') !== null")
    page.press("g", "u")
    dialog = page.get_by_role("dialog", name="See as another user")
    dialog.wait_for()
    problems = findings(page)
    dialog.get_by_label("User, or service account").fill("ä")
    page.press("Enter")
    dialog.get_by_role("alert").wait_for()
    problems += findings(page)
    dialog.get_by_label("User, or service account").fill(ACCOUNT)
    page.press("Enter")
    banner(page, ACCOUNT).wait_for()
    page.until_text("You may not use pods here.")
    problems += findings(page)
    # The dialog of a tab that acts as another user already has a way back, too.
    page.press("g", "u")
    expect(dialog.get_by_role("button", name="Back to your own user")).to_be_visible()
    problems += findings(page)
    assert problems == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if options == {"viewport": PHONE}:
        assert banner(page, ACCOUNT).evaluate("(element) => element.offsetHeight") <= 130
