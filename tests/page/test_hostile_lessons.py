"""Lessons of strangers are text: their titles, their Markdown, and every kind of block."""

from __future__ import annotations

import atexit
import json
import re
import shutil
import tempfile
from base64 import b64decode
from pathlib import Path

from browser import GuardedPage
from hostile_page import assert_harmless, assert_shown, parcels
from hostile_texts import hostile_texts
from page_cluster import PageCluster
from page_learner import Learner

TEXTS = [text.strip()[:300] for text in hostile_texts()]
TITLES, SUMMARIES, SENTENCES, OPTIONS = (parcels(most, TEXTS) for most in (119, 239, 299, 1_500))
"""The texts in pieces of the length that each place has."""
PIXEL = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=")
NO_PODS = 'objects("Pod", "default").size() == 0'
_SPECIAL = re.compile(r"([\\`*\[\]!()_#|<>\-.{}:])")


def escaped(text: str) -> str:
    """Return Markdown that is this text."""
    return _SPECIAL.sub(r"\\\1", text)


def attributes(**values: object) -> str:
    """Return fields in YAML, in which a character beyond 16 bits is not two."""
    fields = "\n".join(f"{name}: {json.dumps(value)}" for name, value in values.items())
    pair = re.compile(r"\\u(d[89ab]..)\\u(d[c-f]..)")
    return pair.sub(
        lambda found: f"\\U{0x10000 + (int(found[1], 16) - 0xD800) * 1024 + int(found[2], 16) - 0xDC00:08x}", fields
    )


def body() -> str:
    """Return Markdown with all texts in all places, as they are and as text that means itself."""
    lines = ["# Headings"]
    for text in TEXTS:
        lines += [f"### {text}", "", f"### {escaped(text)}", "", text, "", escaped(text), ""]
        lines += [
            f"- {text}",
            f"- {escaped(text)}",
            "",
            f"> {text}",
            "",
            f"> {escaped(text)}",
            "",
            f"**{text}** *{text}* `{text}`",
            "",
        ]
        lines += [f"[{escaped(text)}](https://example.com/) ![{escaped(text)}](pixel.png)", ""]
    lines += ["| one | two |", "|---|---|"]
    lines += [f"| {escaped(text)} | {text.replace('`', '')} |" for text in TEXTS]
    lines += ["", "```html", *TEXTS, "```", ""]
    return "\n".join(lines)


def blocks() -> str:
    """Return one block of each kind, or as many as are needed for all texts."""
    found = [":::run", *(f"echo {text}" for text in TEXTS), ":::", ""]
    found += [":::file page.html", *TEXTS, ":::", ""]
    for number, text in enumerate(SENTENCES):
        wrong = [{"when": NO_PODS, "say": text}]
        found += [f":::check met-{number}", attributes(say=text, when=NO_PODS), ":::", ""]
        fields = {"say": text, "when": f"!({NO_PODS})", "else": wrong, "hint": [escaped(text)]}
        found += [f":::check open-{number}", attributes(**fields), ":::", ""]
    options = [f"- [x] {escaped(text)}" for text in OPTIONS]
    question = [line for text in OPTIONS for line in (escaped(text), "")]
    found += [":::quiz", *question, *options, f"because: {escaped('  '.join(OPTIONS[:4]))}", ":::", ""]
    steps = [f"{at}. {escaped(text)}" for at, text in enumerate(OPTIONS, 1)]
    found += [":::quiz", *question, *steps, f"because: {escaped('  '.join(OPTIONS[4:]))}", ":::", ""]
    outcome = ["because: So it is.", f"run: echo {TEXTS[0]}", f"until: {NO_PODS}"]
    found += [":::predict", *question, *options, *outcome, ":::", ""]
    for text in TEXTS:
        found += [f":::reveal {text}", escaped(text), ":::", ""]
    found += [":::hint", *question, ":::", "", ":::solution", *(f"echo {text}" for text in TEXTS), ":::", ""]
    return "\n".join(found)


def lesson(title: str, summary: str, text: str) -> str:
    start = {"nodes": 1, "pace": "fast"}
    return f"---\n{attributes(title=title, summary=summary, minutes=5, start=start)}\n---\n{text}"


