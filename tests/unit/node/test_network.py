"""Network programs in simulated Pods: DNS, Services and their endpoints, and failures."""

from __future__ import annotations

from typing import Any

import pytest

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.node.network import ServiceDirectory
from setpoint.node.runtime.files import Files
from setpoint.node.runtime.images import NGINX_PAGE
from setpoint.node.runtime.network import (
    API_SERVER,
    ConnectionFailure,
    ContainerNetwork,
    PendingResponse,
    PodRequest,
    Target,
)
from setpoint.testing import VirtualCluster, virtual

PODS, NODES = builtin("pods"), builtin("nodes")

AGNHOST = "registry.k8s.io/e2e-test-images/agnhost:2.62.0"


async def make(cluster: VirtualCluster, kind: str, name: str, spec: Obj, **meta: Any) -> Obj:
    metadata = {"name": name, "namespace": "default", **meta}
    return await cluster.client.create({"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec})


async def server(cluster: VirtualCluster, name: str, *, image: str = "nginx", **spec: Any) -> None:
    container = {"name": "c", "image": image, "ports": [{"name": "www", "containerPort": 80}], **spec.pop("c", {})}
    await make(cluster, "Pod", name, {"containers": [container], **spec}, labels={"app": spec.get("subdomain", name)})


async def service(cluster: VirtualCluster, name: str, app: str, **spec: Any) -> Obj:
    ports = spec.pop("ports", [{"name": "http", "port": 8080, "targetPort": "www"}])
    return await make(cluster, "Service", name, {"selector": {"app": app}, "ports": ports, **spec})


async def run(cluster: VirtualCluster, script: str, seconds: float = 5, **spec: Any) -> str:
    """Run a script in a Pod and return its output and exit code."""
    name = f"asking-{len(cluster.__dict__.setdefault('asked', []))}"
    cluster.__dict__["asked"].append(name)
    container = {"name": "c", "image": "busybox", "command": ["sh", "-c", script]}
    await make(cluster, "Pod", name, {"containers": [container], "restartPolicy": "Never", **spec})
    await cluster.sleep(seconds)
    log = (await cluster.client.sender.request("GET", f"/api/v1/namespaces/default/pods/{name}/log")).body.decode()
    ended = (await cluster.client.get(PODS, name, "default"))["status"]["containerStatuses"][0]["state"]
    return f"{log}{ended['terminated']['exitCode']}" if "terminated" in ended else f"{log}..."


@virtual(nodes=2)
async def test_services_route_to_ready_endpoints(cluster: VirtualCluster) -> None:
    await server(cluster, "web")
    found = await service(cluster, "web", "web")
    await service(cluster, "empty", "nobody")
    await cluster.sleep(2)
    address, page = found["spec"]["clusterIP"], NGINX_PAGE
    for host in ("web", "web.default", "web.default.svc", "web.default.svc.cluster.local", address):
        assert await run(cluster, f"curl -s http://{host}:8080/; wget -qO- {host}:8080") == f"{page}{page}0", host
    assert await run(cluster, "curl -s -o /dev/null -w '%{http_code} %{remote_ip}' web:8080/x") == f"404 {address}0"
    refused = "curl: (7) Failed to connect to web port 9 after 0 ms: Could not connect to server\n"
    assert await run(cluster, "curl web:9") == f"{refused}7"
    refused = "curl: (7) Failed to connect to empty port 8080 after 0 ms: Could not connect to server\n"
    assert await run(cluster, "curl -sS empty:8080") == f"{refused}7"
    assert await run(cluster, "curl -s empty:8080") == "7"
    at = (await cluster.client.get(builtin("services"), "empty", "default"))["spec"]["clusterIP"]
    assert await run(cluster, "wget -qO- empty:8080") == (
        f"wget: can't connect to remote host ({at}): Connection refused\n1"
    )
    # Only ready endpoints are used.
    annotations = {"simulate.setpoint.dev/readiness": "false"}
    probe = {"readinessProbe": {"httpGet": {"port": 80}, "periodSeconds": 1, "failureThreshold": 1}}
    await server(cluster, "probed", c=probe)
    await service(cluster, "probed", "probed", ports=[{"port": 80}])
    await cluster.sleep(3)
    assert await run(cluster, "curl -s probed") == f"{page}0"
    await cluster.client.patch(PODS, "probed", {"metadata": {"annotations": annotations}}, "default")
    await cluster.sleep(3)
    assert await run(cluster, "curl -s probed") == "7"


@virtual(nodes=2)
async def test_cluster_dns_names(cluster: VirtualCluster) -> None:
    for name in ("db-0", "db-1"):
        await server(cluster, name, subdomain="db", hostname=name)
    await service(cluster, "db", "db", clusterIP="None")
    web = (await service(cluster, "web", "db"))["spec"]["clusterIP"]
    await make(cluster, "Service", "far", {"type": "ExternalName", "externalName": "example.com"})
    await make(cluster, "Service", "alias", {"type": "ExternalName", "externalName": "web.default.svc.cluster.local"})
    await cluster.sleep(3)
    addresses = [(await cluster.client.get(PODS, name, "default"))["status"]["podIP"] for name in ("db-0", "db-1")]
    head = "Server:\t\t10.96.0.10\nAddress:\t10.96.0.10:53\n\n"
    full = "db.default.svc.cluster.local"
    both = "".join(f"Name:\t{full}\nAddress: {each}\n" for each in sorted(addresses))
    assert await run(cluster, "nslookup db") == f"{head}{both}\n0"
    assert await run(cluster, "nslookup kubernetes.default.svc") == (
        f"{head}Name:\tkubernetes.default.svc.cluster.local\nAddress: 10.96.0.1\n\n0"
    )
    assert await run(cluster, "nslookup nothing") == f"{head}** server can't find nothing: NXDOMAIN\n\n1"
    assert await run(cluster, "dig +short +search db-1.db") == f"{addresses[1]}\n0"
    assert await run(cluster, "dig +short db") == "0", "dig searches no domains unless it is asked to"
    assert "status: NXDOMAIN" in await run(cluster, "dig db")
    assert await run(cluster, "dig +short SRV _http._tcp.web.default.svc.cluster.local") == (
        "0 100 8080 web.default.svc.cluster.local.\n0"
    )
    assert await run(cluster, "host web; host nothing") == (
        f"web.default.svc.cluster.local has address {web}\nHost nothing not found: 3(NXDOMAIN)\n1"
    )
    assert await run(cluster, f"nslookup {web}") == (
        f"{head}{'.'.join(reversed(web.split('.')))}.in-addr.arpa\tname = web.default.svc.cluster.local.\n\n0"
    )
    dashed = addresses[0].replace(".", "-")
    assert await run(cluster, f"dig +short {dashed}.default.pod.cluster.local") == f"{addresses[0]}\n0"
    assert await run(cluster, "getent hosts web; getent hosts nothing") == f"{web:<15} web\n2"
    assert await run(cluster, "curl -s alias:8080 -o /dev/null; echo $?; curl far") == (
        "0\ncurl: (6) Could not resolve host: far\n6"
    )
    aliases = [{"ip": addresses[0], "hostnames": ["example.com"]}]
    assert "Welcome to nginx!" in await run(cluster, "curl -s example.com", hostAliases=aliases)
    assert (await run(cluster, "curl web:8080", dnsPolicy="Default")).endswith("Could not resolve host: web\n6")
    assert (await run(cluster, "nslookup web", 20, dnsPolicy="Default")).endswith("no servers could be reached\n\n1")


@virtual(nodes=2)
async def test_unreachable_targets_fail_with_the_message_of_the_program(cluster: VirtualCluster) -> None:
    await server(cluster, "unknown", image="example.com/app", nodeName="node-1")
    await server(cluster, "web", nodeName="node-1")
    await cluster.sleep(2)
    address = (await cluster.client.get(PODS, "web", "default"))["status"]["podIP"]
    unknown = (await cluster.client.get(PODS, "unknown", "default"))["status"]["podIP"]
    on: dict[str, Any] = {"nodeName": "node-2"}
    for script, expected in (
        ("curl https://example.com/x", "curl: (6) Could not resolve host: example.com\n6"),
        ("wget -q http://example.com/x", "wget: bad address 'example.com'\n1"),
        ("ping -c 1 nowhere", "ping: bad address 'nowhere'\n1"),
        ("nc -z nowhere 80", "nc: bad address 'nowhere'\n1"),
        ("telnet nowhere", "telnet: bad address 'nowhere'\n1"),
        (
            "curl 10.244.3.250",
            "curl: (7) Failed to connect to 10.244.3.250 port 80 after 3000 ms: Could not connect to server\n7",
        ),
        ("wget -q 10.244.3.250", "wget: can't connect to remote host (10.244.3.250): No route to host\n1"),
        (f"curl {unknown}", "curl: (52) Empty reply from server\n52"),
        (f"wget -q {unknown}", "wget: error getting response\n1"),
        (f"curl -s {unknown}:81", "7"),
        (f"curl -s https://{unknown}:81", "7"),
        (f"curl -s https://{unknown}:80", "60"),
        (f"nc -zv {address} 80", f"{address} ({address}:80) open\n0"),
        (f"nc -z {address} 81", f"nc: {address} ({address}:81): Connection refused\n1"),
        (f"telnet {address} 81", f"telnet: can't connect to remote host ({address}): Connection refused\n1"),
        (f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc {address} 80 | head -n 1", "HTTP/1.1 200 OK\r\n0"),
        (f"echo hostName | nc {address} 80 | head -n 1", "HTTP/1.1 400 Bad Request\r\n0"),
        (f"echo hostName | nc {unknown} 80", "0"),
        (f"nc {address} 80 < /dev/null", "0"),
        (
            f"ping -c 2 {address} | tail -n 2",
            "2 packets transmitted, 2 packets received, 0% packet loss\n"
            "round-trip min/avg/max = 0.080/0.080/0.080 ms\n0",
        ),
        ("curl", "curl: (2) no URL specified\ncurl: try 'curl --help' or 'curl --manual' for more information\n2"),
        ("curl ftp://x/y", 'curl: (1) Protocol "ftp" not supported\n1'),
    ):
        assert await run(cluster, script, **on) == expected, script
    await cluster.client.patch(
        NODES, "node-1", {"metadata": {"annotations": {"simulate.setpoint.dev/state": "partitioned"}}}
    )
    await cluster.sleep(1)
    assert await run(cluster, f"curl -m 2 {address}; date +%s", **on) != ""
    assert await run(cluster, f"curl -m 2 {address}", **on) == (
        "curl: (28) Connection timed out after 2000 milliseconds\n28"
    )
    assert await run(cluster, f"wget -q -T 3 {address}", **on) == "wget: download timed out\n1"
    assert await run(cluster, f"ping -c 1 -W 1 {address} | tail -n 1", **on) == (
        "1 packets transmitted, 0 packets received, 100% packet loss\n0"
    )


@virtual(nodes=2)
async def test_node_ports_host_ports_and_localhost(cluster: VirtualCluster) -> None:
    await server(cluster, "web", nodeName="node-1", c={"ports": [{"containerPort": 80, "hostPort": 8888}]})
    ports = [{"port": 80, "nodePort": 30080}]
    await service(cluster, "web", "web", type="NodePort", ports=ports)
    await service(
        cluster, "here", "web", type="NodePort", externalTrafficPolicy="Local", ports=[{"port": 80, "nodePort": 30081}]
    )
    await cluster.sleep(2)
    nodes = {}
    for name in ("node-1", "node-2"):
        status = (await cluster.client.get(NODES, name))["status"]
        nodes[name] = next(each["address"] for each in status["addresses"] if each["type"] == "InternalIP")
    for target, works in (
        (f"{nodes['node-1']}:30080", True),
        (f"{nodes['node-2']}:30080", True),
        (f"{nodes['node-1']}:30081", True),
        (f"{nodes['node-2']}:30081", False),
        (f"{nodes['node-1']}:8888", True),
        (f"{nodes['node-2']}:8888", False),
        ("localhost", False),
    ):
        assert ("Welcome to nginx!" in await run(cluster, f"curl -s -m 2 {target}")) is works, target


@virtual(nodes=1)
async def test_pods_share_a_host_port_at_different_addresses_and_protocols(cluster: VirtualCluster) -> None:
    node = next(
        each["address"]
        for each in (await cluster.client.get(NODES, "node-1"))["status"]["addresses"]
        if each["type"] == "InternalIP"
    )
    image, port = "registry.k8s.io/e2e-test-images/agnhost:2.66.1", {"containerPort": 8080, "hostPort": 5432}
    for name, exposed in (
        ("local", {**port, "hostIP": "127.0.0.1"}),
        ("tcp", {**port, "hostIP": node}),
        ("udp", {**port, "hostIP": node, "protocol": "UDP"}),
    ):
        args = ["netexec", "--udp-port=8080", "--http-port=8081"] if name == "udp" else ["netexec", "--udp-port=-1"]
        await server(cluster, name, image=image, c={"args": args, "ports": [exposed]})
    await cluster.sleep(2)
    on_node: dict[str, Any] = {"hostNetwork": True}
    assert await run(cluster, f"curl -s --interface {node} 127.0.0.1:5432/hostname", **on_node) == "local0"
    assert await run(cluster, f"curl -s {node}:5432/hostname", **on_node) == "tcp0"
    assert await run(cluster, f"echo hostname | nc -u -w 1 {node} 5432", **on_node) == "udp0"
    assert await run(cluster, f"curl -s {node}:5432/hostname") == "tcp0"
    assert await run(cluster, "curl -s 127.0.0.1:5432/hostname") == "7", "a Pod's own network has another localhost"


@virtual(nodes=1)
async def test_a_server_without_http_sends_its_name(cluster: VirtualCluster) -> None:
    image, command = "registry.k8s.io/e2e-test-images/agnhost:2.66.1", ["/agnhost", "serve-hostname", "--http=false"]
    for name, flags in (("both", ["--tcp", "--udp"]), ("udp", ["--udp"]), ("none", [])):
        await server(cluster, name, image=image, c={"command": [*command, *flags]})
        ports = [{"name": each.lower(), "port": 80, "targetPort": 9376, "protocol": each} for each in ("TCP", "UDP")]
        await service(cluster, name, name, ports=ports)
    await cluster.sleep(2)
    for script, expected in (
        ("echo hostName | nc -t -w 2 both 80", "both0"),
        ("nc -w 2 both 80 < /dev/null", "both0"),
        ("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc both 80", "both0"),
        ("echo hostName | nc -u -w 2 both 80", "both0"),
        ("curl both", "curl: (52) Empty reply from server\n52"),
        ("nc -z udp 80 2>/dev/null", "1"),
        ("echo hostName | nc -u -w 2 udp 80", "udp0"),
        ("echo hostName | nc -u -w 2 none 80", "1"),
    ):
        assert await run(cluster, script) == expected, script


@virtual(nodes=1)
async def test_a_script_waits_until_a_service_exists(cluster: VirtualCluster) -> None:
    wait = "until nslookup db.$NS.svc.cluster.local >/dev/null; do echo waiting; sleep 2; done; echo found"
    waiting = {"name": "wait", "image": "busybox", "command": ["sh", "-c", f"NS=default; {wait}"]}
    await make(cluster, "Pod", "p", {"initContainers": [waiting], "containers": [{"name": "c", "image": "nginx"}]})
    await cluster.sleep(11)
    pod = await cluster.client.get(PODS, "p", "default")
    assert pod["status"]["phase"] == "Pending"
    await service(cluster, "db", "p")
    await cluster.sleep(5)
    assert (await cluster.client.get(PODS, "p", "default"))["status"]["phase"] == "Running"
    path = "/api/v1/namespaces/default/pods/p/log"
    log = (await cluster.client.sender.request("GET", path, "container=wait")).body.decode()
    assert log == "waiting\n" * 6 + "found\n"


@virtual(nodes=1)
async def test_endpoint_slices_are_watched_on_first_use(cluster: VirtualCluster) -> None:
    asked: list[ServiceDirectory] = []
    want = ServiceDirectory.request_endpoints

    def wanting(self: ServiceDirectory) -> None:
        asked.append(self)
        want(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ServiceDirectory, "request_endpoints", wanting)
        await server(cluster, "web")
        assert await run(cluster, "echo hello") == "hello\n0"
        assert not asked
        assert await run(cluster, "curl -s nothing") == "6"
        assert asked and asked[0].ready


@virtual(nodes=1)
async def test_a_server_started_by_a_shell_responds(cluster: VirtualCluster) -> None:
    script = "echo mine > /usr/share/nginx/html/index.html && exec nginx -g 'daemon off;'"
    await server(cluster, "web", c={"command": ["sh", "-c", script]})
    await server(cluster, "script", image="busybox", c={"command": ["sh", "-c", "while sleep 1; do date; done"]})
    for name in ("web", "script"):
        await service(cluster, name, name)
    await cluster.sleep(2)
    assert await run(cluster, "curl -s web:8080") == "mine\n0"
    assert await run(cluster, "curl -s script:8080") == "7", "a script listens nowhere, whatever its Pod declares"


@virtual(nodes=1)
async def test_programs_that_need_the_internet_fail(cluster: VirtualCluster) -> None:
    for script, code, text in (
        ("apt-get update && apt-get install -y curl", 100, "E: Unable to locate package curl\n"),
        ("apk add --no-cache curl", 1, "ERROR: unable to select packages:\n  curl (no such package):\n"),
        ("pip install requests", 1, "ERROR: No matching distribution found for requests\n"),
        ("npm install express", 1, "getaddrinfo EAI_AGAIN registry.npmjs.org\n"),
        (
            "git clone https://github.com/a/b.git",
            128,
            "fatal: unable to access 'https://github.com/a/b.git/': Could not resolve host: github.com\n",
        ),
        ("kubectl get pods", 126, "kubectl: this program is not simulated\n"),
        ("yum install x", 1, "Could not resolve host"),
    ):
        said = await run(cluster, script)
        assert said.endswith(f"\n{code}") and text in said, script


@virtual(nodes=1)
async def test_postgres_clients_reach_simulated_servers(cluster: VirtualCluster) -> None:
    await server(cluster, "db", image="postgres:17")
    await service(cluster, "db", "db", ports=[{"port": 5432}])
    await cluster.sleep(2)
    address = (await cluster.client.get(builtin("services"), "db", "default"))["spec"]["clusterIP"]
    for script, expected in (
        ("pg_isready -h db", "db:5432 - accepting connections\n0"),
        ("pg_isready -h nodb", "nodb:5432 - no response\n2"),
        ("pg_isready", "/var/run/postgresql:5432 - no response\n2"),
        (
            "pg_dump -h db -p 5433 x",
            f'pg_dump: error: connection to server at "db" ({address}), port 5433 failed: Connection refused\n1',
        ),
        ("pg_basebackup --host=db --pgdata=/data; cat /data/PG_VERSION", "17\n0"),
    ):
        assert await run(cluster, script) == expected, script
    assert "PostgreSQL database cluster dump complete" in await run(cluster, "pg_dumpall -h db")
    assert (await run(cluster, "psql -h db -c 'select 1'")).endswith("\n2")


@virtual(nodes=1)
async def test_programs_reach_the_api_server_with_their_token(cluster: VirtualCluster) -> None:
    place = "/var/run/secrets/kubernetes.io/serviceaccount"
    url = "https://kubernetes.default.svc/api/v1/namespaces/default/pods"
    token = f'-H "Authorization: Bearer $(cat {place}/token)"'
    forbidden = 'pods is forbidden: User \\"system:serviceaccount:default:default\\" cannot list resource'
    assert forbidden in await run(cluster, f"curl -sk {token} {url}")
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "view", "namespace": "default"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
    }
    await cluster.client.create(binding)
    await cluster.sleep(1)
    assert '"kind":"PodList"' in (await run(cluster, f"curl -sk {token} {url}")).replace(" ", "")
    assert '"PodList"' in await run(cluster, f"wget -qO- --header={token[3:]} {url}")
    assert "system:anonymous" in await run(cluster, f"curl -sk {url}")
    assert (await run(cluster, f"curl {url}")).startswith("curl: (60) SSL certificate problem: ")
    assert await run(cluster, "curl http://kubernetes:443") == "Client sent an HTTP request to an HTTPS server.\n0"
    assert await run(cluster, "nc -zv kubernetes 443") == "kubernetes (10.96.0.1:443) open\n0"


@virtual(nodes=1)
async def test_signals_between_processes(cluster: VirtualCluster) -> None:
    hook = {"lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", "sleep 2; kill -9 1; kill 1"]}}}}
    await server(cluster, "web", restartPolicy="Never", c=hook)
    await server(cluster, "deaf", image="busybox", c={"command": ["sleep", "1000"], **hook}, restartPolicy="Never")
    await cluster.sleep(5)
    states = [(await cluster.client.get(PODS, name, "default"))["status"]["phase"] for name in ("web", "deaf")]
    assert states == ["Succeeded", "Running"]
    assert await run(cluster, "kill 99") == "sh: can't kill pid 99: No such process\n1"
    assert await run(cluster, "sleep 100 & kill $!; wait; date +%s > /dev/null; echo done") == "done\n0"
    assert await run(cluster, "trap 'echo caught; exit 3' TERM; kill 1; echo never") == "caught\n3"


