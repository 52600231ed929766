"""Volumes of simulated containers: content, modes and owners, through the API, in virtual time."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

PODS, CONFIG_MAPS = builtin("pods"), builtin("configmaps")


def config_map(name: str, **data: str) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


def a_pod(name: str, command: list[str], volumes: list[Obj], mounts: list[Obj], **spec: Any) -> Obj:
    image = {"image": "busybox", "command": command}
    if command[0] == "agnhost":
        image = {"image": "registry.k8s.io/e2e-test-images/agnhost:2.62.0", "args": command[1:]}
    container = {"name": "c", **image, "volumeMounts": mounts, **spec.pop("container", {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"a": "b"}},
        "spec": {"restartPolicy": "Never", "containers": [container], "volumes": volumes, **spec},
    }


async def log_of(cluster: VirtualCluster, name: str) -> str:
    answer = await cluster.client.sender.request("GET", f"/api/v1/namespaces/default/pods/{name}/log")
    return answer.body.decode()


@virtual(nodes=1)
async def test_modes_and_owners(cluster: VirtualCluster) -> None:
    await cluster.client.create(config_map("m", one="1", two="2"))
    volume = {"name": "v", "configMap": {"name": "m", "items": [{"key": "two", "path": "x/2", "mode": 0o400}]}}
    look = ["agnhost", "mounttest", "--fs_type=/v", "--file_mode=/v/x/2", "--file_perm=/v", "--file_content=/v/x/2"]
    await cluster.client.create(a_pod("root", look, [volume], [{"name": "v", "mountPath": "/v"}]))
    volume = {"name": "v", "emptyDir": {"medium": "Memory"}}
    look = ["agnhost", "mounttest", "--fs_type=/v", "--new_file_0666=/v/f", "--file_perm=/v/f", "--file_owner=/v/f"]
    security = {"runAsUser": 1001, "runAsGroup": 7, "fsGroup": 123}
    await cluster.client.create(
        a_pod("other", look, [volume], [{"name": "v", "mountPath": "/v"}], securityContext=security)
    )
    await cluster.client.create(a_pod("who", ["sh", "-c", "id -u; id -g; id -G"], [], [], securityContext=security))
    await cluster.sleep(2)
    assert await log_of(cluster, "root") == (
        'mount type of "/v": 61267\nmode of file "/v/x/2": -r--------\nperms of file "/v": -rwxrwxrwx\n'
        'content of file "/v/x/2": 2\n'
    )
    assert await log_of(cluster, "other") == (
        'mount type of "/v": tmpfs\ncontent of file "/v/f": mount-tester new file\n\nperms of file "/v/f": -rw-rw-rw-\n'
        'owner UID of "/v/f": 1001\nowner GID of "/v/f": 123\n'
    )
    assert await log_of(cluster, "who") == "1001\n7\n7 123\n"


@virtual(nodes=1)
async def test_projected_volumes_follow_their_sources(cluster: VirtualCluster) -> None:
    await cluster.client.create(config_map("m", k="old"))
    await cluster.client.create(config_map("o", k="there"))
    volumes: list[Obj] = [
        {"name": "v", "configMap": {"name": "m"}},
        {"name": "o", "configMap": {"name": "o", "optional": True}},
        {"name": "d", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    ]
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in "vod"]
    fixed = {"name": "v", "mountPath": "/part", "subPath": "k"}
    script = "while true; do cat /v/k /part /o/k /d/labels; echo .; sleep 5; done"
    await cluster.client.create(a_pod("p", ["sh", "-c", script], volumes, [*mounts, fixed]))
    await cluster.sleep(1)
    await cluster.client.patch(CONFIG_MAPS, "m", {"data": {"k": "new"}}, "default")
    await cluster.client.patch(PODS, "p", {"metadata": {"labels": {"a": "c"}}}, "default")
    await cluster.client.delete(CONFIG_MAPS, "o", "default")
    await cluster.sleep(5)
    await cluster.client.delete(CONFIG_MAPS, "m", "default")
    await cluster.sleep(5)
    gone = "cat: can't open '/o/k': No such file or directory\n"
    later = f'newold{gone}a="c".\n'
    assert await log_of(cluster, "p") == f'oldoldtherea="b".\n{later}{later}'


@virtual(nodes=1)
async def test_read_only_paths(cluster: VirtualCluster) -> None:
    await cluster.client.create(config_map("m", k="1"))
    volumes: list[Obj] = [{"name": "v", "configMap": {"name": "m"}}, {"name": "e", "emptyDir": {}}]
    mounts = [{"name": "v", "mountPath": "/v"}, {"name": "e", "mountPath": "/e"}]
    script = "echo x > /file; echo x > /v/k; touch /v/new; mkdir /e/d; echo y > /e/d/f; cat /e/d/f; ls /v /e"
    locked = {"securityContext": {"readOnlyRootFilesystem": True}}
    await cluster.client.create(a_pod("p", ["/bin/sh", "-c", script], volumes, mounts, container=locked))
    await cluster.sleep(1)
    assert await log_of(cluster, "p") == (
        "/bin/sh: can't create /file: Read-only file system\n/bin/sh: can't create /v/k: Read-only file system\n"
        "touch: /v/new: Read-only file system\ny\n/v:\nk\n\n/e:\nd\n"
    )


@virtual(nodes=1)
async def test_a_web_server_without_its_page_is_unhealthy(cluster: VirtualCluster) -> None:
    page = "/usr/local/apache2/htdocs/index.html"
    served = {"httpGet": {"path": "/index.html", "port": 80}, "periodSeconds": 1, "failureThreshold": 1}
    script = (
        f"echo x >> /n; case $(wc -l < /n) in 3) mv -v {page} /tmp/;; 6) mv /tmp/index.html $(dirname {page})/;; esac"
    )
    moving = {"exec": {"command": ["sh", "-c", script]}, "periodSeconds": 1}
    pod = a_pod("p", ["true"], [], [], container={"readinessProbe": served, "livenessProbe": moving})
    pod["spec"]["containers"][0]["image"] = "httpd:2.4"
    del pod["spec"]["containers"][0]["command"]
    await cluster.client.create(pod)
    seen: list[bool] = []
    for _ in range(9):
        await cluster.sleep(1)
        status = (await cluster.client.get(PODS, "p", "default"))["status"]["containerStatuses"][0]
        seen += [status["ready"]] if seen[-1:] != [status["ready"]] else []
    assert seen == [True, False, True]
    text = "Readiness probe failed: HTTP probe failed with statuscode: 404"
    assert ("Warning", "Unhealthy", text) in await cluster.events("p")


@virtual(nodes=1, controllers=["serviceaccount-controller"], scheduler=False)
async def test_host_ports_are_used_once(cluster: VirtualCluster) -> None:
    ports = {"ports": [{"containerPort": 80, "hostPort": 8080}]}
    for name in ("first", "second"):
        pod = a_pod(
            name, ["sleep", "99"], [], [], container=ports, nodeName="node-1", tolerations=[{"operator": "Exists"}]
        )
        await cluster.client.create(pod)
        await cluster.sleep(1)
    status = (await cluster.client.get(PODS, "second", "default"))["status"]
    text = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
    assert (status["phase"], status["reason"], status["message"]) == (
        "Failed",
        "NodePorts",
        f"Pod was rejected: {text}",
    )


@virtual(nodes=1)
async def test_sub_paths(cluster: VirtualCluster) -> None:
    env = [{"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "BAD", "value": "/etc"}]
    volumes: list[Obj] = [{"name": "e", "emptyDir": {}}]
    part, whole = {"name": "e", "mountPath": "/part", "subPathExpr": "$(ME)"}, {"name": "e", "mountPath": "/whole"}
    script = "test -d /part && echo x > /part/f; cat /whole/$ME/f"
    await cluster.client.create(a_pod("p", ["sh", "-c", script], volumes, [part, whole], container={"env": env}))
    for name, expression in (("absolute", "$(BAD)"), ("unknown", "a/$(NO)")):
        mount = {"name": "e", "mountPath": "/part", "subPathExpr": expression}
        await cluster.client.create(a_pod(name, ["sh"], volumes, [mount], container={"env": env}))
    await cluster.sleep(1)
    assert await log_of(cluster, "p") == "x\n"
    problems = {"absolute": "error SubPath `/etc` must not be an absolute path", "unknown": "missing value for NO"}
    for name, problem in problems.items():
        (status,) = (await cluster.client.get(PODS, name, "default"))["status"]["containerStatuses"]
        assert status["state"] == {"waiting": {"reason": "CreateContainerConfigError", "message": problem}}
        assert ("Warning", "Failed", f"Error: {problem}") in await cluster.events(name)


@virtual(nodes=1)
async def test_service_account_tokens(cluster: VirtualCluster) -> None:
    where = "/var/run/secrets/kubernetes.io/serviceaccount"
    await cluster.client.create(a_pod("p", ["sh", "-c", f"cat {where}/token; ls {where}"], [], []))
    source = {"serviceAccountToken": {"path": "t", "audience": "bank", "expirationSeconds": 1200}}
    volume = {"name": "t", "projected": {"sources": [source]}}
    look = ["agnhost", "mounttest", "--file_perm=/own/t", "--file_owner=/own/t"]
    await cluster.client.create(
        a_pod("q", look, [volume], [{"name": "t", "mountPath": "/own"}], securityContext={"runAsUser": 7, "fsGroup": 8})
    )
    await cluster.sleep(1)
    token = (await log_of(cluster, "p")).partition("namespace\ntoken\n")[0].removesuffix("ca.crt\n")
    review_admission = await cluster.client.create(
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    )
    user = review_admission["status"]["user"]
    assert user["username"] == "system:serviceaccount:default:default"
    assert user["extra"]["authentication.kubernetes.io/pod-name"] == ["p"]
    assert await log_of(cluster, "q") == (
        'perms of file "/own/t": -rw-r-----\nowner UID of "/own/t": 7\nowner GID of "/own/t": 8\n'
    )


@virtual(nodes=1)
async def test_trust_bundles_and_binary_data(cluster: VirtualCluster) -> None:
    binary = {"binaryData": {"bin": b64encode(b"\xde\xca\x00A").decode()}}
    await cluster.client.create({**config_map("m"), **binary})
    volumes: list[Obj] = [
        {"name": "m", "configMap": {"name": "m"}},
        {
            "name": "t",
            "projected": {
                "sources": [
                    {
                        "clusterTrustBundle": {
                            "signerName": "example.com/s",
                            "labelSelector": {},
                            "path": "ca",
                            "optional": True,
                        }
                    }
                ]
            },
        },
    ]
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in "mt"]
    await cluster.client.create(a_pod("p", ["sh", "-c", "hexdump -C /m/bin; cat /t/ca; ls /t"], volumes, mounts))
    volumes[1]["projected"]["sources"][0]["clusterTrustBundle"]["optional"] = False
    await cluster.client.create(a_pod("q", ["true"], volumes, mounts))
    await cluster.sleep(1)
    dump = "00000000  de ca 00 41                                       |...A|\n00000004\n"
    assert await log_of(cluster, "p") == f"{dump}ca\n"
    text = "combination of signerName and labelSelector matched zero ClusterTrustBundles"
    events = await cluster.events("q")
    assert ("Warning", "FailedMount", f'MountVolume.SetUp failed for volume "t" : {text}') in events


@virtual(nodes=1)
async def test_hosts_resolver_and_cgroup_files(cluster: VirtualCluster) -> None:
    script = "grep -v ^fe00 /etc/hosts; cat /etc/resolv.conf; cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/memory.max"
    limits = {"resources": {"limits": {"cpu": "250m", "memory": "64Mi"}}}
    await cluster.client.create(
        a_pod(
            "p",
            ["sh", "-c", script],
            [],
            [],
            container=limits,
            hostAliases=[{"ip": "1.2.3.4", "hostnames": ["a", "b"]}],
        )
    )
    own = {"nameservers": ["1.1.1.1"], "searches": ["example.com"], "options": [{"name": "ndots", "value": "2"}]}
    await cluster.client.create(a_pod("own", ["cat", "/etc/resolv.conf"], [], [], dnsPolicy="None", dnsConfig=own))
    volume = {"name": "h", "hostPath": {"path": "/etc/hosts", "type": "File"}}
    await cluster.client.create(
        a_pod(
            "host",
            ["sh", "-c", "head -1 /etc/hosts; cat /h"],
            [volume],
            [{"name": "h", "mountPath": "/h"}],
            hostNetwork=True,
        )
    )
    await cluster.sleep(1)
    address = (await cluster.client.get(PODS, "p", "default"))["status"]["podIP"]
    local = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
    assert await log_of(cluster, "p") == (
        f"# Kubernetes-managed hosts file.\n{local}{address}\tp\n\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n"
        "search default.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n"
        "25000 100000\n67108864\n"
    )
    assert await log_of(cluster, "own") == "search example.com\nnameserver 1.1.1.1\noptions ndots:2\n"
    assert await log_of(cluster, "host") == f"# Kubernetes-managed hosts file (host network).\n{local}"


@virtual(nodes=1)
async def test_privileges_and_sysctls(cluster: VirtualCluster) -> None:
    script = "sysctl kernel.shm_rmid_forced; sysctl -n no.such; ip link add dummy0 type dummy"
    security = {"sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}]}
    await cluster.client.create(a_pod("p", ["sh", "-c", script], [], [], securityContext=security))
    for name, allowed in (("up", True), ("not", False)):
        own = {"securityContext": {"runAsUser": 1000, "allowPrivilegeEscalation": allowed}}
        pod = a_pod(name, ["x"], [], [], container=own)
        pod["spec"]["containers"][0]["image"] = "registry.k8s.io/e2e-test-images/nonewprivs:1.3"
        del pod["spec"]["containers"][0]["command"]
        await cluster.client.create(pod)
    await cluster.sleep(1)
    assert await log_of(cluster, "p") == (
        "kernel.shm_rmid_forced = 1\nsysctl: error: '/proc/sys/no/such' No such file or directory\n"
        "ip: RTNETLINK answers: Operation not permitted\n"
    )
    assert (await log_of(cluster, "up"), await log_of(cluster, "not")) == (
        "Effective uid: 0\n",
        "Effective uid: 1000\n",
    )


@virtual(nodes=1)
async def test_probes_of_simulated_servers(cluster: VirtualCluster) -> None:
    for name, args, probe in (
        ("dying", ["liveness"], {"httpGet": {"path": "/healthz", "port": 8080}}),
        ("elsewhere", ["netexec"], {"httpGet": {"path": "/healthz", "port": 99}}),
        ("well", ["netexec"], {"httpGet": {"path": "/healthz", "port": 8080}}),
        ("page", ["test-webserver"], {"httpGet": {"path": "/", "port": 80}}),
        ("file", ["test-webserver"], {"httpGet": {"path": "/localhost.crt", "port": 80}}),
        ("grpc", ["grpc-health-checking"], {"grpc": {"port": 5000}}),
        ("wrong", ["grpc-health-checking"], {"grpc": {"port": 2333}}),
    ):
        liveness = {**probe, "periodSeconds": 5, "failureThreshold": 1}
        pod = a_pod(name, ["agnhost", *args], [], [], container={"livenessProbe": liveness}, restartPolicy="Always")
        await cluster.client.create(pod)
    await cluster.sleep(18)
    counts = {}
    for name in ("dying", "elsewhere", "well", "page", "file", "grpc", "wrong"):
        status = (await cluster.client.get(PODS, name, "default"))["status"]["containerStatuses"][0]
        counts[name] = status["restartCount"] > 0
    assert counts == {
        "dying": True,
        "elsewhere": True,
        "wrong": True,
        **dict.fromkeys(("well", "page", "file", "grpc"), False),
    }
    text = "Liveness probe failed: HTTP probe failed with statuscode: 500"
    assert ("Warning", "Unhealthy", text) in await cluster.events("dying")
