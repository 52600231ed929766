"""The lessons: each with a short text, a task, a check of the cluster, and a quiz."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from setpoint.cli.teaching import checks
from setpoint.cli.teaching.checks import ClusterView, Verdict


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
    checks.anatomy,
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
    checks.loop,
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
    checks.drift,
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
    checks.rollouts,
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
    checks.failure,
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
    checks.operators,
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
