"""Links in what a proxy passes back: those to the root of the proxied server lead through the proxy."""

from __future__ import annotations

import html
import re
from urllib.parse import urlsplit, urlunsplit

_LINKS: dict[str, frozenset[str]] = {
    "a": frozenset(("href",)), "applet": frozenset(("codebase",)), "area": frozenset(("href",)),
    "audio": frozenset(("src",)), "base": frozenset(("href",)), "blockquote": frozenset(("cite",)),
    "body": frozenset(("background",)), "button": frozenset(("formaction",)), "command": frozenset(("icon",)),
    "del": frozenset(("cite",)), "embed": frozenset(("src",)), "form": frozenset(("action",)),
    "frame": frozenset(("longdesc", "src")), "head": frozenset(("profile",)), "html": frozenset(("manifest",)),
    "iframe": frozenset(("longdesc", "src")), "img": frozenset(("longdesc", "src", "usemap")),
    "input": frozenset(("src", "usemap", "formaction")), "ins": frozenset(("cite",)), "link": frozenset(("href",)),
    "object": frozenset(("classid", "codebase", "data", "usemap")), "q": frozenset(("cite",)),
    "script": frozenset(("src",)), "source": frozenset(("src",)), "video": frozenset(("poster", "src")),
}  # fmt: skip
"""By tag: its attributes that are addresses."""
# Whoever serves the page chose it: no character is looked at again and again.
_VALUE = r"(?:\"[^\"]*+\"|'[^']*+'|[^\s\"'<>]++)"
_TAG = re.compile(rf"<([a-zA-Z][a-zA-Z0-9]*+)((?:\s++[^\s=<>/]++(?:\s*+=\s*+{_VALUE})?)*)(\s*+/?)>")
_ATTRIBUTE = re.compile(rf"(?<![^\s=<>/])([^\s=<>/]++)(\s*+=\s*+)({_VALUE})")


def rewrite_link(link: str, prefix: str, host: str) -> str:
    """`prefix` is the path of the proxy, `host` what the client calls this server."""
    try:
        parts = urlsplit(link)
    except ValueError:
        return link
    if (parts.netloc and parts.netloc != host) or not parts.path.startswith("/") or parts.path.startswith(prefix):
        return link
    return urlunsplit(parts._replace(path=prefix.rstrip("/") + parts.path))


def rewrite_html(text: str, prefix: str, host: str) -> str:
    def tag(found: re.Match[str]) -> str:
        wanted = _LINKS.get(found[1].lower())
        if not wanted or "=" not in found[2]:
            return found[0]

        def attribute(one: re.Match[str]) -> str:
            if one[1].lower() not in wanted:
                return one[0]
            value = html.unescape(one[3][1:-1] if one[3][0] in "\"'" else one[3])
            return f'{one[1]}{one[2]}"{html.escape(rewrite_link(value, prefix, host))}"'

        return f"<{found[1]}{_ATTRIBUTE.sub(attribute, found[2])}{found[3]}>"

    return _TAG.sub(tag, text)
