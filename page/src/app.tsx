/** The frame of the page: header, views, inspector, dock. */
import { effect } from "@preact/signals";
import { bindKeys } from "./a11y/keyboard";
import { LiveRegion } from "./a11y/live";
import { dockEntries } from "./dock/catalog";
import { pressPanelKey } from "./dock/state";
import { inspectorTabs } from "./inspector/catalog";
import { navigate, route, setParam } from "./router";
import { atBoard } from "./state/classroom";
import { at, setMoment } from "./state/place";
import { deselect, selected } from "./state/selection";
import { session } from "./state/session";
import { Banners } from "./shell/banners";
import { ClassNotices, SeatBanner } from "./shell/class-seat";
import { Dock } from "./shell/dock";
import { Enter } from "./shell/enter";
import { Header, nextTheme } from "./shell/header";
import { Help, helpOpen } from "./shell/help";
import { Inspector } from "./shell/inspector";
import { KindsFeed } from "./shell/kinds-feed";
import { Navigation } from "./shell/navigation";
import { focusSearch } from "./shell/search";
import { seeAsOffered, seeAsOpen } from "./shell/see-as-state";
import { Lazy } from "./ui/lazy";
import { Notice } from "./ui/notice";
import { visible } from "./ui/text";
import { Toasts } from "./ui/toast";
import { offeredViews, views } from "./views/catalog";
import { seeAs } from "./words/see-as";
import { shell } from "./words/shell";

export function App() {
  // The frame is there before the session is: what it shows waits for the connection.
  const state = session.value.is;
  if (state !== "starting" && state !== "in") return <Enter />;
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), focusOn("main"))}>
        {shell.skip}
      </a>
      <div class="frame">
        <Header />
        <Banners />
        <SeatBanner />
        <div class="content">
          <Navigation />
          <div class="column">
            <div class="middle">
              <Main />
              {atBoard.value ? null : <Inspector />}
            </div>
            {atBoard.value ? null : <Dock />}
          </div>
        </div>
      </div>
      {atBoard.value ? null : <KindsFeed />}
      <ClassNotices />
      <Help />
      {seeAsOpen.value ? <Lazy load={loadSeeAs} props={{}} /> : null}
      <Toasts />
      <LiveRegion />
    </>
  );
}

const loadSeeAs = () => import("./shell/see-as");

function Main() {
  const view = atBoard.value
    ? views.find((one) => one.forTeacher)
    : offeredViews.value.find((one) => one.id === route.value.view);
  return (
    <main class="main" id="main" tabIndex={-1}>
      <h1 class="visually-hidden">{view?.label ?? shell.product}</h1>
      {view ? (
        <Lazy key={view.id} load={view.load} props={{}} />
      ) : (
        <Notice title={shell.viewMissing}>
          <p>{shell.viewMissingHint}</p>
        </Notice>
      )}
    </main>
  );
}

function focusOn(id: string): void {
  document.getElementById(id)?.focus();
}

export function startApp(): void {
  // The view loads while the session begins; the frame says so if that fails.
  views.find((one) => one.id === route.peek().view)?.load().catch(() => undefined);
  effect(() => {
    const view = views.find((one) => one.id === route.value.view);
    const name = route.value.name;
    document.title = [visible(name), view?.label, shell.product].filter(Boolean).join(" · ");
  });
  const { general, go } = shell.keys;
  bindKeys([
    ...views.map((view) => ({
      keys: `g ${view.key}`,
      label: view.label,
      group: go,
      applies: () => offeredViews.value.includes(view),
      run: () => navigate({ view: view.id }),
    })),
    { keys: "g m", label: shell.keys.main, group: go, run: () => focusOn("main") },
    { keys: "g i", label: shell.keys.inspector, group: go, run: () => focusOn("inspector") },
    { keys: "g n", label: shell.keys.namespace, group: go, run: () => focusOn("namespace") },
    {
      keys: "g u",
      label: seeAs.key,
      group: go,
      applies: () => seeAsOffered.value,
      run: () => void (seeAsOpen.value = true),
    },
    { keys: "/", label: shell.keys.search, group: general, run: focusSearch },
    { keys: "?", label: shell.keys.help, group: general, run: () => void (helpOpen.value = true) },
    { keys: "t", label: shell.keys.theme, group: general, run: nextTheme },
    { keys: ",", label: shell.keys.now, group: general, run: () => (at.peek() === null ? false : setMoment(null)) },
    { keys: "Escape", label: shell.keys.close, group: general, run: () => (route.peek().name ? deselect() : false) },
    ...dockEntries
      .filter((entry) => entry.key)
      .map((entry) => ({ keys: entry.key!, label: entry.label, group: general, run: () => pressPanelKey(entry) })),
    ...inspectorTabs
      .filter((tab) => tab.key)
      .map((tab) => ({
        keys: tab.key!,
        label: tab.label,
        group: shell.inspector,
        run: (): void | false => {
          const target = selected.peek();
          if (!target || !(tab.applies?.(target) ?? true)) return false;
          setParam("tab", tab.id);
        },
      })),
  ]);
}
