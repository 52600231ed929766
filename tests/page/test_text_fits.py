"""Texts have room: names of lanes stay clear of the marks, and cards of Pods show whole lines."""

from __future__ import annotations

from collections.abc import Callable

from browser import GuardedContext
from page_cluster import PageCluster

_CUT = """
() => [...document.querySelectorAll(".fleet-pod:not([hidden]) span")].filter((one) => one.textContent).map((one) => {
  const line = parseFloat(getComputedStyle(one).lineHeight);
  const lines = one.getBoundingClientRect().height / line;
  return [one.textContent, Math.abs(lines - Math.round(lines)) < 0.1 && lines >= 1];
})
"""
_GAPS = """
() => {
  const lanes = document.querySelector(".timeline-lanes");
  const track = document.querySelector(".timeline-track").getBoundingClientRect();
  const range = document.createRange();
  return [...lanes.children].map((one) => {
    range.selectNodeContents(one);
    return track.left - Math.min(range.getBoundingClientRect().right, one.getBoundingClientRect().right);
  });
}
"""


def test_names_of_lanes_and_of_pods_have_room(cluster: PageCluster, new_context: Callable[..., GuardedContext]) -> None:
    cluster.create_deployment("a-name-that-needs-several-lines", 2)
    page = new_context(viewport={"width": 900, "height": 620}).new_page().enter(then="#/fleet")
    page.until("document.querySelectorAll('.fleet-pod:not([hidden]) span').length >= 4")
    page.until("[...document.querySelectorAll('.fleet-pod span')].some((one) => one.textContent.includes('several'))")
    shown = page.evaluate(_CUT)
    assert shown and [text for text, whole in shown if not whole] == []
    page.until("document.querySelectorAll('.timeline-lanes > li').length > 1")
    gaps = page.evaluate(_GAPS)
    assert min(gaps) >= 4, gaps
