"""What the views of the page show as text, and what the commands with `--at` print of the same moment."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from browser import GuardedPage
from command_line import typed_offline

from setpoint.meta.objects import ObjView
from setpoint.view.loop import Related, look

_UNTIL_SHOWN = """
async ([address, expected, seconds]) => {
  const text = (of) => of?.textContent.trim() ?? null;
  const all = (selector, of = document) => [...of.querySelectorAll(selector)];
  const cells = (selector) => all(selector).map((row) => all("[role=gridcell]", row));
  const sorted = (rows) => rows.sort((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1));
  const read = {
    banner: () => /revision ([\\d ]+)/.exec(text(document.querySelector(".banner.past")) ?? "")?.[1].replaceAll(" ", ""),
    // The page has a column more than the command line after the name: the loop.
    list: () => sorted(cells(".data-rows [role=row]").map((row) => row.map(text).filter((_, at) => at !== 0 && at !== 2))),
    yaml: () => all(".yaml-lines .yaml-line").map((line) => {
      const copy = line.cloneNode(true);
      all(".yaml-number-column, .yaml-owner, .visually-hidden", copy).forEach((each) => each.remove());
      return copy.textContent;
    }).join("\\n"),
    loop: () => {
      const rows = all(".loop-panel .loop-row").map((row) => {
        const facts = all("li", row);
        const texts = facts.length ? facts.map(text) : [text(row.querySelector("dd"))];
        const name = text(row.querySelector("dt"));
        return [name, texts.join(name === "drift" ? "; " : ", ")];
      });
      return [text(document.querySelector(".loop-panel .phase > :last-child")), ...rows];
    },
    chain: () => sorted(cells(".chain-table tbody [role=row]").map(([name, phase, ...others]) => [
      Number(name.parentElement.getAttribute("aria-level")),
      text(name.querySelector(".chain-row-name > :last-child")),
      text(phase.querySelector(".phase > :last-child")),
      ...others.map(text),
    ])),
    events: () => sorted(all(".events-view .event").map((event) => [
      text(event.querySelector("time")),
      text(event.querySelector(".visually-hidden")),
      ...["strong", ".event-about", ".event-message"].map((part) => text(event.querySelector(part))),
      text(event.querySelector(".badge")) ?? "",
    ])),
    fleet: () => [
      text(document.querySelector(".fleet-total")),
      ...all(".fleet-table tbody tr").map((row) => all("th, td", row).map(text)),
    ],
  };
  location.hash = address;
  const deadline = performance.now() + 1000 * seconds;
  for (;;) {
    const shown = Object.fromEntries(Object.keys(expected).map((name) => [name, read[name]()]));
    if (JSON.stringify(shown) === JSON.stringify(expected)) return null;
    if (performance.now() > deadline) return shown;
    await new Promise((done) => setTimeout(done, 10));
  }
}
"""
"""Goes to an address, and returns null as soon as the page shows what is expected there, else what it shows in the
end."""
OTHER_LISTS = {
    "deployments.apps": "apps.deployments",
    "replicasets.apps": "apps.replicasets",
    "configmaps": "configmaps",
    "nodes": "nodes",
    "endpointslices.discovery.k8s.io": "discovery.k8s.io.endpointslices",
}
"""Kinds, and the addresses of their lists in the page."""
_POD_STATES = ("ready", "starting", "pending", "failing", "finishing", "succeeded", "terminating")
"""The columns of the fleet's table."""
Views = list[tuple[str, dict[str, Any]]]


def differences(page: GuardedPage, views: Views, seconds: float = 5.0) -> Iterator[tuple[str, Any, Any]]:
    """Go to the addresses one after the other. Yield each whose texts are not as expected soon, with both texts."""
    for address, expected in views:
        if (shown := page.evaluate(_UNTIL_SHOWN, [address, expected, seconds])) is not None:
            for name, text in expected.items():
                if shown[name] != text:
                    yield f"{name} of {address}", shown[name], text


class PastCommands:
    """Commands about the past of a cluster whose kubeconfig is given."""

    def __init__(self, kubeconfig: Path, home: Path) -> None:
        self._kubeconfig = kubeconfig
        self._home = home

    def printed(self, line: str) -> str:
        found = typed_offline(line, self._home, KUBECONFIG=str(self._kubeconfig))
        assert found.code == 0, f"setpoint {line}: {found.err}"
        return found.out

    def views(self, revision: int, at: datetime, other: str) -> Views:
        """The views of a moment with the chain of Deployment default/web, and what the commands print of it. `other` is
        one of `OTHER_LISTS`."""
        where = f"-n default --at {revision}"
        tail = f"ns=default&at={revision}"
        banner = {"banner": str(revision)}
        web = "apps.deployments/default/web"
        everything = json.loads(self.printed(f"get deployments,replicasets,pods,nodes -A -o json --at {revision}"))
        objects: list[ObjView] = everything["items"]
        pods = _by_column(self.printed(f"get pods -A -o wide --at {revision}"))
        nodes = _by_column(self.printed(f"get nodes --at {revision}"))
        yaml = self.printed(f"get deployment web -o yaml {where}").rstrip("\n")
        return [
            (f"#/objects/pods?{tail}", {"list": _table(self.printed(f"get pods {where}")), **banner}),
            (
                f"#/objects/{OTHER_LISTS[other]}?{tail}",
                {"list": _table(self.printed(f"get {other} {where}")), **banner},
            ),
            (f"#/objects/{web}?tab=yaml&{tail}", {"yaml": yaml, **banner}),
            (
                f"#/chain/{web}?root={web.replace('/', '%2F')}&form=table&tab=loop&{tail}",
                {
                    "chain": _chain(objects, at),
                    "loop": _loop(self.printed(f"status deployment/web {where}")),
                    **banner,
                },
            ),
            (f"#/events?{tail}", {"events": _events(self.printed(f"get events -o wide {where}")), **banner}),
            (f"#/fleet?form=table&{tail}", {"fleet": _fleet(pods, nodes), **banner}),
        ]