@virtual(nodes=1)
async def test_http_hooks_of_servers_that_are_not_simulated_succeed(cluster: VirtualCluster) -> None:
    for name, hook in (("own", {"port": 9999}), ("other", {"port": 80, "host": "nowhere"})):
        await server(cluster, name, image="example.com/app", c={"lifecycle": {"postStart": {"httpGet": hook}}})
    await cluster.sleep(2)
    failed = ("Warning", "FailedPostStartHook", "PostStartHook failed")
    assert [failed in await cluster.events(name) for name in ("own", "other")] == [False, True]


async def endpoints(cluster: VirtualCluster, service: str, *given: Obj) -> None:
    """Create an EndpointSlice for a Service without a selector."""
    await cluster.client.create(
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": service, "namespace": "default", "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
            "endpoints": list(given),
        }
    )


async def address_of(cluster: VirtualCluster, pod: str) -> str:
    return str((await cluster.client.get(PODS, pod, "default"))["status"]["podIP"])


HTTP = [{"name": "http", "port": 80}]


@virtual(nodes=1)
async def test_dns_has_ready_endpoints_only(cluster: VirtualCluster) -> None:
    """As in the API, an endpoint whose readiness is unknown counts as ready."""
    await make(cluster, "Service", "db", {"clusterIP": "None", "ports": HTTP})
    await endpoints(
        cluster,
        "db",
        {"addresses": ["10.0.0.1"], "hostname": "one", "conditions": {"ready": True}},
        {"addresses": ["10.0.0.2"], "hostname": "two", "conditions": {"ready": False}},
        {"addresses": ["10.0.0.3"], "hostname": "three"},
    )
    await cluster.sleep(1)
    full = "db.default.svc.cluster.local"
    assert await run(cluster, f"dig +short {full}") == "10.0.0.1\n10.0.0.3\n0"
    assert await run(cluster, f"dig +short SRV _http._tcp.{full}") == (f"0 50 80 one.{full}.\n0 50 80 three.{full}.\n0")
    assert await run(cluster, "dig +short -x 10.0.0.3; dig +short -x 10.0.0.2") == f"three.{full}.\n0"
    assert await run(cluster, "dig +short 10-0-0-9.default.pod.cluster.local; host -t AAAA db") == (
        "10.0.0.9\ndb has no AAAA record\n0"
    )
    assert "status: NXDOMAIN" in await run(cluster, "dig 10-0-0-9.nothing.pod.cluster.local")
    assert await run(cluster, f"dig +short three.{full}; dig +short two.{full}") == "10.0.0.3\n0"
    assert "status: NXDOMAIN" in await run(cluster, f"dig two.{full}")


