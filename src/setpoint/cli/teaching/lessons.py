"""The lessons: each with a short text, a task, a check of the cluster, and a quiz."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from setpoint.client.interface import Reader, ResourceRef
from setpoint.client.resources import builtin
from setpoint.meta.conditions import condition_of, is_true
from setpoint.meta.errors import NotFound
from setpoint.meta.objects import Obj

PODS, DEPLOYMENTS, SETS = builtin("pods"), builtin("deployments", "apps"), builtin("replicasets", "apps")
_REVISION = "deployment.kubernetes.io/revision"


class Verdict(NamedTuple):
    ok: bool
    text: str


class ClusterView(NamedTuple):
    """The cluster as seen from one namespace."""

    reader: Reader
    namespace: str

    async def get(self, resource: ResourceRef, name: str, *, cluster_scoped: bool = False) -> Obj | None:
        try:
            return await self.reader.get(resource, name, "" if cluster_scoped else self.namespace)
        except NotFound:
            return None

    async def list(self, resource: ResourceRef) -> list[Obj]:
        return (await self.reader.list(resource, self.namespace)).items


def _labels(obj: Obj) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}


async def anatomy(view: ClusterView) -> list[Verdict]:
    pod = await view.get(PODS, "first")
    if pod is None:
        return [Verdict(False, f"there is no Pod called first in the namespace {view.namespace}")]
    return [
        Verdict(is_true(pod, "Ready"), "the Pod first is ready"),
        Verdict(_labels(pod).get("lesson") == "one", "it has the label lesson=one"),
    ]


async def loop(view: ClusterView) -> list[Verdict]:
    deployment = await view.get(DEPLOYMENTS, "loop")
    if deployment is None:
        return [Verdict(False, f"there is no Deployment called loop in the namespace {view.namespace}")]
    ready = (deployment.get("status") or {}).get("readyReplicas", 0)
    return [
        Verdict(deployment["spec"].get("replicas") == 5, "the Deployment loop has 5 desired replicas"),
        Verdict(ready == 5, f"5 of them are ready (now: {ready})"),
    ]


async def drift(view: ClusterView) -> list[Verdict]:
    aside = [pod for pod in await view.list(PODS) if _labels(pod).get("state") == "aside"]
    owned = [pod for pod in await view.list(PODS) if _labels(pod).get("app") == "loop" and is_true(pod, "Ready")]
    return [
        Verdict(bool(aside), "a Pod has the label state=aside"),
        Verdict(bool(aside) and all("app" not in _labels(pod) for pod in aside), "it no longer has the label app"),
        Verdict(
            bool(aside) and not any(pod["metadata"].get("ownerReferences") for pod in aside), "it has no owner any more"
        ),
        Verdict(len(owned) == 5, f"5 ready Pods belong to the Deployment (now: {len(owned)})"),
    ]


async def rollouts(view: ClusterView) -> list[Verdict]:
    deployment = await view.get(DEPLOYMENTS, "loop")
    if deployment is None:
        return [Verdict(False, f"there is no Deployment called loop in the namespace {view.namespace}")]
    images = [container["image"] for container in deployment["spec"]["template"]["spec"]["containers"]]
    revision = int((deployment["metadata"].get("annotations") or {}).get(_REVISION, "0"))
    status = deployment.get("status") or {}
    done = status.get("updatedReplicas") == deployment["spec"].get("replicas") == status.get("readyReplicas")
    return [
        Verdict(images == ["nginx:1.27"], f"its image is nginx:1.27 (now: {', '.join(images)})"),
        Verdict(revision >= 4, f"it has been through at least four revisions (now: {revision})"),
        Verdict(done, "the rollout is complete"),
    ]


async def failure(view: ClusterView) -> list[Verdict]:
    crash, greedy = await view.get(PODS, "crash"), await view.get(PODS, "greedy")
    statuses = ((crash or {}).get("status") or {}).get("containerStatuses") or ()
    restarts = sum(one.get("restartCount", 0) for one in statuses)
    scheduled = condition_of(greedy or {}, "PodScheduled") or {}
    waits = scheduled.get("reason") == "Unschedulable"
    return [
        Verdict(crash is not None, "there is a Pod called crash"),
        Verdict(restarts > 0, f"it has been restarted (so far: {restarts} times)"),
        Verdict(greedy is not None, "there is a Pod called greedy"),
        Verdict(waits, "it cannot be scheduled" + (f": {scheduled.get('message', '')}" if waits else "")),
    ]


async def operators(view: ClusterView) -> list[Verdict]:
    definitions = builtin("customresourcedefinitions", "apiextensions.k8s.io")
    definition = await view.get(definitions, "teapots.example.com", cluster_scoped=True)
    if definition is None:
        return [Verdict(False, "there is no CustomResourceDefinition teapots.example.com")]
    established = is_true(definition, "Established")
    verdicts = [Verdict(established, "the API server serves Teapots")]
    if established:
        teapot = await view.get(("example.com", "v1", "teapots"), "brown")
        cups = ((teapot or {}).get("spec") or {}).get("cups")
        verdicts.append(Verdict(teapot is not None, "there is a Teapot called brown"))
        verdicts.append(Verdict(cups == 4, "it has four cups"))
    return verdicts


class Question(NamedTuple):
    text: str
    answers: tuple[str, ...]
    right: int
    because: str


class Lesson(NamedTuple):
    name: str
    title: str
    text: str
    """Paragraphs separated by empty lines. A line that begins with two spaces is shown as it is."""
    task: str
    check: Callable[[ClusterView], Awaitable[list[Verdict]]]
    quiz: tuple[Question, ...]


ANATOMY = Lesson(
    "anatomy",
    "What a manifest says",
    """
