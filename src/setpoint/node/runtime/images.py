"""The simulated image service: which images exist, how long they take to pull, and what they run by default.

All of it is data: rules are tried in order, and the first rule that matches an image and sets a field decides it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, NamedTuple

from setpoint.kinds.core.podspec.defaults import split_reference
from setpoint.meta.caching import memoized
from setpoint.node.image_faults import ImageFaults
from setpoint.node.pace import NO_DURATION, DurationRange

_LIBRARY_NAMES = """
alpine amazonlinux bash busybox caddy cassandra centos composer couchdb debian docker drupal eclipse-temurin
elasticsearch elixir erlang fedora fluentd golang gradle haproxy haskell hello-world httpd influxdb joomla kibana kong
logstash mariadb maven memcached mongo mongo-express mysql nats neo4j nextcloud nginx node openjdk oraclelinux percona
perl php phpmyadmin postgres python rabbitmq redis registry rockylinux ruby rust solr sonarqube telegraf tomcat traefik
ubuntu valkey varnish vault wordpress zookeeper
"""
_LIBRARY_IMAGES = frozenset(_LIBRARY_NAMES.split())
_SHORT_NAME_LENGTH = 4
"""Names up to this length are close to many others: only two swapped letters count as an error."""
_ONE_ERROR_LENGTH = 8
"""Names up to this length may have one error, longer ones two."""
_MEGABYTE = 1_000_000
_NOT_FOUND = (
    'rpc error: code = NotFound desc = failed to pull and unpack image "{name}": '
    'failed to resolve reference "{name}": {name}: not found'
)
_NO_HOST = (
    'rpc error: code = Unknown desc = failed to pull and unpack image "{name}": failed to resolve reference '
    '"{name}": failed to do request: Head "https://{host}/v2/{path}/manifests/{tag}": '
    "dial tcp: lookup {host}: no such host"
)
_NO_ANSWER = (
    'rpc error: code = DeadlineExceeded desc = failed to pull and unpack image "{name}": failed to resolve reference '
    '"{name}": failed to do request: Head "https://{host}/v2/": dial tcp: i/o timeout'
)
_DENIED = (
    'rpc error: code = Unknown desc = failed to pull and unpack image "{name}": failed to resolve reference '
    '"{name}": pull access denied, repository does not exist or may require authorization: server message: '
    "insufficient_scope: authorization failed"
)
_MISSING_NAMES = (
    r"does-?not-?exist|doesnt-?exist|non-?exist|not-?exist|no-?such|not-?found|unknown-?(image|tag)|"
    r"(bad|fake|wrong|broken|missing|bogus)-?(image|tag|version)|typo"
)
_HTTPD_PAGE = "<html><body><h1>It works!</h1></body></html>\n"
NGINX_PAGE = (
    "<!DOCTYPE html>\n<html>\n<head>\n<title>Welcome to nginx!</title>\n</head>\n<body>\n<h1>Welcome to nginx!</h1>\n"
    "</body>\n</html>\n"
)
_DEFAULT_SIZE = 50 * _MEGABYTE


def closest_well_known_image(repository: str) -> str:
    """Return the well-known image whose name is misspelled in a repository of Docker's library; empty if there is none.

    A simulation pulls nothing, so any name could be that of a private image. But an image of Docker's library whose
    name is one typing error away from a well-known one does not exist, and accepting it would hide the error."""
    prefix, _, name = repository.rpartition("/")
    if prefix != "docker.io/library" or name in _LIBRARY_IMAGES:
        return ""
    for known in sorted(_LIBRARY_IMAGES):
        if _is_close(name, known):
            return known
    return ""


def _is_close(name: str, known: str) -> bool:
    if name.startswith(known) and name[len(known) :].isdigit():
        return False  # a name with a version number is a private image
    if name[:1] != known[:1] and name[:2] != known[1::-1]:
        return False  # the first letter is hardly ever wrong
    if len(known) <= _SHORT_NAME_LENGTH:
        return sorted(name) == sorted(known) and edit_distance(name, known) == 1
    return edit_distance(name, known) <= (1 if len(known) <= _ONE_ERROR_LENGTH else 2)


def edit_distance(one: str, other: str, limit: int = 2) -> int:
    """Return the number of insertions, deletions, replacements and swaps of neighbours between two texts.

    A result above `limit` means that there are more than `limit`."""
    if abs(len(one) - len(other)) > limit:
        return limit + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        last, before, row = before, row, [at]
        for column, wanted in enumerate(other, 1):
            cost = min(before[column] + 1, row[-1] + 1, before[column - 1] + (letter != wanted))
            if at > 1 and column > 1 and letter == other[column - 2] and one[at - 2] == wanted:
                cost = min(cost, last[column - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return limit + 1
    return row[-1]


class ImageReference(NamedTuple):
    """An image reference, normalized."""

    name: str
    """The full name as runtimes show it: `docker.io/library/nginx:latest`."""
    repository: str
    digest: str


@memoized(maxsize=8192)
def parse_reference(image: str) -> ImageReference | None:
    """Normalize a reference; return None if it is invalid."""
    parts = split_reference(image)
    if parts is None:
        return None
    repository, tag, digest = parts
    if repository.startswith("index.docker.io/"):
        repository = repository.removeprefix("index.")
    if repository.startswith("docker.io/") and repository.count("/") == 1:
        repository = repository.replace("/", "/library/")
    # With a digest the tag has no meaning.
    name = f"{repository}@{digest}" if digest else f"{repository}:{tag or 'latest'}"
    # In place of the registry's digest: the same name has the same content.
    digest = digest or "sha256:" + sha256(name.encode()).hexdigest()
    return ImageReference(name, repository, digest)


def reference_problem(image: str) -> str:
    """Return why a reference is invalid, as runtimes report it; empty if it is valid."""
    if parse_reference(image) is not None:
        return ""
    first, slash, rest = image.partition("/")
    has_host = slash and (first == "localhost" or "." in first or ":" in first or first != first.lower())
    repository = (rest if has_host else image if slash else f"library/{image}").partition(":")[0]
    if repository != repository.lower():
        return f"invalid reference format: repository name ({repository}) must be lowercase"
    return "invalid reference format"


class ImageRule(NamedTuple):
    """Properties of the images whose full name contains a match of `pattern`; None leaves a property to the next
    rule."""

    pattern: str
    pull_seconds: float | None = None
    size_bytes: int | None = None
    error: str | None = None
    """The error of a pull, a format with {name} and {host}; empty means that the image can be pulled."""
    entrypoint: tuple[str, ...] | None = None
    command: tuple[str, ...] | None = None
    index_page: str | None = None
    """The path of the file that its server shows first."""
    index_page_text: str | None = None
    """The content of that file."""
    files: tuple[str, ...] | None = None
    """Other files in the image."""
    is_server: bool | None = None
    """Whether the image runs only a server when started without a command."""
    fully_known: bool | None = None
    """Whether the image has no programs besides the simulated ones."""
    ports: tuple[int, ...] | None = None
    """The TCP ports on which its server listens."""


_DEFAULT_RULES: tuple[ImageRule, ...] = (
    ImageRule(r"^[^/]*(invalid|nonexist|non-exist)[^/]*/", error=_NO_HOST),
    ImageRule(rf":([^/@]*({_MISSING_NAMES}|invalid)|404$)", error=_NOT_FOUND),
    ImageRule(rf"{_MISSING_NAMES}|/invalid", error=_DENIED),
    ImageRule(r"/hello-world(:|@)", entrypoint=(), command=("hello-world",), size_bytes=13_256),
    ImageRule(
        r"/(busybox|e2e-test-images/busybox|alpine)(:|@)",
        entrypoint=(),
        command=("sh",),
        size_bytes=4_269_694,
        fully_known=True,
    ),
    ImageRule(
        r"/(ubuntu|debian|centos|fedora|bash|amazonlinux|rockylinux|buildpack-deps)(:|@)",
        entrypoint=(),
        command=("bash",),
        size_bytes=29 * _MEGABYTE,
        fully_known=True,
    ),
    ImageRule(
        r"/(python|node|ruby|perl|php|golang|openjdk|rust)(:|@)",
        entrypoint=(),
        command=("sh",),
        size_bytes=350 * _MEGABYTE,
    ),
    ImageRule(r"/pause(:|@)", size_bytes=320_368, is_server=True),
    ImageRule(
        r"/agnhost(:|@)",
        entrypoint=("/agnhost",),
        command=("pause",),
        size_bytes=51 * _MEGABYTE,
        files=("/agnhost", "/agnhost-2", "/localhost.crt", "/localhost.key"),
    ),
    ImageRule(r"/nonewprivs(:|@)", entrypoint=(), command=("nnp",), size_bytes=3 * _MEGABYTE),
    ImageRule(
        r"/nginx(:|@)",
        size_bytes=72_324_501,
        index_page="/usr/share/nginx/html/index.html",
        index_page_text=NGINX_PAGE,
        is_server=True,
        ports=(80,),
    ),
    ImageRule(
        r"/httpd(:|@)",
        size_bytes=58 * _MEGABYTE,
        index_page="/usr/local/apache2/htdocs/index.html",
        is_server=True,
        ports=(80,),
    ),
    ImageRule(r"/(redis|valkey)(:|@)", size_bytes=49_536_371, is_server=True, ports=(6379,)),
    ImageRule(r"/postgres(:|@)", size_bytes=160 * _MEGABYTE, is_server=True, ports=(5432,)),
    ImageRule(r"/(mysql|mariadb)(:|@)", size_bytes=230 * _MEGABYTE, is_server=True, ports=(3306,)),
    ImageRule(r"/mongo(:|@)", size_bytes=250 * _MEGABYTE, is_server=True, ports=(27017,)),
    ImageRule(r"/memcached(:|@)", size_bytes=30 * _MEGABYTE, is_server=True, ports=(11211,)),
    ImageRule(r"/rabbitmq(:|@)", size_bytes=90 * _MEGABYTE, is_server=True, ports=(5672,)),
)
"""The built-in rules. All other images exist, are pulled at once, and run a server when started without a command."""


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """The properties of one image."""

    name: str
    id: str
    """The image id: `repository@digest`."""
    size_bytes: int
    pull_seconds: float
    error: str = ""
    entrypoint: tuple[str, ...] | None = None
    """The entrypoint; None means that the image runs a server which is not simulated."""
    command: tuple[str, ...] = ()
    index_page: str = ""
    index_page_text: str = _HTTPD_PAGE
    files: tuple[str, ...] = ()
    is_server: bool = False
    fully_known: bool = False
    ports: tuple[int, ...] = ()


_RULE_FIELDS = (
    "size_bytes",
    "pull_seconds",
    "entrypoint",
    "command",
    "index_page",
    "index_page_text",
    "files",
    "is_server",
    "ports",
    "fully_known",
)
"""The properties that rules set, except `error`."""


class SimulatedImageService:
    """Derives the properties of images from rules."""

    def __init__(
        self,
        rules: Sequence[ImageRule] = (),
        pull_seconds: DurationRange = NO_DURATION,
        *,
        reject_misspelled: bool = False,
    ) -> None:
        """Create the service. `rules` precede the built-in ones; `pull_seconds` applies to images without a rule for
        it. With `reject_misspelled`, names that look like misspelled well-known names do not exist. Raises re.error
        for a rule with an invalid pattern."""
        for rule in rules:
            re.compile(rule.pattern)
        self.faults = ImageFaults()
        self._rules = (*rules, *_DEFAULT_RULES)
        self._pull_seconds = pull_seconds
        self._reject_misspelled = reject_misspelled
        self._known: dict[str, ImageInfo | None] = {}

    def info(self, image: str) -> ImageInfo | None:
        """Return the properties of an image, or None if its name is invalid."""
        if image not in self._known:
            if len(self._known) > 10_000:
                self._known.clear()
            self._known[image] = self._look_up(image)
        return self._known[image]

    def pull_error(self, info: ImageInfo) -> str:
        """Return why an image cannot be pulled now; empty if it can."""
        if info.name in self.faults.broken:
            return _NOT_FOUND.format(name=info.name)
        if self.faults.registry_away:
            return _NO_ANSWER.format(name=info.name, host=info.name.partition("/")[0])
        return info.error

    def _look_up(self, image: str) -> ImageInfo | None:
        full = parse_reference(image)
        if full is None:
            return None
        pull_seconds = self._pull_seconds.sample(full.name)
        info = ImageInfo(full.name, f"{full.repository}@{full.digest}", _DEFAULT_SIZE, pull_seconds)
        rules = [rule for rule in self._rules if re.search(rule.pattern, full.name) is not None]
        host, _, path = full.repository.partition("/")
        tag = full.name.removeprefix(full.repository).lstrip(":@")
        error = next((rule.error for rule in rules if rule.error is not None), None)
        if error is None:
            error = _DENIED if self._reject_misspelled and closest_well_known_image(full.repository) else ""
        known = {
            name: next((found for rule in rules if (found := getattr(rule, name)) is not None), None)
            for name in _RULE_FIELDS
        }
        known_fields = {name: found for name, found in known.items() if found is not None}
        return replace(info, error=error.format(name=full.name, host=host, path=path, tag=tag), **known_fields)


def command_line(container: Mapping[str, Any], info: ImageInfo | None) -> list[str] | None:
    """Return the command line of a container; None if it runs a server of the image whose name is not known."""
    command, arguments = container.get("command") or [], container.get("args") or []
    if command:
        return [*command, *arguments]
    if info is None or info.entrypoint is None:
        return None
    return [*info.entrypoint, *(arguments or info.command)]
