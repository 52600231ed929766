"""A page that shows hostile texts: they are text, nothing else, and what they hide is visible."""

from __future__ import annotations

import re

from browser import GuardedPage
from hostile_texts import CANARY, hostile_texts

_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_FOREIGN = "iframe frame object embed applet base marquee math video audio source template x animate set mglyph"
"""Elements that the texts contain, and that the page does not use."""
_SHOWN_ATTRIBUTES = "title aria-label aria-description alt placeholder label"
_FAULTS = r"""
() => {
  const found = [];
  const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/;
  if (window.CANARY !== undefined || ({}).CANARY !== undefined) found.push("a script ran");
  if (hidden.test(document.title)) found.push(`hidden characters in the title: ${document.title}`);
  const foreign = new Set("FOREIGN".split(" "));
  const own = (url) => url.startsWith(location.origin + "/");
  for (const element of document.querySelectorAll("*")) {
    const name = element.localName;
    const tag = () => element.cloneNode(false).outerHTML.slice(0, 300);
    const isIntruder =
      foreign.has(name) ||
      (name === "noscript" && element.parentElement !== document.body) ||
      (name === "script" && !own(element.src)) ||
      (name === "link" && !own(element.href)) ||
      (name === "img" && !element.src.startsWith("data:image/")) ||
      (name === "style" && element.nonce === "") ||
      (name === "meta" && element.httpEquiv !== "") ||
      (name === "a" && element.hasAttribute("href") && !/^https?:$/.test(element.protocol));
    if (isIntruder) found.push(`an element of a text: ${tag()}`);
    for (const attribute of element.attributes)
      if (/^(on|srcdoc$|formaction$|action$)/.test(attribute.name)) found.push(`an attribute of a text: ${tag()}`);
    if (element.closest(".xterm")) continue;
    for (const attribute of "ATTRIBUTES".split(" "))
      if (hidden.test(element.getAttribute(attribute) ?? "")) found.push(`hidden characters in ${attribute}: ${tag()}`);
  }
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const { data, parentElement } = texts.currentNode;
    if (hidden.test(data) && !parentElement.closest(".xterm, textarea"))
      found.push(`hidden characters in <${parentElement.localName} class="${parentElement.className}">: ${data.slice(0, 200)}`);
  }
  return found;
}
"""
_FAULTS = _FAULTS.replace("CANARY", CANARY).replace("FOREIGN", _FOREIGN).replace("ATTRIBUTES", _SHOWN_ATTRIBUTES)


def assert_harmless(page: GuardedPage) -> None:
    """Fail if a script of a text ran, a text became an element or an attribute, or hides or reorders what it shows.
    Scripts, styles and requests that the browser has blocked are problems of the page, which fail its test at the
    end."""
    found = page.evaluate(_FAULTS)
    assert not found, "\n".join(found)


def shown(text: str) -> str:
    """Return the text as the page shows it: with characters that hide or reorder made visible."""
    return _HIDDEN.sub(lambda found: f"<U+{ord(found[0]):04X}>", text)


def assert_shown(content: str, texts: list[str]) -> None:
    """Fail if one of the texts is not in what an element contains."""
    missing = [each for each in texts if shown(each) not in content]
    assert not missing, (
        f"{len(missing)} texts are missing, such as {[each[:80] for each in missing[:3]]}, in {content[:1000]!r}"
    )


def parcels(most: int, texts: list[str] | None = None) -> list[str]:
    """Return all texts in as few as possible of at most so many bytes, separated by two blanks. A longer one is
    alone, and cut."""
    found: list[str] = []
    for text in hostile_texts() if texts is None else texts:
        joined = f"{found[-1]}  {text}" if found else text
        if found and len(joined.encode()) <= most:
            found[-1] = joined
        else:
            found.append(text[:most])
    return found