Every object has the same four parts. `apiVersion` and `kind` say what it is. `metadata` says which one: its name, its
namespace, its labels. `spec` is the desired state. The fifth part, `status`, is not yours: the cluster reports the
observed state there.

  apiVersion: v1
  kind: Pod
  metadata:
    name: first
    labels: {app: first}
  spec:
    containers:
    - name: main
      image: nginx

You write little, and much is filled in: `setpoint get pod first -o yaml` shows the defaults, a uid, a resourceVersion,
and the status. `setpoint explain pod.spec` lists the fields of the spec.
""",
    "Write the manifest above into a file, `setpoint apply -f` it, and see the Pod run. Then give it the label "
    "lesson=one.",
    anatomy,
    (
        Question(
            "Who writes the status of a Pod?",
            ("You, in the manifest", "The node that runs it", "The scheduler"),
            1,
            "Users write spec, the cluster writes status, through different doors: neither overwrites the other.",
        ),
        Question(
            "You apply the same file twice. What happens the second time?",
            ("An error: it exists", "A second Pod is made", "Nothing: it is as it should be"),
            2,
            "apply says how things should be; `create` says that something should be made, and fails the second time.",
        ),
    ),
)

LOOP = Lesson(
    "loop",
    "The loop",
    """
A control plane is a handful of loops. Each watches some objects, compares the observed with the desired state, makes
the smallest change that brings them closer, and reports the status. Then it starts again, forever.

A Deployment describes Pods. Its loop creates a ReplicaSet, whose loop creates Pods, for which the scheduler's loop
finds nodes, whose loops start containers. None of them calls another. Each only watches for changes.

`setpoint get deploy,rs,pods --show-labels` shows the chain, and `setpoint get events --sort-by=.metadata.name` who did
what.
""",
    "Make a Deployment called loop with the image nginx and three replicas. Then scale it to five.",
    loop,
    (
        Question(
            "Which component does the ReplicaSet controller tell that it has made a Pod?",
            ("The scheduler", "The node", "None: it writes the Pod to the API server"),
            2,
            "All components use the API server only. Those that need Pods watch them there.",
        ),
        Question(
            "metadata.generation is 4 and status.observedGeneration is 3. What does that mean?",
            ("The loop has not yet seen your last change", "The object is broken", "There are four replicas"),
            0,
            "generation counts changes of the spec; observedGeneration is the one that the loop has acted on.",
        ),
    ),
)

DRIFT = Lesson(
    "drift",
    "Drift",
    """
Things drift. A Pod is deleted, a label is changed by hand, a machine dies. A loop need not know what happened. It sees
two where there should be three.

Ownership is by label and by owner. A ReplicaSet counts the Pods that match its selector. Take the label away from one
and it is no longer counted: a new one is made, and the old one runs on, for you to look at. That is how one takes a
sick Pod out of service without losing it.
""",
    "Use the Deployment of the last lesson. Take one of its Pods out: `setpoint label pod NAME app-`, and give it "
    "the label state=aside. See that there are five that belong to it again.",
    drift,
    (
        Question(
            "The controllers are down while a user deletes ten Pods. What happens when they run again?",
            ("Nothing: they missed it", "Ten are made: that many are missing", "All Pods are made anew"),
            1,
            "What counts is the state, not the events. That is what level-triggered means.",
        ),
        Question(
            "Why does the Pod without the label not disappear?",
            ("It does, after five minutes", "Nobody owns it now, so nobody removes it", "Pods cannot be deleted"),
            1,
            "A ReplicaSet lets go of Pods that its selector does not match: their owner reference is taken away.",
        ),
    ),
)

ROLLOUT = Lesson(
    "rollouts",
    "Rollouts",
    """
