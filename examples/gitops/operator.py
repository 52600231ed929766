"""The loop: what a source says is applied, what drifts is put right, what leaves the source is deleted."""

from __future__ import annotations

from collections.abc import Iterable

from setpoint.meta.objects import Obj
from setpoint.sdk import (
    ApiError,
    Context,
    Controller,
    NotFound,
    Object,
    Operator,
    Result,
    generation_changed,
    seconds,
)

from .comparing import changed_fields
from .health import ailment
from .kind import Drift, Entry, Problem, Sync, SyncSpec, SyncStatus
from .reading import Manifest, read
from .source import SourceProblem, Sources

Ctx = Context[SyncSpec, SyncStatus]
Synced = Object[SyncSpec, SyncStatus]

NOT_HEALTHY_YET = 5.0
MOST_TOLD = 50
"""Problems, and drifted objects, in the status: it has to fit into an object."""
APPLIED_BY = "gitops.example.com/applied-by"
"""An annotation on everything that is applied."""
KEEP = "gitops.example.com/prune"
"""An annotation, `"false"` on an object that stays when it leaves the source."""


def gitops_operator(sources: Sources) -> Operator:
    async def reconcile(ctx: Ctx, sync: Synced) -> Result | None:
        if sync.spec.suspend:
            ctx.condition("Synced", None, "Suspended")
            return None
        try:
            snapshot = await sources.fetch(sync.uid, sync.spec)
        except SourceProblem as problem:
            ctx.condition("Synced", False, "SourceProblem", str(problem))
            return Result(requeue_after=seconds(sync.spec.interval))
        manifests, problems = read(snapshot)
        return await Round(ctx, sync, snapshot.revision).run(manifests, problems)

    async def finalize(ctx: Ctx, sync: Synced) -> Result | None:
        if sync.spec.prune:
            await prune(ctx, sync, (sync.status or SyncStatus()).inventory)
        sources.forget(sync.uid)
        return None

    return Operator(
        "gitops",
        Controller(
            Sync,
            reconcile,
            when=generation_changed,
            finalizer="gitops.example.com/prune",
            finalize=finalize,
        ),
    )