@virtual(nodes=1)
async def test_names_below_a_service_with_an_address_do_not_exist(cluster: VirtualCluster) -> None:
    await server(cluster, "web")
    await service(cluster, "web", "web")
    await make(cluster, "Service", "alias", {"type": "ExternalName", "externalName": "web.default.svc.cluster.local"})
    await make(
        cluster, "Service", "alias2", {"type": "ExternalName", "externalName": "alias.default.svc.cluster.local"}
    )
    await cluster.sleep(1)
    for name in ("web", "alias"):
        assert "status: NXDOMAIN" in await run(cluster, f"dig x.{name}.default.svc.cluster.local"), name
    assert await run(cluster, "dig +short CNAME alias2.default.svc.cluster.local") == (
        "alias.default.svc.cluster.local.\n0"
    )


@virtual(nodes=2)
async def test_local_traffic_stays_on_its_node(cluster: VirtualCluster) -> None:
    await server(cluster, "web", nodeName="node-1")
    await service(cluster, "web", "web", internalTrafficPolicy="Local")
    await cluster.sleep(2)
    assert await run(cluster, "curl -s -o /dev/null -m 2 web:8080", nodeName="node-1") == "0"
    assert await run(cluster, "curl -s -m 2 web:8080", nodeName="node-2") == "28"


