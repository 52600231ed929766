from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from setpoint.meta.objects import Obj
from setpoint.node.host.registry_credentials import Credential, InvalidPullSecret, credentials_for


def secret(text: str, kind: str = "kubernetes.io/dockerconfigjson") -> Obj:
    key = ".dockerconfigjson" if kind.endswith("json") else ".dockercfg"
    data = {key: b64encode(text.encode()).decode()}
    return {"metadata": {"namespace": "default", "name": "pull"}, "type": kind, "data": data}


def config(**auths: Any) -> Obj:
    return secret(json.dumps({"auths": {name.replace("__", "/"): entry for name, entry in auths.items()}}))


def user(name: str) -> dict[str, str]:
    return {"username": name, "password": "p"}


def users(repository: str, *secrets: Obj) -> list[str]:
    return [each.username for each in credentials_for(repository, secrets)]


@pytest.mark.parametrize(
    ("key", "repository", "matches"),
    [
        ("registry.example", "registry.example/app", True),
        ("https://registry.example", "registry.example/app", True),
        ("http://registry.example/v1/", "registry.example/app", True),
        ("https://registry.example/v2/", "registry.example/app", True),
        ("registry.example/team", "registry.example/team/app", True),
        ("registry.example/team", "registry.example/other/app", False),
        ("*.example", "registry.example/app", True),
        ("*.example", "a.registry.example/app", False),
        ("registry.example", "registry.example:5000/app", False),
        ("registry.example:5000", "registry.example:5000/app", True),
        ("https://index.docker.io/v1/", "docker.io/library/nginx", True),
        ("docker.io", "docker.io/library/nginx", True),
        ("index.docker.io", "quay.io/library/nginx", False),
        ("[bad", "registry.example/app", False),
    ],
)
def test_the_address_of_a_registry_matches(key: str, repository: str, matches: bool) -> None:
    text = json.dumps({"auths": {key: user("a")}})
    assert users(repository, secret(text)) == (["a"] if matches else [])


def test_the_longest_path_comes_first() -> None:
    text = {"r.io": user("host"), "r.io/a/b": user("long"), "r.io/a": user("short")}
    assert users("r.io/a/b/app", secret(json.dumps({"auths": text}))) == ["long", "short", "host"]


def test_all_secrets_count_and_equal_credentials_are_tried_once() -> None:
    old = secret(json.dumps({"r.io": user("old")}), "kubernetes.io/dockercfg")
    same = secret(json.dumps({"auths": {"r.io": user("a"), "r.io/": user("a")}}))
    assert users("r.io/app", same, old, same) == ["a", "old"]


def test_the_auth_field_wins() -> None:
    auth = b64encode(b"name:pass:word").decode()
    text = json.dumps({"auths": {"r.io": {"auth": auth, "username": "ignored"}}})
    assert credentials_for("r.io/app", [secret(text)]) == [Credential("name", "pass:word")]
    unpadded = json.dumps({"auths": {"r.io": {"auth": b64encode(b"na:me").decode().rstrip("=") + "\n"}}})
    assert credentials_for("r.io/app", [secret(unpadded)]) == [Credential("na", "me")]


@pytest.mark.parametrize("text", ["no json", "[]", '{"auths": []}', '{"auths": {"r.io": "text"}}', "null", "[" * 5000])
def test_invalid_secrets_are_named_without_their_content(text: str) -> None:
    with pytest.raises(InvalidPullSecret) as raised:
        credentials_for("r.io/app", [secret(text)])
    assert str(raised.value) == "the Secret default/pull is not a valid kubernetes.io/dockerconfigjson"


@pytest.mark.parametrize("auth", ["%%%", b64encode(b"nocolon").decode(), b64encode(b"\xff:\xff").decode()])
def test_invalid_auth_fields_are_errors(auth: str) -> None:
    with pytest.raises(InvalidPullSecret):
        credentials_for("r.io/app", [secret(json.dumps({"auths": {"r.io": {"auth": auth}}}))])


def test_other_secrets_are_ignored() -> None:
    assert (
        users("r.io/app", {"type": "Opaque", "data": {".dockerconfigjson": "x"}}, secret("", "kubernetes.io/dockercfg"))
        == []
    )


def test_credentials_do_not_appear_in_logs() -> None:
    assert "password" not in f"{Credential('user', 'password')!r}"
    assert "password" not in f"{Credential('user', 'password')}"
