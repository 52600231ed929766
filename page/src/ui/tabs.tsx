import { useLayoutEffect, useRef } from "preact/hooks";

export interface TabEntry {
  id: string;
  label: string;
}

/** Tabs after the ARIA pattern: arrow keys move, one tab is in the tab order. The panel has `id` `panel-<group>`. */
export function Tabs(props: { group: string; label: string; tabs: readonly TabEntry[]; current: string; choose(id: string): void }) {
  const list = useRef<HTMLDivElement>(null);
  // A narrow row scrolls: the current tab stays in sight.
  useLayoutEffect(() => {
    list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [props.current]);
  const move = (event: KeyboardEvent) => {
    const at = props.tabs.findIndex((tab) => tab.id === props.current);
    const last = props.tabs.length - 1;
    const steps: Record<string, number> = {
      ArrowRight: at === last ? 0 : at + 1,
      ArrowLeft: at <= 0 ? last : at - 1,
      Home: 0,
      End: last,
    };
    const next = steps[event.key];
    const tab = next === undefined ? undefined : props.tabs[next];
    if (!tab) return;
    event.preventDefault();
    event.stopPropagation();
    props.choose(tab.id);
    list.current?.querySelector<HTMLElement>(`#tab-${props.group}-${tab.id}`)?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={props.label} ref={list} onKeyDown={move}>
      {props.tabs.map((tab) => (
        <button
          key={tab.id}
          type="button"
          role="tab"
          class="tab"
          id={`tab-${props.group}-${tab.id}`}
          aria-selected={tab.id === props.current}
          aria-controls={`panel-${props.group}`}
          tabIndex={tab.id === props.current ? 0 : -1}
          onClick={() => props.choose(tab.id)}
        >
          {tab.label}
        </button>
      ))}
    </div>
  );
}