@virtual(nodes=1)
async def test_terminating_endpoints_serve_if_there_are_no_others(cluster: VirtualCluster) -> None:
    await server(cluster, "web")
    await cluster.sleep(2)
    at = [await address_of(cluster, "web")]
    terminating = {"ready": False, "terminating": True}
    for name, conditions in (
        ("serving", terminating | {"serving": True}),
        ("failing", terminating | {"serving": False}),
        ("unready", {"ready": False, "serving": True}),
    ):
        await make(cluster, "Service", name, {"ports": HTTP})
        await endpoints(cluster, name, {"addresses": at, "conditions": conditions})
    await cluster.sleep(1)
    codes = "curl -s -o /dev/null serving; echo $?; curl -s failing; echo $?; curl -s unready"
    assert await run(cluster, codes) == "0\n7\n7"


@virtual(nodes=1)
async def test_a_service_with_affinity_always_chooses_the_same_endpoint(cluster: VirtualCluster) -> None:
    for name in ("one", "two", "three"):
        script = f"echo {name} > /usr/share/nginx/html/index.html && exec nginx"
        await server(cluster, name, subdomain="web", c={"command": ["sh", "-c", script]})
    await service(cluster, "sticky", "web", sessionAffinity="ClientIP")
    await service(cluster, "free", "web")
    await cluster.sleep(2)
    for name, expected in (("sticky", "1"), ("free", "3")):
        script = f"for i in 1 2 3 4 5 6 7 8 9 10 11 12; do curl -s {name}:8080; done | sort | uniq | wc -l"
        assert (await run(cluster, script)).split() == [expected, "0"], name


