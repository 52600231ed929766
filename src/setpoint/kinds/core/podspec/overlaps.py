"""Files of one volume that would land on the same path, or one inside another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from setpoint.meta.goformat import quote

Item = Mapping[str, Any]
Place = tuple[str, str]
"""Path and its source; the latter may be empty."""


def overlapping_path_warnings(volumes: Sequence[Item]) -> list[str]:
    found: list[str] = []
    for volume in volumes:
        name = volume.get("name", "")
        for kind, what in (("configMap", "name"), ("secret", "secretName"), ("downwardAPI", "")):
            source = volume.get(kind)
            if source and source.get("items"):
                title = _TITLES[kind]
                shown = f"{title} {quote(source.get(what, ''))}" if what else title
                found += _overlaps([(item.get("path", ""), "") for item in source["items"]], name, shown)
        if "projected" in volume:
            places: list[Place] = []
            for projection in volume["projected"].get("sources") or ():
                if not projection:
                    found.append(f"volume {quote(name)} (Projected) has no sources provided")
                    continue
                places += _projected_places(projection)
            found += _overlaps(places, name, "Projected")
    return found


_TITLES = {"configMap": "ConfigMap", "secret": "Secret", "downwardAPI": "DownwardAPI"}


def _projected_places(projection: Item) -> list[Place]:
    for kind, title in _TITLES.items():
        source = projection.get(kind)
        if source and source.get("items"):
            shown = title if kind == "downwardAPI" else f"{title} {quote(source.get('name', ''))}"
            return [(item.get("path", ""), shown) for item in source["items"]]
    if "serviceAccountToken" in projection:
        return [(projection["serviceAccountToken"].get("path", ""), "ServiceAccountToken")]
    if "clusterTrustBundle" in projection:
        bundle = projection["clusterTrustBundle"]
        name = bundle["name"] if "name" in bundle else bundle.get("signerName", "")
        return [(bundle.get("path", ""), f"ClusterTrustBundle {quote(name)}")]
    if "podCertificate" in projection:
        paths = (("certificateChainPath", "chain"), ("keyPath", "key"), ("credentialBundlePath", "credential bundle"))
        certificate = projection["podCertificate"]
        return [(certificate[key], f"PodCertificate {text}") for key, text in paths if certificate.get(key)]
    return []


def _shown(place: Place) -> str:
    return f"{quote(place[0])} ({place[1]})" if place[1] else quote(place[0])


def _overlaps(places: Sequence[Place], volume: str, source: str) -> list[str]:
    found: list[str] = []
    before: list[Place] = []
    for path, origin in places:
        place = (path.rstrip("/"), origin)
        if place[0]:
            inner = place[0] + "/"
            for other in before:
                outer = other[0] + "/"
                if other[0] and (outer.startswith(inner) or inner.startswith(outer)):
                    body = f"{_shown(place)} with {_shown(other)}"
                    found.append(f"volume {quote(volume)} ({source}): overlapping paths: {body}")
        before.append(place)
    return found