Change what a Deployment's Pods look like, and it does not change the Pods: it makes a new ReplicaSet, and lets it grow
while the old one shrinks, never more than maxSurge above and never more than maxUnavailable below the desired number.

  setpoint set image deployment/loop nginx=nginx:1.27
  setpoint rollout status deployment/loop
  setpoint rollout history deployment/loop
  setpoint rollout undo deployment/loop

The old ReplicaSets stay, empty: they are the history. Undo writes the old template into the spec again.
""",
    "Set the image of the Deployment loop to nginx:1.27, and wait for it; then to nginx:1.28; and then undo that, so "
    "that it is nginx:1.27 again. That is the fourth revision.",
    rollouts,
    (
        Question(
            "maxSurge 1, maxUnavailable 0, five replicas. How many Pods are ready at least during the rollout?",
            ("4", "5", "6"),
            1,
            "None may be missing: a new one must be ready before an old one goes.",
        ),
        Question(
            "What does `rollout undo` do?",
            ("It stops the new Pods by force", "It writes the old template into the spec", "It restores a backup"),
            1,
            "There is only one way to change a cluster: to change the desired state.",
        ),
    ),
)

FAILURE = Lesson(
    "failure",
    "Failure",
    """
Containers crash, images do not exist, nodes fail, Pods cannot be scheduled. The Pod is never lost: its status gives the
reason, and the loop retries with growing delays.

  setpoint run crash --image=busybox -- sh -c 'exit 1'      CrashLoopBackOff
  setpoint describe pod crash                               what happened, and when

On simulated nodes you can make failures: `setpoint nodes partition node-2` cuts a node off. After a while it is
NotReady; after five minutes more its Pods are made anew elsewhere, unless they say another tolerationSeconds. A cluster
that was started with `setpoint up --pace fast` takes half a minute for it.
""",
    "Make a Pod called crash that fails, as above, and see it restart at least once. Make another, called greedy, that "
    "asks for 1000 CPUs, and see why it waits.",
    failure,
    (
        Question(
            "A Pod is Pending. Where do you look first?",
            ("In the log of the container", "In its events and conditions: describe", "On the node"),
            1,
            "There is no container yet. The scheduler and the node say in events and conditions what they wait for.",
        ),
        Question(
            "How long does a container that crashes again and again wait in the end?",
            ("10 seconds", "5 minutes", "It is not tried any more"),
            1,
            "10 s, 20 s, 40 s, and so on, up to 5 minutes; ten minutes without a crash start it anew.",
        ),
    ),
)

OPERATORS = Lesson(
    "operators",
    "Operators",
    """
The API is not closed. A CustomResourceDefinition adds a kind of your own, with a schema: then the API server stores,
checks, lists and watches it as it does Pods. An operator is one more loop, which reconciles that kind.

  apiVersion: apiextensions.k8s.io/v1
  kind: CustomResourceDefinition
  metadata: {name: teapots.example.com}
  spec:
    group: example.com
    scope: Namespaced
    names: {plural: teapots, singular: teapot, kind: Teapot}
    versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              required: [cups]
              properties: {cups: {type: integer, minimum: 1, maximum: 12}}
""",
    "Apply the definition above, then make a Teapot called brown with four cups. Try one with a hundred cups, too.",
    operators,
    (
        Question(
            "There is a Teapot, and no operator. What happens to it?",
            ("It is refused", "It is stored, and nothing acts on it", "The scheduler makes tea"),
            1,
            "The API server only stores the desired state. Without a loop, nothing acts on it.",
        ),
        Question(
            "Where should an operator keep what it must remember after a crash?",
            ("In memory", "In the objects themselves, or nowhere: it looks at the world again", "In a file"),
            1,
            "Whatever a loop needs it can see. So it may be restarted at any time.",
        ),
    ),
)

LESSONS = (ANATOMY, LOOP, DRIFT, ROLLOUT, FAILURE, OPERATORS)