@virtual(nodes=2)
async def test_pods_in_the_network_of_their_node(cluster: VirtualCluster) -> None:
    await server(cluster, "web", nodeName="node-1")
    await server(cluster, "host", nodeName="node-2", hostNetwork=True)
    await cluster.sleep(2)
    nodes = {}
    for name in ("node-1", "node-2"):
        status = (await cluster.client.get(NODES, name))["status"]
        nodes[name] = next(each["address"] for each in status["addresses"] if each["type"] == "InternalIP")
    assert await run(cluster, f"curl -s -o /dev/null {nodes['node-2']}") == "0"
    assert await run(cluster, f"curl -s {nodes['node-1']}") == "7", "the port of a Pod is none of its node"
    assert await run(cluster, "curl -s -o /dev/null localhost", hostNetwork=True, nodeName="node-2") == "0"
    assert await run(cluster, "curl -s localhost", nodeName="node-2") == "7"
    assert await run(cluster, "hostname -i", hostNetwork=True, nodeName="node-2") == f"{nodes['node-2']}\n0"
    for name, expected in (("web", "0"), ("host", "0")):
        await service(cluster, name, name, ports=[{"port": 80}])
        await cluster.sleep(1)
        assert await run(cluster, f"curl -s -o /dev/null {name}", nodeName="node-1") == expected, name
    await service(cluster, "closed", "host", ports=[{"port": 80, "targetPort": 81}])
    await cluster.sleep(1)
    assert await run(cluster, "curl -s closed") == "7"
    await cluster.client.patch(
        NODES, "node-2", {"metadata": {"annotations": {"simulate.setpoint.dev/state": "partitioned"}}}
    )
    await cluster.sleep(1)
    assert await run(cluster, "curl -s -m 1 host", nodeName="node-1") == "28"


