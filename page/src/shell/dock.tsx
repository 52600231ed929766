/** The dock: strips and panels at the bottom, and the bar that opens them. */
import { useEffect, useState } from "preact/hooks";
import { dockEntries } from "../dock/catalog";
import type { DockEntry } from "../dock/catalog";
import { closePanel, dockHeight, isOpen, togglePanel } from "../dock/state";
import { kinds } from "../state/kinds";
import { phone } from "../state/settings";
import { Button } from "../ui/button";
import { Icon } from "../ui/icon";
import { Lazy } from "../ui/lazy";
import { Loading } from "../ui/notice";
import { Splitter } from "../ui/splitter";
import { shell } from "../words/shell";

const NO_PROPS = {};
/** Milliseconds until strips are loaded after the kinds have arrived, and if none arrive. */
const AFTER_VIEW = 100;
const WITHOUT_VIEW = 2_000;

/** Whether strips may load. They come after the view, which is what the user waits for. */
function useAfterView(): boolean {
  const [after, setAfter] = useState(false);
  const known = kinds.value.length > 0;
  useEffect(() => {
    const timer = window.setTimeout(() => setAfter(true), known ? AFTER_VIEW : WITHOUT_VIEW);
    return () => window.clearTimeout(timer);
  }, [known]);
  return after;
}

export function Dock() {
  const afterView = useAfterView();
  const open = dockEntries.filter((entry) => isOpen(entry.id) && !(phone.value && entry.phone === false));
  const strips = open.filter((entry) => entry.form === "strip");
  const panels = open.filter((entry) => entry.form === "panel");
  return (
    <section class="dock" aria-label={shell.dock}>
      {strips.map((entry) => (
        <div key={entry.id} class={entry.tall ? "dock-strip tall" : "dock-strip"} role="group" aria-label={entry.label}>
          {afterView ? <Lazy load={entry.load} props={NO_PROPS} /> : <Loading />}
        </div>
      ))}
      {panels.length > 0 ? (
        <>
          {phone.value ? null : <Splitter size={dockHeight} least={120} most={800} vertical={false} />}
          <div class="dock-panels" style={phone.value ? {} : { height: `${dockHeight.value}px` }}>
            {panels.map((entry) => (
              <DockPanel key={entry.id} entry={entry} />
            ))}
          </div>
        </>
      ) : null}
      {phone.value ? null : (
        <div class="dock-bar" role="toolbar" aria-label={shell.dock}>
          {dockEntries.map((entry) => (
            <Button key={entry.id} small look="plain" aria-pressed={isOpen(entry.id)} onClick={() => togglePanel(entry.id)}>
              <Icon name={entry.id} />
              {entry.label}
              {entry.key ? <kbd aria-hidden="true">{entry.key}</kbd> : null}
            </Button>
          ))}
        </div>
      )}
    </section>
  );
}

function DockPanel({ entry }: { entry: DockEntry }) {
  return (
    <div class="dock-panel" role="group" aria-label={entry.label} id={`dock-${entry.id}`}>
      <header class="dock-panel-head">
        <h2>{entry.label}</h2>
        <Button look="plain" small aria-label={shell.dockClose(entry.label)} onClick={() => closePanel(entry.id)}>
          <Icon name="close" />
        </Button>
      </header>
      <div class="dock-panel-body">
        <Lazy load={entry.load} props={NO_PROPS} />
      </div>
    </div>
  );
}
