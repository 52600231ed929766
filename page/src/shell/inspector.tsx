/** The inspector: the selected object, with tabs for its aspects. */
import { useState } from "preact/hooks";
import { stored, wide } from "../state/settings";
import { ObjectActions } from "../inspector/actions/actions";
import { inspectorTabs } from "../inspector/catalog";
import { route, setParam } from "../router";
import { kinds } from "../state/kinds";
import { deselect, selected } from "../state/selection";
import { kindSlug, refKey } from "../state/refs";
import type { ObjectRef } from "../state/refs";
import { Button } from "../ui/button";
import { DeleteObjects } from "../ui/delete-objects";
import { Icon } from "../ui/icon";
import { Lazy } from "../ui/lazy";
import { Notice } from "../ui/notice";
import { Splitter } from "../ui/splitter";
import { visible } from "../ui/text";
import { Tabs } from "../ui/tabs";
import { shell } from "../words/shell";

export const inspectorWidth = stored("inspector.width", 410);

/** The tabs that apply to an object. */
export function tabsFor(target: ObjectRef) {
  return inspectorTabs.filter((tab) => tab.applies?.(target) ?? true);
}

export function Inspector() {
  const { kind, name } = route.value;
  const target = selected.value;
  const [deleting, setDeleting] = useState(false);
  if (!kind || !name) return null;
  return (
    <aside class="inspector" id="inspector" tabIndex={-1} aria-label={shell.inspector} style={wide.value ? { width: `${inspectorWidth.value}px` } : {}}>
      {wide.value ? <Splitter size={inspectorWidth} least={320} most={900} vertical /> : null}
      <header class="inspector-head">
        <div class="inspector-title">
          <p class="faint">
            {target?.kind ?? visible(kindSlug(kind))}
            {target?.namespace ? ` · ${visible(target.namespace)}` : ""}
          </p>
          <h2>{visible(name)}</h2>
        </div>
        {target ? <ObjectActions key={refKey(target)} target={target} /> : null}
        {target ? (
          <Button look="plain" writes aria-label={shell.deleteThis} title={shell.deleteThis} onClick={() => setDeleting(true)}>
            <Icon name="trash" />
          </Button>
        ) : null}
        <Button look="plain" aria-label={shell.close} onClick={deselect}>
          <Icon name="close" />
        </Button>
      </header>
      {target ? <Aspects target={target} /> : kinds.value.length > 0 ? <Notice title={shell.inspectorNoKind(visible(kindSlug(kind)))} small /> : null}
      {deleting && target ? <DeleteObjects refs={[target]} close={() => setDeleting(false)} /> : null}
    </aside>
  );
}

function Aspects({ target }: { target: ObjectRef }) {
  const tabs = tabsFor(target);
  const current = tabs.find((tab) => tab.id === route.value.params.tab) ?? tabs[0];
  if (!current) return null;
  return (
    <>
      <Tabs group="inspector" label={shell.inspectorTabs} tabs={tabs} current={current.id} choose={(id) => setParam("tab", id)} />
      <div class="inspector-body" role="tabpanel" id="panel-inspector" aria-labelledby={`tab-inspector-${current.id}`} tabIndex={0}>
        <Lazy key={current.id} load={current.load} props={{ target }} />
      </div>
    </>
  );
}