@virtual(nodes=1)
async def test_addresses_of_ipv6_in_etc_hosts_are_not_used(cluster: VirtualCluster) -> None:
    await server(cluster, "web")
    await cluster.sleep(2)
    aliases = [
        {"ip": "fd00::1", "hostnames": ["six", "both"]},
        {"ip": await address_of(cluster, "web"), "hostnames": ["both"]},
    ]
    script = "curl -s -o /dev/null both; echo $?; curl six"
    assert await run(cluster, script, hostAliases=aliases) == "0\ncurl: (6) Could not resolve host: six\n6"


def test_a_program_does_not_wait_forever_for_the_api_server() -> None:
    class Silent:
        """A cluster whose API server never responds."""

        def route(self, node: str, client: str, address: str, port: int, protocol: str) -> Target:
            return Target(API_SERVER, port)

        def request_api(self, client: str, request: PodRequest) -> PendingResponse:
            return PendingResponse()

    pod: Any = {"metadata": {"uid": "u"}, "spec": {}}
    silent: Any = Silent()
    waiting = ContainerNetwork(pod, "10.0.0.1", Files, silent, silent).request("10.96.0.1", PodRequest(443))
    waited = 0.0
    try:
        while waited < 100:
            waited += next(waiting)
    except StopIteration as ended:
        assert ended.value is ConnectionFailure.TIMED_OUT
    assert 20 < waited < 60
