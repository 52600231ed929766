"""Which images there are, how long they take to pull, and what they do when nobody says what to run.

All of it is data: rules are tried in order, and in each question the first that matches an image and says something
about it decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, NamedTuple

from setpoint.kinds.core.podspec.images import split_reference
from setpoint.meta.memoize import memoized
from setpoint.node.pace import NO_TIME, Span
from setpoint.node.runtime.well_known_images import misspelled

_MEGABYTE = 1_000_000


class Reference(NamedTuple):
    """An image by its full name."""

    name: str
    """As runtimes show it: `docker.io/library/nginx:latest`."""
    repository: str
    digest: str


@memoized(maxsize=8192)
def reference(image: str) -> Reference | None:
    """None: no image can have such a name."""
    parts = split_reference(image)
    if parts is None:
        return None
    repository, tag, digest = parts
    if repository.startswith("docker.io/") and repository.count("/") == 1:
        repository = repository.replace("/", "/library/")
    name = f"{repository}:{tag}" if tag else f"{repository}@{digest}" if digest else f"{repository}:latest"
    # Where a registry would say which content a name stands for: the same name, the same content.
    digest = digest or "sha256:" + sha256(name.encode()).hexdigest()
    return Reference(name, repository, digest)


class ImageRule(NamedTuple):
    """What holds for the images whose full name contains a match of `pattern`."""

    pattern: str
    pull_seconds: float | None = None
    size_bytes: int | None = None
    error: str | None = None
    """Why it cannot be pulled; {name} and {host} are filled in. Empty: it can."""
    entrypoint: tuple[str, ...] | None = None
    command: tuple[str, ...] | None = None
    page: str | None = None
    """The file that its server shows first."""
    page_text: str | None = None
    """What that file holds."""
    files: tuple[str, ...] | None = None
    """Others in it that somebody may look for."""
    serves: bool | None = None
    """It runs a server, and nothing else, when started without a command."""
    complete: bool | None = None
    """Everything in it is known: what our shell does not know is not there."""
    ports: tuple[int, ...] | None = None
    """At which its server listens, over TCP."""


NOT_FOUND = (
    'rpc error: code = NotFound desc = failed to pull and unpack image "{name}": '
    'failed to resolve reference "{name}": {name}: not found'
)
NO_HOST = (
    'rpc error: code = Unknown desc = failed to pull and unpack image "{name}": failed to resolve reference '
    '"{name}": failed to do request: Head "https://{host}/v2/{path}/manifests/{tag}": '
    "dial tcp: lookup {host}: no such host"
)
DENIED = (
    'rpc error: code = Unknown desc = failed to pull and unpack image "{name}": failed to resolve reference '
    '"{name}": pull access denied, repository does not exist or may require authorization: server message: '
    "insufficient_scope: authorization failed"
)

_MISSING = (
    r"does-?not-?exist|doesnt-?exist|non-?exist|not-?exist|no-?such|not-?found|unknown-?(image|tag)|"
    r"(bad|fake|wrong|broken|missing|bogus)-?(image|tag|version)|typo"
)

HTTPD_PAGE = "<html><body><h1>It works!</h1></body></html>\n"
NGINX_PAGE = (
    "<!DOCTYPE html>\n<html>\n<head>\n<title>Welcome to nginx!</title>\n</head>\n<body>\n<h1>Welcome to nginx!</h1>\n"
    "</body>\n</html>\n"
)

DEFAULT_RULES: tuple[ImageRule, ...] = (
    ImageRule(r"^[^/]*(invalid|nonexist|non-exist)[^/]*/", error=NO_HOST),
    ImageRule(rf":([^/@]*({_MISSING}|invalid)|404$)", error=NOT_FOUND),
    ImageRule(rf"{_MISSING}|/invalid", error=DENIED),
    ImageRule(r"/hello-world(:|@)", entrypoint=(), command=("hello-world",), size_bytes=13_256),
    ImageRule(
        r"/(busybox|e2e-test-images/busybox|alpine)(:|@)",
        entrypoint=(), command=("sh",), size_bytes=4_269_694, complete=True,
    ),
    ImageRule(
        r"/(ubuntu|debian|centos|fedora|bash|amazonlinux|rockylinux|buildpack-deps)(:|@)",
        entrypoint=(), command=("bash",), size_bytes=29 * _MEGABYTE, complete=True,
    ),
    ImageRule(
        r"/(python|node|ruby|perl|php|golang|openjdk|rust)(:|@)",
        entrypoint=(), command=("sh",), size_bytes=350 * _MEGABYTE,
    ),
    ImageRule(r"/pause(:|@)", size_bytes=320_368, serves=True),
    ImageRule(r"/agnhost(:|@)", entrypoint=("/agnhost",), command=("pause",), size_bytes=51 * _MEGABYTE,
              files=("/agnhost", "/agnhost-2", "/localhost.crt", "/localhost.key")),
    ImageRule(r"/nonewprivs(:|@)", entrypoint=(), command=("nnp",), size_bytes=3 * _MEGABYTE),
    ImageRule(r"/nginx(:|@)", size_bytes=72_324_501, page="/usr/share/nginx/html/index.html",
              page_text=NGINX_PAGE, serves=True, ports=(80,)),
    ImageRule(
        r"/httpd(:|@)", size_bytes=58 * _MEGABYTE, page="/usr/local/apache2/htdocs/index.html", serves=True, ports=(80,)
    ),
    ImageRule(r"/(redis|valkey)(:|@)", size_bytes=49_536_371, serves=True, ports=(6379,)),
    ImageRule(r"/postgres(:|@)", size_bytes=160 * _MEGABYTE, serves=True, ports=(5432,)),
    ImageRule(r"/(mysql|mariadb)(:|@)", size_bytes=230 * _MEGABYTE, serves=True, ports=(3306,)),
    ImageRule(r"/mongo(:|@)", size_bytes=250 * _MEGABYTE, serves=True, ports=(27017,)),
    ImageRule(r"/memcached(:|@)", size_bytes=30 * _MEGABYTE, serves=True, ports=(11211,)),
    ImageRule(r"/rabbitmq(:|@)", size_bytes=90 * _MEGABYTE, serves=True, ports=(5672,)),
)  # fmt: skip
"""Everything else exists, comes at once, and runs a server when started without a command."""

_DEFAULT_SIZE = 50 * _MEGABYTE


@dataclass(frozen=True, slots=True)
class ImageFacts:
    name: str
    id: str
    """`repository@digest`."""
    size_bytes: int
    pull_seconds: float
    error: str = ""
    entrypoint: tuple[str, ...] | None = None
    """None: a server of its own."""
    command: tuple[str, ...] = ()
    page: str = ""
    page_text: str = HTTPD_PAGE
    files: tuple[str, ...] = ()
    serves: bool = False
    complete: bool = False
    ports: tuple[int, ...] = ()


_ANSWERS = (
    "size_bytes", "pull_seconds", "entrypoint", "command", "page", "page_text", "files", "serves", "ports", "complete",
)  # fmt: skip
"""The questions that rules answer, besides why an image cannot be pulled."""


class Images:
    def __init__(
        self, rules: Sequence[ImageRule] = (), pull_seconds: Span = NO_TIME, *, only_plausible: bool = False
    ) -> None:
        """`rules` come before the built-in ones; `pull_seconds` is for images of which no rule says it. With
        `only_plausible`, names that look like misspelled well-known ones do not exist."""
        self._rules = [(re.compile(rule.pattern), rule) for rule in (*rules, *DEFAULT_RULES)]
        self._pull_seconds = pull_seconds
        self._only_plausible = only_plausible
        self._known: dict[str, ImageFacts | None] = {}

    def facts(self, image: str) -> ImageFacts | None:
        """None: no image can have such a name."""
        if image not in self._known:
            if len(self._known) > 10_000:
                self._known.clear()
            self._known[image] = self._look_up(image)
        return self._known[image]

    def _look_up(self, image: str) -> ImageFacts | None:
        full = reference(image)
        if full is None:
            return None
        pull_seconds = self._pull_seconds.of(full.name)
        facts = ImageFacts(full.name, f"{full.repository}@{full.digest}", _DEFAULT_SIZE, pull_seconds)
        rules = [rule for pattern, rule in self._rules if pattern.search(full.name) is not None]
        host, _, path = full.repository.partition("/")
        tag = full.name.removeprefix(full.repository).lstrip(":@")
        error = next((rule.error for rule in rules if rule.error is not None), None)
        if error is None:
            error = DENIED if self._only_plausible and misspelled(full.repository) else ""
        known = {
            field: next((found for rule in rules if (found := getattr(rule, field)) is not None), None)
            for field in _ANSWERS
        }
        said = {field: found for field, found in known.items() if found is not None}
        return replace(facts, error=error.format(name=full.name, host=host, path=path, tag=tag), **said)


def argv_of(container: Mapping[str, Any], facts: ImageFacts | None) -> list[str] | None:
    """What is run: the image's own unless the Pod says otherwise; None: a server that nobody knows the name of."""
    command, arguments = container.get("command") or [], container.get("args") or []
    if command:
        return [*command, *arguments]
    if facts is None or facts.entrypoint is None:
        return None
    return [*facts.entrypoint, *(arguments or facts.command)]
