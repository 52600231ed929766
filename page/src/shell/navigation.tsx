/** The list of views: on the left, or at the bottom of a phone. */
import { signal } from "@preact/signals";
import { linkTo, route } from "../router";
import { phone } from "../state/settings";
import { Dialog } from "../ui/dialog";
import { Icon } from "../ui/icon";
import { offeredViews } from "../views/catalog";
import type { ViewEntry } from "../views/catalog";
import { shell } from "../words/shell";
import { dockEntries } from "../dock/catalog";
import { openPanel, togglePanel } from "../dock/state";

const sheet = signal(false);

/** A view keeps the selected object and drops the parameters of other views. */
function viewLink(view: ViewEntry): string {
  const { ns, at, cluster, tab } = route.value.params;
  const kept = Object.fromEntries(Object.keys(route.value.params).map((name) => [name, ""]));
  return linkTo({ view: view.id, params: { ...kept, ns: ns ?? "", at: at ?? "", cluster: cluster ?? "", tab: tab ?? "" } });
}

function ViewLink({ view, done }: { view: ViewEntry; done?: () => void }) {
  const current = route.value.view === view.id;
  return (
    <a
      class="view-link"
      href={viewLink(view)}
      title={`${view.label} (g ${view.key})`}
      aria-current={current ? "page" : undefined}
      onClick={done}
    >
      <Icon name={view.id} />
      <span class="label">{view.label}</span>
    </a>
  );
}

export function Navigation() {
  if (phone.value) return <BottomBar />;
  return (
    <nav class="navigation" aria-label={shell.views}>
      <ul class="view-links">
        {offeredViews.value.map((view) => (
          <li key={view.id}>
            <ViewLink view={view} />
          </li>
        ))}
      </ul>
    </nav>
  );
}

function BottomBar() {
  const first = offeredViews.value.filter((view) => view.phone).slice(0, 4);
  const others = offeredViews.value.filter((view) => !first.includes(view));
  const close = () => (sheet.value = false);
  return (
    <nav class="bottom-bar" aria-label={shell.views}>
      {first.map((view) => (
        <ViewLink key={view.id} view={view} />
      ))}
      <button type="button" class="view-link" aria-haspopup="dialog" onClick={() => (sheet.value = true)}>
        <Icon name="menu" />
        <span class="label">{shell.more}</span>
      </button>
      {sheet.value ? (
        <Dialog title={shell.menu} close={close}>
          <ul class="view-links">
            {others.map((view) => (
              <li key={view.id}>
                <ViewLink view={view} done={close} />
              </li>
            ))}
            {dockEntries.filter((entry) => entry.phone !== false).map((entry) => (
              <li key={entry.id}>
                <button
                  type="button"
                  class="view-link"
                  onClick={() => {
                    close();
                    // A panel covers the view and has a button that closes it; a strip has none.
                    (entry.form === "strip" ? togglePanel : openPanel)(entry.id);
                  }}
                >
                  <Icon name={entry.id} />
                  <span class="label">{entry.label}</span>
                </button>
              </li>
            ))}
          </ul>
        </Dialog>
      ) : null}
    </nav>
  );
}
