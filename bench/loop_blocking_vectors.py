"""The requests of `loop_blocking.py`: the largest or most expensive input of each kind that a client can send."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loop_blocking import Server

MB = 1 << 20
ADMIN, LIMITED = "admin-token", "limited-token"
MAPS = "/api/v1/namespaces/default/configmaps"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
JSON_PATCH, MERGE, STRATEGIC, APPLY = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)


@dataclass
class Vector:
    """One request to measure."""

    name: str
    who: str
    """The sender, for the table."""
    send: Callable[[Server], tuple[int, bytes]]


def get(query: str = "", path: str = MAPS, **more: Any) -> Callable[[Server], tuple[int, bytes]]:
    return lambda server: server.send("GET", f"{path}?{query}" if query else path, **more)


def post(path: str, body: bytes, content_type: str = JSON, method: str = "POST", query: str = "") -> Any:
    target = f"{path}?{query}" if query else path
    return lambda server: server.send(method, target, body, content_type, ADMIN)


def filled(unit: str, size: int) -> str:
    return unit * (size // len(unit))


LONG = 1_000_000


def anonymous() -> list[Vector]:
    """Return the requests that are sent without credentials."""
    odd = filled("%61", LONG)
    found = {
        "labelSelector of 500,000 keys": get("labelSelector=" + filled("a,", LONG) + "a"),
        "labelSelector of 330,000 pairs": get("labelSelector=" + filled("a=,", LONG) + "a"),
        "labelSelector with one set of values": get("labelSelector=a+in+(" + filled("b,", LONG) + "b)"),
        "labelSelector, one key of 1 MB": get("labelSelector=" + "a" * LONG),
        "labelSelector of parentheses": get("labelSelector=" + "(" * LONG),
        "labelSelector of blanks": get("labelSelector=" + "+" * LONG),
        "labelSelector of exclamation marks": get("labelSelector=" + "!" * LONG),
        "fieldSelector of 500,000 commas": get("fieldSelector=" + filled("a,", LONG)),
        "fieldSelector of pairs": get("fieldSelector=" + filled("a=,", LONG) + "a=b"),
        "fieldSelector by name, often": get("fieldSelector=" + filled("metadata.name=a,", LONG) + "metadata.name=b"),
        "fieldSelector of backslashes": get("fieldSelector=a=" + "\\" * LONG),
        "query of 9,999 parameters": get(filled("a=b&", 9_998 * 4)),
        "query of 500,000 parameters": get("a&" * (LONG // 2)),
        "query of percent escapes": get("labelSelector=" + odd),
        "query of a million percent signs": get("labelSelector=" + "%" * LONG),
        "path of 500,000 segments": get(path="/api/v1" + "/a" * (LONG // 2)),
        "path of percent escapes": get(path="/api/v1/" + odd),
        "path of dots": get(path="/api/v1" + "/.." * (LONG // 3)),
        "continue token of 1 MB": get("continue=" + "A" * LONG),
        "resourceVersion of 1 MB": get("resourceVersion=" + "9" * LONG),
        "timeout of 1 MB": get("timeout=" + "9" * LONG),
        "timeout of pairs": get("timeout=" + filled("1s", LONG)),
        "limit of 1 MB": get("limit=" + "9" * LONG),
        "watch with a long selector": get("watch=1&labelSelector=" + filled("a,", LONG) + "a"),
        "deletecollection, long selector": lambda server: server.send(
            "DELETE", MAPS + "?labelSelector=" + filled("a,", LONG) + "a"
        ),
        "headers: one of 1 MB": get(headers=[("X-Long", "x" * LONG)]),
        "headers: 990 of 1 KB": get(headers=[(f"X-{n}", "x" * 1000) for n in range(990)]),
        "headers: 200,000 short ones": get(headers=[(f"X{n}", "") for n in range(200_000)]),
        "Accept of 1 MB": get(headers=[("Accept", filled("a/b,", LONG))]),
        "Accept, parameters": get(headers=[("Accept", "application/json" + filled(";a=b", LONG))]),
        "Content-Type, parameters": lambda server: server.send(
            "POST", MAPS, b"{}", "application/json" + filled(";a=b", LONG)
        ),
        "Accept-Encoding of 1 MB": get(headers=[("Accept-Encoding", filled("gzip,", LONG))]),
        "Cookie of 1 MB": get(headers=[("Cookie", filled("a=b; ", LONG))]),
        "User-Agent of 1 MB": get(headers=[("User-Agent", filled("\u00e9", LONG))]),
        "bearer token of 1 MB": get(token="a" * LONG),
        "bearer token of dots": get(token="." * LONG),
        "bearer token, a JWT of 1 MB": get(token="eyJhbGciOiJSUzI1NiJ9." + "A" * LONG + ".AAAA"),
        "bearer token, blanks": get(headers=[("Authorization", "Bearer" + " " * LONG + "x")]),
        "WebSocket protocols of 1 MB": get(
            headers=[
                ("Upgrade", "websocket"),
                ("Connection", "Upgrade"),
                ("Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io.AAAA," + filled("a,", LONG)),
            ]
        ),
        "Impersonate-Group, 990 times": get(
            headers=[("Impersonate-User", "a"), *(("Impersonate-Group", f"g{n}") for n in range(990))]
        ),
        "Impersonate-User of 1 MB": get(headers=[("Impersonate-User", "system:serviceaccount:" + "a" * LONG)]),
        "Impersonate-Extra, one name of 1 MB": get(
            headers=[("Impersonate-User", "a"), ("Impersonate-Extra-" + "%61" * (LONG // 3), "x")]
        ),
        "X-Remote-User of 1 MB": get(headers=[("X-Remote-User", "a" * LONG)]),
        "body of 3 MB": lambda server: server.send("POST", MAPS, b"[" * 3 * MB),
        "chunks of one byte": chunked,
        "SelfSubjectAccessReview": lambda server: server.send("POST", REVIEWS, review("labelSelector", 3 * MB - 1000)),
    }
    return [Vector(name, "anonymous", send) for name, send in found.items()]


def chunked(server: Server) -> tuple[int, bytes]:
    body = b"1\r\na\r\n" * 400_000 + b"0\r\n\r\n"
    head = f"POST {MAPS} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    plain = socket.create_connection(("127.0.0.1", server.port), timeout=300)
    with plain, server.tls.wrap_socket(plain) as connection:
        connection.sendall(head + body)
        return int(connection.recv(1 << 16)[9:12]), b""


def review(selector: str, size: int) -> bytes:
    attributes = {"verb": "list", "resource": "pods", selector: {"rawSelector": filled("a,", size) + "a"}}
    return json.dumps({"spec": {"resourceAttributes": attributes}}).encode()


def config_map(data: dict[str, str], name: str = "big", **more: Any) -> bytes:
    return json.dumps({"metadata": {"name": name, **more}, "data": data}).encode()


def field(number: int, data: bytes) -> bytes:
    out, size = bytearray([number << 3 | 2]), len(data)
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    out.append(size)
    return bytes(out) + data


def protobuf(message: bytes, api_version: str, kind: str) -> bytes:
    meta = field(1, api_version.encode()) + field(2, kind.encode())
    return b"k8s\x00" + field(1, meta) + field(2, message)


def yaml_map(size: int) -> bytes:
    lines = "".join(f"  k{n:06}: v\n" for n in range(size // 13))
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yaml\ndata:\n{lines}".encode()


def definition(schema: dict[str, Any], plural: str) -> bytes:
    spec = {
        "group": "bench.example.com",
        "scope": "Namespaced",
        "names": {"plural": plural, "kind": plural.title(), "singular": plural[:-1]},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object", **schema}}}
        ],
    }
    return json.dumps({"metadata": {"name": f"{plural}.bench.example.com"}, "spec": spec}).encode()


FREE = {"properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
FREES = "/apis/bench.example.com/v1/namespaces/default/frees"


def free(name: str, spec: bytes) -> bytes:
    return (
        b'{"apiVersion":"bench.example.com/v1","kind":"Frees","metadata":{"name":"%s"},"spec":' % name.encode()
        + spec
        + b"}"
    )


def pod(name: str, containers: int, **more: Any) -> bytes:
    spec = {"containers": [{"name": f"c{n}", "image": "i"} for n in range(containers)], **more}
    return json.dumps({"metadata": {"name": name}, "spec": spec}).encode()


def known() -> list[Vector]:
    """What those who may can send."""
    many = {f"k{n}": "" for n in range(100_000)}
    fields = b"".join(field(2, field(1, b"k%06d" % n) + field(2, b"v")) for n in range(200_000))
    ports = [{"containerPort": n % 65535 + 1} for n in range(60_000)]
    named = field(1, field(1, b"pb"))
    unknown = b"\xf8\x01\x01" * 1_000_000
    repeated = b'{"metadata":{"name":"dup"},"data":{' + b",".join([b'"a":""'] * 240_000) + b"}}"
    operations = [{"op": "add", "path": f"/data/k{n}", "value": "v"} for n in range(10_000)]
    keyed = {"spec": {"containers": [{"name": f"c{n}", "image": "j"} for n in range(60_000)]}}
    properties = {f"p{n}": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 9} for n in range(15_000)}
    nested: dict[str, Any] = {"type": "string"}
    for _ in range(100):
        nested = {"type": "object", "properties": {"a": nested}}
    rule = {"rule": " && ".join(["self.size() < 10"] * 3000)}
    rules = {"type": "array", "maxItems": 10, "items": {"type": "string"}, "x-kubernetes-validations": [rule] * 10}
    found = {
        "list, labelSelector of 1 MB": get("labelSelector=" + filled("a,", LONG) + "a", token=ADMIN),
        "list, set of 500,000 values": get("labelSelector=a+in+(" + filled("b,", LONG) + "b)", token=ADMIN),
        "list, labelSelector, all wrong": get("labelSelector=a+in+(" + filled("-,", LONG) + "-)", token=ADMIN),
        "list, fieldSelector of 1 MB": get("fieldSelector=" + filled("metadata.name!=a,", LONG), token=ADMIN),
        "list, continue token of 1 MB": get("continue=" + "A" * LONG, token=ADMIN),
        "list, 5,000 objects, label requirements": get("labelSelector=" + filled("!a,", 3_000) + "!a", token=ADMIN),
        "list, 5,000 objects, field selector": get("fieldSelector=metadata.name!=a", token=ADMIN),
        "list, 5,000 objects as a table": get(
            token=ADMIN, headers=[("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")]
        ),
        "list, 5,000 objects in YAML": get(token=ADMIN, headers=[("Accept", "application/yaml")]),
        "list, 5,000 objects, metadata only": get(
            token=ADMIN,
            headers=[("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")],
        ),
        "watch, 5,000 objects, label selector": get(
            "watch=1&resourceVersion=0&timeoutSeconds=1&labelSelector=bench", token=ADMIN
        ),
        "SelfSubjectAccessReview, labels of 3 MB": post(REVIEWS, review("labelSelector", 3 * MB - 1000)),
        "SelfSubjectAccessReview, fields of 3 MB": post(REVIEWS, review("fieldSelector", 3 * MB - 1000)),
        "create: 3 MB in one string": post(MAPS, config_map({"a": "x" * (3 * MB - 200)})),
        "create: 3 MB of commas in one string": post(MAPS, config_map({"a": "[,{" * (MB - 200)})),
        "create: 900 KB of data, 100,000 keys": post(MAPS, config_map(many, "keys")),
        "create: 100,000 labels": post(MAPS, config_map({}, "labels", labels=many)),
        "create: 45,000 owners": post(
            MAPS,
            config_map(
                {},
                "owners",
                ownerReferences=[{"apiVersion": "v1", "kind": "A", "name": "a", "uid": f"{n}"} for n in range(45_000)],
            ),
        ),
        "create: name of 3 MB": post(MAPS, config_map({}, "a" * (3 * MB - 200))),
        "create: label value of 3 MB": post(MAPS, config_map({}, "label", labels={"a": "b" * (3 * MB - 200)})),
        "create: 3 MiB of tiny arrays": post(MAPS, b"[" + b"[]," * (MB - 2) + b"[]]"),
        "create: 3 MiB of tiny objects": post(MAPS, b'{"a":[' + b"{}," * (MB - 10) + b"{}]}"),
        "create: 3 MiB of digits": post(MAPS, b"[" + b"1," * (3 * MB // 2 - 10) + b"1]"),
        "create: one number of 3 MB": post(MAPS, b'{"a":' + b"9" * (3 * MB - 100) + b"}"),
        "create: nested 1,500,000 deep": post(MAPS, b"[" * (3 * MB // 2) + b"]" * (3 * MB // 2)),
        "create: nested objects": post(MAPS, b'{"a":' * 500_000 + b"1" + b"}" * 500_000),
        "create: strict, 240,000 duplicate keys": post(MAPS, repeated, query="fieldValidation=Strict"),
        "create: strict, 240,000 unknown fields": post(
            MAPS,
            b'{"metadata":{"name":"unknown"},' + b",".join(b'"u%06d":1' % n for n in range(240_000)) + b"}",
            query="fieldValidation=Strict",
        ),
        "create: escapes": post(MAPS, b'{"metadata":{"name":"e"},"data":{"a":"' + b"\\ud800" * 500_000 + b'"}}'),
        "create: 3 MB of YAML": post(MAPS, yaml_map(3 * MB - 200), YAML),
        "create: 3 MB of YAML, flow": post(MAPS, b"[" + b"a," * (3 * MB // 2 - 4) + b"]", YAML),
        "create: YAML nested": post(MAPS, b"[" * 3_000_000, YAML),
        "create: YAML aliases": post(
            MAPS, b"a: &a [" + b"x," * 1000 + b"]\nb: [" + b"*a," * 90 + b"]\n" + b"#" * 100, YAML
        ),
        "create: YAML, one plain scalar": post(MAPS, b"a: " + b"x " * (3 * MB // 2 - 10), YAML),
        "create: YAML, one number": post(MAPS, b"a: " + b"1" * (3 * MB - 10), YAML),
        "create: YAML, anchors": post(MAPS, b"".join(b"- &a%d x\n" % n for n in range(200_000)), YAML),
        "create: YAML, strict, duplicate keys": post(
            MAPS, b"data:\n" + b"  a: b\n" * 400_000, YAML, query="fieldValidation=Strict"
        ),
        "create: 3 MB of protobuf": post(MAPS, protobuf(named + fields, "v1", "ConfigMap"), PROTOBUF),
        "create: protobuf, tiny fields": post(
            MAPS, protobuf(field(1, field(1, b"pb") + b"\x5a\x00" * 1_500_000), "v1", "ConfigMap"), PROTOBUF
        ),
        "create: protobuf, unknown fields": post(MAPS, protobuf(unknown, "v1", "ConfigMap"), PROTOBUF),
        "create: Pod of 30,000 containers": post("/api/v1/namespaces/default/pods", pod("many", 30_000)),
        "create: Pod, quantity of 1 MB": post(
            "/api/v1/namespaces/default/pods",
            json.dumps(
                {
                    "metadata": {"name": "quantity"},
                    "spec": {"containers": [{"name": "a", "image": "i", "resources": {"limits": {"cpu": "1" * MB}}}]},
                }
            ).encode(),
        ),
        "create: Pod, 50,000 tolerations": post(
            "/api/v1/namespaces/default/pods",
            pod("tolerant", 1, tolerations=[{"key": f"k{n}", "operator": "Exists"} for n in range(50_000)]),
        ),
        "create: Pod, 60,000 ports": post(
            "/api/v1/namespaces/default/pods",
            json.dumps(
                {
                    "metadata": {"name": "ports"},
                    "spec": {"containers": [{"name": "a", "image": "i", "ports": ports}]},
                }
            ).encode(),
        ),
        "create: NetworkPolicy, 40,000 rules": post(
            "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
            json.dumps(
                {
                    "metadata": {"name": "np"},
                    "spec": {
                        "podSelector": {},
                        "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]} for _ in range(40_000)],
                    },
                }
            ).encode(),
        ),
        "patch: 10,000 JSON operations": post(f"{MAPS}/small", json.dumps(operations).encode(), JSON_PATCH, "PATCH"),
        "patch: 50,000 JSON operations": post(
            f"{MAPS}/small", json.dumps(operations[:1] * 50_000).encode(), JSON_PATCH, "PATCH"
        ),
        "patch: 9,000 JSON copies": post(
            f"{MAPS}/small",
            json.dumps([{"op": "copy", "from": "/metadata", "path": "/metadata/x"}] * 9_000).encode(),
            JSON_PATCH,
            "PATCH",
        ),
        "patch: merge of 100,000 keys": post(f"{MAPS}/small", json.dumps({"data": many}).encode(), MERGE, "PATCH"),
        "patch: strategic, 60,000 containers": post(
            "/api/v1/namespaces/default/pods/small", json.dumps(keyed).encode(), STRATEGIC, "PATCH"
        ),
        "patch: strategic, order of 50,000": post(
            "/api/v1/namespaces/default/pods/small",
            json.dumps(
                {
                    "spec": {
                        "$setElementOrder/containers": [{"name": f"c{n}"} for n in range(50_000)],
                        "containers": [{"name": f"c{n}", "$patch": "delete"} for n in range(30_000)],
                    }
                }
            ).encode(),
            STRATEGIC,
            "PATCH",
        ),
        "apply: 100,000 keys": lambda server: server.send(
            "PATCH",
            f"{MAPS}/applied?fieldManager=bench",
            b'{"apiVersion":"v1","kind":"ConfigMap",' + config_map(many, "applied")[1:],
            APPLY,
            ADMIN,
        ),
        "apply: 100,000 keys, again": lambda server: server.send(
            "PATCH",
            f"{MAPS}/applied?fieldManager=other&force=true",
            b'{"apiVersion":"v1","kind":"ConfigMap",' + config_map(many, "applied")[1:],
            APPLY,
            ADMIN,
        ),
        "apply: 60,000 containers": lambda server: server.send(
            "PATCH",
            "/api/v1/namespaces/default/pods/small?fieldManager=bench",
            b'{"apiVersion":"v1","kind":"Pod",' + pod("small", 60_000)[1:],
            APPLY,
            ADMIN,
        ),
        "CRD: 15,000 properties": post(CRDS, definition({"properties": properties}, "wides")),
        "CRD: 100 levels": post(CRDS, definition({"properties": {"a": nested}}, "deeps")),
        "CRD: 10 rules of 50 KB": post(CRDS, definition({"properties": {"a": rules}}, "rules")),
        "CRD: pattern of 2 MB": post(
            CRDS, definition({"properties": {"a": {"type": "string", "pattern": "(a|b)*" * 350_000}}}, "patterns")
        ),
        "CRD: pattern that repeats": post(
            CRDS, definition({"properties": {"a": {"type": "string", "pattern": "((a{100}){100}){100}"}}}, "repeats")
        ),
        "custom object: 100,000 free fields": post(FREES, free("fields", json.dumps(many).encode())),
        "custom object: a label on 100,000 fields": post(
            f"{FREES}/fields", b'{"metadata":{"labels":{"a":"b"}}}', MERGE, "PATCH"
        ),
        "custom object: 240,000 tiny arrays": post(FREES, free("arrays", b'{"a":[' + b"[]," * 240_000 + b"[]]}")),
        "custom object: 1,000,000 tiny arrays": post(FREES, free("more", b'{"a":[' + b"[]," * 1_000_000 + b"[]]}")),
        "OpenAPI v2, after a change": get(path="/openapi/v2", token=ADMIN),
        "backup": get(path="/setpoint/backup", token=ADMIN),
        "OpenAPI v3": get(path="/openapi/v3/apis/bench.example.com/v1", token=ADMIN),
        "TokenReview of 3 MB": post(
            "/apis/authentication.k8s.io/v1/tokenreviews",
            json.dumps({"spec": {"token": "a." * (3 * MB // 2 - 50)}}).encode(),
        ),
        "deletecollection of 5,000": lambda server: server.send(
            "DELETE", MAPS + "?labelSelector=bench%3Dmany", token=ADMIN
        ),
    }
    return [Vector(name, "admin", send) for name, send in found.items()]


def fill(server: Server) -> None:
    """5,000 ConfigMaps, one small object of each kind that is patched, and a kind without a schema."""
    server.send("POST", MAPS, config_map({"a": "b"}, "small"), token=ADMIN)
    server.send("POST", "/api/v1/namespaces/default/pods", pod("small", 2), token=ADMIN)
    server.send("POST", CRDS, definition(FREE, "frees"), token=ADMIN)
    with socket.create_connection(("127.0.0.1", server.port)) as plain, server.tls.wrap_socket(plain) as connection:
        reader = connection.makefile("rb")
        for batch in range(50):
            pieces = []
            for number in range(100):
                body = config_map({"a": "b" * 100}, f"many-{batch}-{number}", labels={"bench": "many"})
                head = (
                    f"POST {MAPS} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {ADMIN}\r\n"
                    f"Content-Type: {JSON}\r\nContent-Length: {len(body)}\r\n\r\n"
                )
                pieces.append(head.encode() + body)
            connection.sendall(b"".join(pieces))
            for _ in range(100):
                size = 0
                while (line := reader.readline().strip()) != b"":
                    if line.lower().startswith(b"content-length:"):
                        size = int(line.split(b":")[1])
                reader.read(size)
