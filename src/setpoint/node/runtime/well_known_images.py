"""Names of images that everybody knows, and names that are close to one of them: misspelled ones.

Nothing can be pulled in a simulation, so any name could stand for an image of somebody's own. But an image of Docker's
library whose name is one typing error away from a well-known one does not exist, and to accept it would hide the error.
"""

from __future__ import annotations

_NAMES = """
alpine amazonlinux bash busybox caddy cassandra centos composer couchdb debian docker drupal eclipse-temurin
elasticsearch elixir erlang fedora fluentd golang gradle haproxy haskell hello-world httpd influxdb joomla kibana kong
logstash mariadb maven memcached mongo mongo-express mysql nats neo4j nextcloud nginx node openjdk oraclelinux percona
perl php phpmyadmin postgres python rabbitmq redis registry rockylinux ruby rust solr sonarqube telegraf tomcat traefik
ubuntu valkey varnish vault wordpress zookeeper
"""
_LIBRARY = frozenset(_NAMES.split())
_NEVER_MISSPELLED = 4
"""Names as short as this are close to too many others; only two letters in the wrong order are taken for an error."""
_ONE_ERROR = 8
"""Names up to this length are misspelled by one error, longer ones by up to two."""


def misspelled(repository: str) -> str:
    """Return the well-known image that a repository of Docker's library seems to mean; empty if it means none."""
    prefix, _, name = repository.rpartition("/")
    if prefix != "docker.io/library" or name in _LIBRARY:
        return ""
    for known in sorted(_LIBRARY):
        if _is_close(name, known):
            return known
    return ""


def _is_close(name: str, known: str) -> bool:
    if name.startswith(known) and name[len(known) :].isdigit():
        return False  # mysql8 is somebody's own
    if name[:1] != known[:1] and name[:2] != known[1::-1]:
        return False  # hardly anybody misses the first letter
    if len(known) <= _NEVER_MISSPELLED:
        return sorted(name) == sorted(known) and distance(name, known) == 1
    return distance(name, known) <= (1 if len(known) <= _ONE_ERROR else 2)


def distance(one: str, other: str, most: int = 2) -> int:
    """Return how many insertions, deletions, replacements and swaps of neighbours lead from one text to the other.

    Any number above `most` only says that there are more."""
    if abs(len(one) - len(other)) > most:
        return most + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        last, before, row = before, row, [at]
        for column, wanted in enumerate(other, 1):
            cost = min(before[column] + 1, row[-1] + 1, before[column - 1] + (letter != wanted))
            if at > 1 and column > 1 and letter == other[column - 2] and one[at - 2] == wanted:
                cost = min(cost, last[column - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return most + 1
    return row[-1]
