"""Texts that try to run a script, to leave their place, or to look like something else. Each sets a canary."""

from __future__ import annotations

CANARY = "__canary"
_CODE = f"window.{CANARY}=1"

_ELEMENTS = [
    f"<script>{_CODE}</script>",
    f"<ScRiPt>{_CODE}</sCrIpT>",
    f"<script src=data:text/javascript,{_CODE}></script>",
    f"<script type=module>{_CODE}</script>",
    f"<img src=x onerror={_CODE}>",
    f"<img/src='x'/onerror='{_CODE}'>",
    f'<img src="x" onerror="{_CODE}">',
    f"<svg onload={_CODE}>",
    f"<svg><script>{_CODE}</script></svg>",
    f"<svg><animate onbegin={_CODE} attributeName=x dur=1s>",
    f"<svg><set onbegin={_CODE} attributeName=x>",
    f"<body onload={_CODE}>",
    f"<iframe srcdoc='<script>parent.{CANARY}=1</script>'></iframe>",
    f"<iframe src=javascript:{_CODE}></iframe>",
    f"<object data=javascript:{_CODE}></object>",
    f"<embed src=javascript:{_CODE}>",
    f"<a href=javascript:{_CODE} id=click>click</a>",
    f"<a href='JaVaScRiPt:{_CODE}'>click</a>",
    f"<form action=javascript:{_CODE}><button>go</button></form>",
    f"<input autofocus onfocus={_CODE}>",
    f"<select autofocus onfocus={_CODE}>",
    f"<textarea autofocus onfocus={_CODE}>",
    f"<details open ontoggle={_CODE}>",
    f"<video><source onerror={_CODE}></video>",
    f"<audio src=x onerror={_CODE}>",
    f"<marquee onstart={_CODE}>",
    f"<math><mtext><table><mglyph><style><img src=x onerror={_CODE}>",
    f"<style>@keyframes x{{}}</style><p style=animation-name:x onanimationstart={_CODE}>",
    "<style>*{display:none}</style>",
    "<link rel=stylesheet href=//example.invalid/x.css>",
    "<meta http-equiv=refresh content='0;url=//example.invalid/'>",
    "<base href=//example.invalid/>",
    f"<template><script>{_CODE}</script></template>",
    f"<noscript><p title='</noscript><img src=x onerror={_CODE}>'>",
    f"<!--><img src=x onerror={_CODE}>-->",
    f"<![CDATA[<img src=x onerror={_CODE}>]]>",
    f"<x onclick={_CODE}>",
    f"<button onclick={_CODE} autofocus>",
    f"<dialog open onclose={_CODE}>",
]
_BREAKOUTS = [
    '"',
    "'",
    "`",
    '">',
    "'>",
    "-->",
    "]]>",
    "</title>",
    "</textarea>",
    "</script>",
    "</style>",
    "\\u003c",
    "&lt;",
]
_OTHERS = [
    f"javascript:{_CODE}",
    f"data:text/html,<script>{_CODE}</script>",
    f"${{{_CODE}}}",
    f"{{{{constructor.constructor('{_CODE}')()}}}}",
    f"{{{{= {_CODE} }}}}",
    f"<%= {_CODE} %>",
    f"#{{{_CODE}}}",
    f"`+({_CODE})+`",
    f"';{_CODE};//",
    f'";{_CODE};//',
    f"\\';{_CODE};//",
    f"eval('{_CODE}')",
    f'{{"__proto__":{{"{CANARY}":1}}}}',
    "__proto__",
    "constructor",
    "toString",
    "hasOwnProperty",
    "&#x3c;img src=x onerror=alert(1)&#x3e;",
    "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E",
    "\u202egnp.evil",
    "a\u200bb\ufeffc",
    "\u2066left\u2069 \u2067right\u2069",
    "line\u2028separator\u2029paragraph",
    "null\u0000byte".replace("\u0000", "\u0001"),
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b]52;c;Y2FuYXJ5\x07",
    "A" * 5_000,
    "\U0001f9d1\u200d\U0001f680" * 50,
    "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f" * 30,
    "../../../../etc/passwd",
    "//example.invalid/",
    "https://example.invalid/?q=<script>",
]


def hostile_texts() -> list[str]:
    """About two hundred texts."""
    broken_out = [start + element for start in _BREAKOUTS for element in _ELEMENTS[:10]]
    return [*_ELEMENTS, *_OTHERS, *broken_out]


def hostile_names() -> list[str]:
    """Texts that are valid names of roles, which may be any segment of a path."""
    return [each for each in hostile_texts() if each.isprintable() and len(each) <= 200 and not set("/%") & set(each)]
