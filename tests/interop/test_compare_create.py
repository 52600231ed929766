"""Objects created from arguments: the same by kubectl and by `setpoint`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from comparing import Both

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def files(both: Both) -> None:
    folder = both.home / "files"
    folder.mkdir()
    (folder / "bytes").write_bytes(b"\xff\x00")
    (folder / "text").write_text("one\ntwo\n")
    (folder / "below").mkdir()
    (both.home / "x.env").write_text("A=b\n  # comment\n\nGIVEN\nC=d=e \n")
    (both.home / "bad.env").write_text("A b=c\n")
    for name in ("tls", "other"):
        _certificate(both.home, name)


def _certificate(home: Path, name: str) -> None:
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.crt -days 9 -subj /CN=x"
    subprocess.run(command.split(), cwd=home, check=True, capture_output=True)


def test_workloads(both: Both) -> None:
    both.smooth.append((r"name: a-b-[a-z0-9]{5}\b", "name: a-b-XXXXX"))
    both.writes("""
        create deployment web --image=nginx@sha256:12 --image=busybox:1 --port=80 --dry-run=client -o json
        create deployment web --image=nginx --dry-run=client -o yaml
        create deployment web --image=reg/a_b:1 --dry-run=client -o yaml
        create deployment web --image=nginx --dry-run=client -o name
        create deployment web --image=nginx --dry-run=client
        create deployment web --image=nginx --dry-run=server
        create deployment web --image=nginx --save-config --dry-run=client -o yaml -- sleep 10
        create deployment web --image=nginx --replicas=2 --port=80
        create deploy other --image=nginx -o yaml
        create deploy another --image=nginx -o json --show-managed-fields
        ! create deployment web --image=nginx
        ! create deployment Web_ --image=nginx
        ! create deployment web --image=nginx --image=b -- a
        ! create deployment --image=nginx
        ! create deployment a b --image=nginx
        ! create deployment a
        ! create deployment a --image=nginx --replicas=99999999999
        ! create deployment a --image=nginx --dry-run=maybe
        ! create deployment a --image=nginx --validate=maybe
        ! create deployment a --image=nginx -o nothing
        create job j --image=busybox --dry-run=client -o json -- date
        create job j --image=busybox -- date
        create cronjob tick --image=busybox --schedule='* * * * *' --restart=Never --dry-run=client -o yaml -- date
        create cj tick --image=busybox --schedule='* * * * *'
        create job by-hand --from=cronjob/tick --dry-run=client -o yaml
        create job by-hand --from=cronjob/tick -o json
        ! create job k --from=cronjob/nothing
        ! create job k --from=deployment/web
        ! create job k --from=cronjob/tick -- date
        ! create job k
        ! create cronjob k --image=b
    """)


def test_services(both: Both) -> None:
    both.smooth.append((r"\b10\.\d+\.\d+\.\d+\b", "ADDRESS"))
    both.smooth.append((r"nodePort: 3\d{4}", "nodePort: N"))
    both.writes("""
        create service clusterip s --tcp=80:web --tcp=81 --dry-run=client -o json
        create service clusterip s --clusterip=None --dry-run=client -o yaml
        create svc nodeport s --tcp=80 --node-port=30123 --dry-run=client -o yaml
        create svc loadbalancer s --tcp=80:8080 --dry-run=client -o yaml
        create svc externalname s --external-name=a.b --dry-run=client -o yaml
        create service clusterip s --tcp=80:8080
        create service clusterip t --tcp=80:8080 -o yaml
        create service nodeport np --tcp=80
        create service externalname en --external-name=a.example
        ! create service clusterip s --tcp=80
        ! create service clusterip u
        ! create service clusterip u --tcp=x
        ! create service clusterip u --tcp=80:Web_
        ! create service clusterip u --tcp=80:99999
        ! create service clusterip u --tcp=99999
        ! create service externalname u --external-name=a_b
        ! create service externalname u
    """)


def test_configuration(both: Both) -> None:
    both.writes(
        """
        create configmap c --from-literal=b=1 --from-literal=a=2 --append-hash --save-config --dry-run=client -o json
        create cm c --dry-run=client -o yaml
        create cm c --from-file=files --append-hash --dry-run=client -o yaml
        create cm c --from-file=key=files/text --dry-run=client -o yaml
        create cm c --from-env-file=x.env --dry-run=client -o yaml
        create cm c --from-literal=a=b
        create cm d --from-literal=a=b -o yaml
        ! create cm c --from-literal=a
        ! create cm c --from-literal=a=b --from-literal=a=c
        ! create cm c --from-literal=a/b=c
        ! create cm c --from-file=key=files
        ! create cm c --from-file=nothing
        ! create cm c --from-file==files/text
        ! create cm c --from-file=a=b=c
        ! create cm c --from-env-file=bad.env
        ! create cm c --from-env-file=files
        ! create cm c --from-env-file=x.env --from-literal=a=b
        create secret generic s --from-literal=a=b --append-hash --dry-run=client -o json
        create secret generic s --from-file=files --type=example.com/t --append-hash --dry-run=client -o yaml
        create secret generic s --from-env-file=x.env --dry-run=client -o yaml
        create secret generic s --from-literal=a=b
        ! create secret generic s --from-literal=a=b
        ! create secret generic t --from-file=files/text --from-literal=text=b
        create secret docker-registry r --docker-username=a --docker-password=< --docker-email=e --dry-run=client -oyaml
        create secret docker-registry r --docker-server=c --docker-username=a --docker-password=b --append-hash
        create secret docker-registry r --from-file=.dockerconfigjson=files/text --dry-run=client -o yaml
        ! create secret docker-registry r --docker-username=a
        create secret tls t --cert=tls.crt --key=tls.key --append-hash --dry-run=client -o yaml
        create secret tls t --cert=tls.crt --key=tls.key
        ! create secret tls u --cert=tls.crt --key=other.key
        ! create secret tls u --cert=tls.key --key=tls.crt
        ! create secret tls u --cert=tls.crt --key=tls.crt
        ! create secret tls u --cert=x.env --key=tls.key
        ! create secret tls u --cert=nothing --key=tls.key
        ! create secret tls u
    """,
        GIVEN="by the environment",
    )


def test_access(both: Both) -> None:
    both.writes("""
        create role r --verb=get,list,get --resource=pods,deployments.apps,deploy,pods/log --dry-run=client -o yaml
        create role r --verb=get --resource=pods --resource-name=a --resource-name=b -o yaml
        create role any --verb=* --resource=* --dry-run=client -o yaml
        create role odd --verb=dance --resource=pods --dry-run=client -o json
        ! create role r --verb=get
        ! create role r --resource=pods
        ! create role r --verb=get --resource=nothings
        ! create role r --verb=get --resource=.apps
        ! create role r --verb=bind --resource=pods
        create clusterrole of-{ns} --verb=get,post --non-resource-url=/metrics,/logs/* --dry-run=client -o json
        create clusterrole of-{ns} --verb=impersonate --resource=users --dry-run=client -o yaml
        create clusterrole of-{ns} --aggregation-rule=a=b,c=d --dry-run=client -o yaml
        create clusterrole of-{ns} --aggregation-rule=a=b,c=d
        ! create clusterrole x --aggregation-rule=a=b --verb=get
        ! create clusterrole x --verb=get
        ! create clusterrole x --verb=list --non-resource-url=/x
        ! create clusterrole x --verb=get --non-resource-url=x
        ! create clusterrole x --verb=get --non-resource-url=/x*y
        create rolebinding b --role=a --user=u --user=v --group=g --serviceaccount=a:b --dry-run=client -o json
        create rolebinding b --clusterrole=view --user=u
        ! create rolebinding b --role=a --clusterrole=b
        ! create rolebinding b --clusterrole=a --serviceaccount=x
        create clusterrolebinding of-{ns} --clusterrole=view --group=g --dry-run=client -o yaml
        create clusterrolebinding of-{ns} --clusterrole=view --group=g
        ! create clusterrolebinding x --group=g
        create serviceaccount bot --dry-run=client -o yaml
        create sa bot
        create token bot -o jsonpath={.spec.audiences}
        ! create token bot --duration=-1s
        ! create token bot --duration=1ms
        ! create token bot --bound-object-name=x
        ! create token bot --bound-object-kind=x
        ! create token bot --bound-object-kind=Secret
        ! create token nobody
    """)


def test_policy(both: Both) -> None:
    both.writes("""
        create namespace n --dry-run=client -o yaml
        create ns of-{ns}
        ! create ns of-{ns}
        ! create ns
        create quota q --hard=cpu=1,memory=0.5,pods=1Gi --scopes=BestEffort --dry-run=client -o json
        create quota q --hard=cpu=1500m -o yaml
        ! create quota p --hard=cpu
        ! create quota p --hard=cpu=x
        ! create quota p --hard=cpu=1 --scopes=a,,
        create pdb p --selector='a=b,c in (d,e),f,!g' --min-available=1 --dry-run=client -o json
        create pdb p --selector=a=b --max-unavailable=50% --dry-run=client -o yaml
        create poddisruptionbudget p --selector=a=b --max-unavailable=1
        ! create pdb q --selector=a=b --max-unavailable=x
        ! create pdb q --selector=a=b
        ! create pdb q --selector=a>1 --min-available=1
        ! create pdb q --selector=a!=1 --min-available=1
        ! create pdb q --min-available=1
        create ingress i --rule=foo.com/bar*=svc:80,tls=x --rule=foo.com/=svc:http --dry-run=client -o yaml
        create ing i --rule=/x=y:1,tls --rule=b/x=y:1,tls=x --class=k --default-backend=a:80 --dry-run=client -o json
        create ing i --default-backend=a:80 --annotation=a=b=c --annotation=0=b
        ! create ingress j --rule=foo
        ! create ingress j --annotation=x --default-backend=a:80
        ! create ingress j --default-backend=a
        ! create ingress j
        create priorityclass of-{ns} --value=3 --global-default=false --description=x --dry-run=client -o json
        create pc of-{ns} --value=-5 --preemption-policy=Never -o yaml
        ! create pc of-{ns} --value=99999999999
    """)