def _sorted(rows: list[list[Any]]) -> list[list[Any]]:
    """The rows in the order of their JSON, as the page's side sorts them."""
    return sorted(rows, key=lambda row: json.dumps(row, separators=(",", ":"), ensure_ascii=False))


def _table(text: str) -> list[list[Any]]:
    """The rows that `setpoint get` has printed."""
    return _sorted([re.split(r"\s{2,}", line.strip()) for line in text.splitlines()[1:]])


def _by_column(text: str) -> list[dict[str, str]]:
    """The rows of a printed table whose cells may be empty or contain blanks."""
    if not text:
        return []
    header, *lines = text.splitlines()
    columns = {match[0]: match.start() for match in re.finditer(r"\S+(?: \S+)*", header)}
    ends = [*[*columns.values()][1:], None]
    return [
        {name: line[at:end].strip() for (name, at), end in zip(columns.items(), ends, strict=True)} for line in lines
    ]


def _events(text: str) -> list[list[Any]]:
    """The events that `setpoint get events -o wide` has printed."""
    rows = []
    for row in _by_column(text):
        count = "" if row["COUNT"] == "1" else f"{row['COUNT']} times"
        rows.append([*(row[name] for name in ("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")), count])
    return _sorted(rows)


def _loop(text: str) -> list[Any]:
    """The loop that `setpoint status TYPE/NAME` has printed."""
    first, *lines = text.splitlines()
    rows = [re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in lines]
    none = {"drift": {"none": "none: it is as desired"}}
    return [first.rpartition(" ")[2].rstrip("."), *([name, none.get(name, {}).get(text, text)] for name, text in rows)]


def _chain(objects: list[ObjView], at: datetime) -> list[list[Any]]:
    """The rows of the tree from Deployment default/web down, and the nodes of its Pods."""
    rows, nodes = [], set[str]()

    def add(obj: ObjView, level: int) -> None:
        kind = obj["kind"]
        group = obj["apiVersion"].rpartition("/")[0]
        loop = look(group, kind, obj, Related(at))
        desired, observed = ", ".join(loop.desired), loop.note or ", ".join(loop.observed)
        rows.append([level, f"{kind} {obj['metadata']['name']}", str(loop.phase), desired, observed, "", ""])
        if kind == "Pod" and (node := obj["spec"].get("nodeName")):
            nodes.add(node)
        for each in objects if kind != "Node" else ():
            if any(owner["uid"] == obj["metadata"]["uid"] for owner in each["metadata"].get("ownerReferences") or ()):
                add(each, level + 1)

    for each in objects:
        if each["kind"] == "Deployment" and each["metadata"]["name"] == "web":
            add(each, 1)
    for each in objects:
        if each["kind"] == "Node" and each["metadata"]["name"] in nodes:
            add(each, 1)
    return _sorted(rows)


def _fleet(pods: list[dict[str, str]], nodes: list[dict[str, str]]) -> list[Any]:
    """The rows of the fleet's table, from those of `setpoint get pods -A -o wide` and `setpoint get nodes`."""

    def counts(found: list[dict[str, str]]) -> list[str]:
        states = Counter(_state(each) for each in found)
        return [str(len(found)), *(str(states[state]) for state in _POD_STATES)]

    ready = sum(each["STATUS"] == "Ready" for each in nodes)
    bound = [each for each in pods if each["NODE"] != "<none>"]
    rows: list[Any] = [
        f"{len(pods)} {'Pod' if len(pods) == 1 else 'Pods'} on {len(nodes)} nodes",
        ["All nodes", f"{ready} / {len(nodes)}", *counts(bound)],
    ]
    for node in nodes:
        state = {"Ready": "ready", "NotReady": "not ready"}[node["STATUS"]]
        rows.append([node["NAME"], state, *counts([each for each in bound if each["NODE"] == node["NAME"]])])
    return rows


def _state(pod: dict[str, str]) -> str:
    """The state of a Pod in the fleet, from its row."""
    status = pod["STATUS"]
    if status == "Running":
        ready, _, containers = pod["READY"].partition("/")
        return "ready" if ready == containers else "starting"
    # The containers of a Deployment complete only when their Pod is being deleted.
    terminating = {"Terminating": "terminating", "Completed": "terminating"}
    return {"ContainerCreating": "starting", "Pending": "pending", **terminating}[status]
