/** The bar at the top: where one looks, search, theme, help. */
import { hello } from "../link/link";
import { useNamespaceNames } from "./namespaces";
import { atBoard } from "../state/classroom";
import { at, logical, namespace, setLogical, setNamespace } from "../state/place";
import { phone, themeSetting } from "../state/settings";
import type { ThemeSetting } from "../state/settings";
import { Button } from "../ui/button";
import { Icon } from "../ui/icon";
import { visible } from "../ui/text";
import { seeAs } from "../words/see-as";
import { shell } from "../words/shell";
import { helpOpen } from "./help";
import { seeAsOffered, seeAsOpen } from "./see-as-state";
import { Search } from "./search";

const NEXT_THEME: Record<ThemeSetting, ThemeSetting> = { auto: "light", light: "dark", dark: "auto" };

export function nextTheme(): void {
  themeSetting.value = NEXT_THEME[themeSetting.value];
}

export function Header() {
  return (
    <header class="header">
      <a class="brand" href="#/" aria-label={shell.product}>
        <Mark />
        <span class="brand-name">{shell.product}</span>
      </a>
      {atBoard.value ? null : <Place />}
      {atBoard.value ? null : <Search />}
      <div class="header-end">
        {seeAsOffered.value && !phone.value ? (
          <Button look="plain" aria-label={seeAs.open} title={seeAs.open} onClick={() => (seeAsOpen.value = true)}>
            <Icon name="person" />
          </Button>
        ) : null}
        <Button look="plain" aria-label={shell.theme[themeSetting.value]} title={shell.theme[themeSetting.value]} onClick={nextTheme}>
          <Icon name={themeSetting.value} />
        </Button>
        <Button look="plain" aria-label={shell.help} title={shell.help} onClick={() => (helpOpen.value = true)}>
          <Icon name="help" />
        </Button>
      </div>
    </header>
  );
}

/** A thermostat dial: the set point and the arc towards it. */
function Mark() {
  return (
    <svg class="mark" viewBox="0 0 32 32" aria-hidden="true">
      <path class="mark-rest" d="M6.600 22a11 11 0 1 1 18.800 0" />
      <path class="mark-arc" d="M6.600 22A11 11 0 0 1 16 5.200" />
      <circle class="mark-point" cx="16" cy="16" r="3.200" />
    </svg>
  );
}

function Place() {
  const names = useNamespaceNames();
  const name = logical.value.split("/").at(-1) ?? "";
  const leave = name.startsWith("lesson-") ? shell.leaveLesson : shell.backToNow;
  return (
    <div class="place">
      {logical.value.startsWith("/forks/") ? (
        <span class="place-cluster">
          <span class="badge acting">{shell.clusterFork(name)}</span>
          <Button small look="plain" aria-label={leave} onClick={() => setLogical("")}>
            <span class="place-leave">{leave}</span>
            <Icon name="close" />
          </Button>
        </span>
      ) : null}
      <label class="chooser">
        <span class="visually-hidden">{shell.namespace}</span>
        <Icon name="fleet" />
        <select
          id="namespace"
          value={namespace.value || "*"}
          onChange={(event) => setNamespace(event.currentTarget.value === "*" ? "" : event.currentTarget.value)}
          title={hello.value ? visible(shell.user(hello.value.user)) : undefined}
        >
          <option value="*">{shell.allNamespaces}</option>
          {names.map((one) => (
            <option key={one} value={one}>
              {one}
            </option>
          ))}
        </select>
      </label>
      {at.value !== null ? <span class="visually-hidden">{shell.past(String(at.value))}</span> : null}
    </div>
  );
}