def hostile_course() -> Path:
    """Return a folder with lessons that have these titles, and one with these texts."""
    folder = Path(tempfile.mkdtemp(prefix="setpoint-hostile-"))
    names = ["markdown", "blocks"]
    (folder / "markdown.md").write_text(lesson("Markdown", "All places of a text", body()))
    (folder / "blocks.md").write_text(lesson("Blocks", "All blocks", blocks()))
    for number, title in enumerate(TITLES):
        names.append(f"titled-{number}")
        summary = SUMMARIES[number] if number < len(SUMMARIES) else ""
        (folder / f"titled-{number}.md").write_text(lesson(title, summary, "A text."))
    (folder / "pixel.png").write_bytes(PIXEL)
    links = [
        f"[{escaped(text)}]({text}) ![{escaped(text)}]({text}) [link](https://example.com/{text})" for text in TEXTS
    ]
    (folder / "links.md").write_text(lesson("Links", "", "\n\n".join(links)))
    (folder / "broken.md").write_text("---\ntitle: x\n---\n" + "\n".join(f":::file {text}\n:::\n" for text in TEXTS))
    (folder / "course.yaml").write_text(attributes(title="  ".join(OPTIONS), lessons=[*names, "links", "broken"]))
    return folder


COURSE = hostile_course()
UP_FLAGS = ("--lessons", str(COURSE))
atexit.register(shutil.rmtree, COURSE, ignore_errors=True)


def test_the_list_of_lessons(cluster: PageCluster, page: GuardedPage) -> None:
    """It has titles, summaries, and what is wrong with files that cannot be used."""
    page.go("#/learn")
    page.locator(".learn-card").nth(len(TITLES)).wait_for()
    content = page.locator(".learn-list").text_content() or ""
    assert_shown(content, TEXTS)
    for css, texts in (("h2", OPTIONS), (".learn-card-title", TITLES), (".learn-card-summary", SUMMARIES)):
        assert_shown("".join(page.locator(f".learn-list {css}").all_text_contents()), texts)
    problems = "".join(page.locator(".learn-problems").all_text_contents())
    assert "links.md" in problems and "broken.md" in problems
    assert_harmless(page)


def opened(page: GuardedPage, name: str) -> str:
    """Open a lesson, and return its text."""
    page.go("#/learn")
    page.locator(f'.learn-card a[href*="own%2F{name}"]').click()
    page.until("location.hash.includes('cluster=%2Fforks%2Flesson-') && document.querySelector('.learn-text')", 30)
    return page.locator(".learn-text").text_content() or ""


def test_markdown(cluster: PageCluster, page: GuardedPage) -> None:
    opened(page, "markdown")
    for css in ("h4", "p", "li", "blockquote", "td", "pre", "a", "code"):
        texts = [text for text in TEXTS if css != "code" or "`" not in text]
        assert_shown("  ".join(page.locator(f".learn-text {css}").all_text_contents()), texts)
    assert len(page.locator(".learn-text img").all()) == len(TEXTS)
    links = page.evaluate("[...document.querySelectorAll('.learn-text a')].map((each) => [each.href, each.rel])")
    assert {tuple(each) for each in links} == {("https://example.com/", "noopener noreferrer")}
    assert_harmless(page)


def test_blocks(cluster: PageCluster, page: GuardedPage) -> None:
    opened(page, "blocks")
    text = page.locator(".learn-text")
    page.until(f"document.querySelectorAll('[data-met=true]').length === {len(SENTENCES)}", 30)
    assert_shown("".join(page.locator("[data-met=true]").all_text_contents()), SENTENCES)
    notes = page.locator(".learn-note")
    notes.nth(len(SENTENCES) - 1).wait_for()
    assert_shown("".join(notes.all_text_contents()), SENTENCES)
    page.evaluate("[...document.querySelectorAll('.learn-check button')].forEach((each) => each.click())")
    page.until(f"document.querySelectorAll('.learn-hint').length === {len(SENTENCES)}", 30)
    assert_shown("".join(page.locator(".learn-hint").all_text_contents()), SENTENCES)
    for kind in range(2):
        quiz = page.locator(".learn-quiz").nth(kind)
        assert_shown(quiz.locator("legend").text_content() or "", TEXTS)
        assert_shown("".join(quiz.locator("label, li").all_text_contents()), TEXTS)
        quiz.get_by_role("button", name="Reveal answer").click()
        assert_shown(quiz.locator(".learn-result").first.text_content() or "", TEXTS)
    for css in (".learn-command pre", ".learn-file pre", ".learn-reveal summary", ".learn-foot pre", ".learn-predict"):
        assert_shown("".join(text.locator(css).all_text_contents()), TEXTS)
    assert_harmless(page)


def test_a_command_on_the_line_of_the_terminal(cluster: PageCluster, page: GuardedPage) -> None:
    Learner(page).open("own/blocks")
    page.locator(".learn-run").get_by_role("button", name="Type").first.click()
    page.until("document.querySelector('.xterm-rows').textContent.includes('echo <script>')")
    assert_harmless(page)