class Round:
    """One look at everything."""

    def __init__(self, ctx: Ctx, sync: Synced, revision: str) -> None:
        self.ctx, self.sync, self.revision = ctx, sync, revision
        self.before = sync.status or SyncStatus()
        self.is_news = (revision, sync.generation) != (self.before.revision, self.before.observedGeneration)
        """Otherwise whatever has to be changed is drift."""
        self.ailing: list[str] = []

    async def run(self, manifests: list[Manifest], problems: list[Problem]) -> Result:
        ctx, spec = self.ctx, self.sync.spec
        placed = await self._placed(manifests, problems)
        left = without(self.before.inventory, placed)
        drift = [] if self.is_news else await self._drift(placed)
        # Noted before anything is changed: whatever happens, we know what there may be of ours, and what we undo.
        ctx.set_status(inventory=[*placed, *left], drift=drift or self.before.drift)
        await ctx.save_status()

        only_look = not (self.is_news or spec.undo)
        for entry, manifest in placed.items():
            try:
                applied = await self._apply(entry, manifest.obj, dry_run=only_look)
            except ApiError as error:
                if passes(error):
                    raise
                problems.append(Problem(manifest.file, f"{entry}: {error}"))
                continue
            if reason := ailment(applied):
                self.ailing.append(f"{entry}: {reason}")
        # Something that cannot be read may be what we would delete.
        if spec.prune and not problems:
            await prune(ctx, self.sync, left)
            left = []

        self._tell(problems, [*placed, *left], drift)
        interval = seconds(spec.interval)
        return Result(requeue_after=min(interval, NOT_HEALTHY_YET) if self.ailing else interval)

    async def _placed(self, manifests: Iterable[Manifest], problems: list[Problem]) -> dict[Entry, Manifest]:
        """Each manifest with its object's place in the cluster. A kind that the server does not know, perhaps because
        its definition is only now on its way, is a problem until it does."""
        found: dict[Entry, Manifest] = {}
        taken: dict[tuple[str, ...], str] = {}
        for manifest in manifests:
            obj = manifest.obj
            meta = obj["metadata"]
            try:
                resource = await self.ctx.client.resource((obj["apiVersion"], obj["kind"]))
            except NotFound as error:
                problems.append(Problem(manifest.file, str(error)))
                continue
            namespace = meta.get("namespace") or self.sync.spec.namespace or self.sync.namespace
            entry = Entry(obj["apiVersion"], obj["kind"], meta["name"], namespace if resource.namespaced else "")
            if entry.identity in taken:
                problems.append(Problem(manifest.file, f"{entry} is in {taken[entry.identity]} too"))
                continue
            taken[entry.identity] = manifest.file
            found[entry] = manifest
        return found

    async def _drift(self, placed: dict[Entry, Manifest]) -> list[Drift]:
        """What applying would change."""
        ctx, undo, known = self.ctx, self.sync.spec.undo, {each.object: each for each in self.before.drift}
        found: list[Drift] = []
        for entry, manifest in placed.items():
            there = await find(ctx, entry)
            try:
                fields = ["(deleted)"]
                if there is not None:
                    fields = changed_fields(there, await self._apply(entry, manifest.obj, dry_run=True))
            except ApiError as error:
                if passes(error):
                    raise
                continue  # applying will fail too, and be told
            if not fields or len(found) == MOST_TOLD:
                continue
            old = known.get(str(entry))
            if old is not None and old.fields == fields and not undo:
                found.append(old)  # nobody has put it right since
                continue
            found.append(Drift(str(entry), fields, ctx.clock.now()))
            ctx.event("DriftUndone" if undo else "Drifted", f"{entry}: {', '.join(fields)}", warning=True)
        return found

    async def _apply(self, entry: Entry, obj: Obj, *, dry_run: bool) -> Obj:
        meta = dict(obj["metadata"])
        meta["annotations"] = {**(meta.get("annotations") or {}), APPLIED_BY: name_of(self.sync)}
        if entry.namespace:
            meta["namespace"] = entry.namespace
        manager = f"sync/{name_of(self.sync)}"[:128]
        return await self.ctx.client.apply(
            {**obj, "metadata": meta}, field_manager=manager, force=True, dry_run=dry_run
        )

    def _tell(self, problems: list[Problem], inventory: list[Entry], drift: list[Drift]) -> None:
        ctx = self.ctx
        ctx.set_status(
            SyncStatus(
                revision=self.before.revision if problems else self.revision,
                inventory=inventory,
                problems=problems[:MOST_TOLD],
                drift=drift or self.before.drift,
                observedGeneration=self.sync.generation,
            )
        )
        if problems:
            told = "; ".join(f"{each.file}: {each.message}" for each in problems)
            ctx.condition("Synced", False, "Problems", told[:1000])
        elif drift and not self.sync.spec.undo:
            ctx.condition("Synced", False, "Drifted", f"{len(drift)} objects are not as they were applied")
        else:
            ctx.condition("Synced", True, "Applied", f"{len(inventory)} objects of {self.revision}")
        if self.ailing:
            ctx.condition("Healthy", False, "NotHealthyYet", "; ".join(self.ailing)[:1000])
        else:
            ctx.condition("Healthy", True, "AllHealthy")


def passes(error: ApiError) -> bool:
    """Whether the same request may succeed another time: then all of it is tried again, soon. Otherwise the manifest is
    to blame, or the rights that we have, and somebody has to be told."""
    return error.code >= 500 or error.code in (409, 429)


def name_of(sync: Synced) -> str:
    return f"{sync.namespace}/{sync.name}"


def without(entries: Iterable[Entry], others: Iterable[Entry]) -> list[Entry]:
    known = {each.identity for each in others}
    return [each for each in entries if each.identity not in known]


async def find(ctx: Ctx, entry: Entry) -> Obj | None:
    try:
        return await ctx.client.get((entry.apiVersion, entry.kind), entry.name, entry.namespace)
    except NotFound:
        return None


async def prune(ctx: Ctx, sync: Synced, entries: Iterable[Entry]) -> None:
    """Deletes them, the last to come first; but only what this Sync has applied and nobody wants to keep."""
    for entry in reversed(list(entries)):
        there = await find(ctx, entry)
        if there is None:
            continue
        meta = there["metadata"]
        annotations = meta.get("annotations") or {}
        ours = annotations.get(APPLIED_BY) == name_of(sync) and annotations.get(KEEP) != "false"
        if not ours or meta.get("deletionTimestamp"):
            continue
        try:
            await ctx.client.delete(
                (entry.apiVersion, entry.kind), entry.name, entry.namespace, propagation="Background", uid=meta["uid"]
            )
        except NotFound:
            continue
        ctx.event("Pruned", f"{entry} has left the source")
