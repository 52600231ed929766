/** The dock: strips and panels at the bottom, and the bar that opens them. */
import { dockEntries } from "../dock/catalog";
import type { DockEntry } from "../dock/catalog";
import { closePanel, dockHeight, isOpen, togglePanel } from "../dock/state";
import { phone } from "../state/settings";
import { Button } from "../ui/button";
import { Icon } from "../ui/icon";
import { Lazy } from "../ui/lazy";
import { Splitter } from "../ui/splitter";
import { shell } from "../words/shell";

const NO_PROPS = {};

export function Dock() {
  if (dockEntries.length === 0) return null;
  const open = dockEntries.filter((entry) => isOpen(entry.id) && !(phone.value && entry.phone === false));
  const strips = open.filter((entry) => entry.form === "strip");
  const panels = open.filter((entry) => entry.form === "panel");
  return (
    <section class="dock" aria-label={shell.dock}>
      {strips.map((entry) => (
        <div key={entry.id} class="dock-strip" role="group" aria-label={entry.label}>
          <Lazy load={entry.load} props={NO_PROPS} />
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
