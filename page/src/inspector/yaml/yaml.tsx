/** The tab with the text of the object: who wrote each line, editing, and what was applied. */
import { useSignal } from "@preact/signals";
import { Difference } from "../../dock/editor/difference";
import { openPanel } from "../../dock/state";
import { useFeed } from "../../link/hooks";
import { logical } from "../../state/place";
import { Button } from "../../ui/button";
import { Icon } from "../../ui/icon";
import { Failure, Loading, Notice } from "../../ui/notice";
import { visible } from "../../ui/text";
import { Ago } from "../../ui/time";
import { toast } from "../../ui/toast";
import { YamlLine } from "../../ui/yaml-highlight";
import { yaml as words } from "../../words/editor";
import type { TabProps } from "../catalog";
import "./yaml.css";

interface Manager {
  name: string;
  shown: string;
  operation: string;
  subresource: string;
  time: string;
}

/** Text, field, owners, and whether no manager owns the value. */
type Line = readonly [string, string, readonly number[], boolean];

interface Item {
  exists: boolean;
  hidden: boolean;
  tooLong: boolean;
  lines: readonly Line[];
  managers: readonly Manager[];
  applied: string;
}

const COLOURS = 8;

export default function Yaml({ target }: TabProps) {
  const reveal = useSignal(false);
  const shown = useSignal<"live" | "diff" | "applied">("live");
  const only = useSignal<string | null>(null);
  const { group, version, resource, namespace, name } = target;
  const feed = useFeed<Item>("yaml", { group, version, resource, namespace, name, reveal: reveal.value });
  if (feed.error) return <Failure error={feed.error} feature={words.title} />;
  const item = feed.items.get("object");
  if (!feed.synced || !item) return <Loading />;
  if (!item.exists) return <Notice title={words.gone} small />;
  if (item.tooLong) return <Notice title={words.tooLong} small />;
  const secret = resource === "secrets" && !group;
  const text = shown.value === "applied" ? item.applied : item.lines.map(([line]) => line).join("\n");
  const toggle = (what: "diff" | "applied") => (shown.value = shown.value === what ? "live" : what);
  return (
    <div class="yaml">
      <div class="yaml-bar">
        <Button small writes onClick={() => openPanel("editor", { object: target, prefix: logical.peek(), reveal: reveal.value })}>
          <Icon name="edit" />
          {words.edit}
        </Button>
        <Button small aria-pressed={shown.value === "diff"} title={words.diffHint} onClick={() => toggle("diff")}>
          {words.diff}
        </Button>
        <Button small aria-pressed={shown.value === "applied"} title={words.appliedHint} onClick={() => toggle("applied")}>
          {words.asApplied}
        </Button>
        {secret ? (
          <Button small aria-pressed={reveal.value} onClick={() => (reveal.value = !reveal.value)}>
            {reveal.value ? words.hide : words.reveal}
          </Button>
        ) : null}
        <Button
          small
          look="plain"
          aria-label={words.copy}
          title={words.copy}
          onClick={() => void navigator.clipboard?.writeText(`${text}\n`).then(() => toast(words.copied))}
        >
          <Icon name="copy" />
        </Button>
      </div>
      {item.hidden ? <p class="faint">{words.hidden}</p> : null}
      {shown.value !== "live" && !item.applied ? (
        <Notice title={words.noApplied} small />
      ) : shown.value === "applied" ? (
        <Text lines={item.applied.split("\n").map((line) => [line, "", [], false] as const)} managers={[]} only={null} />
      ) : shown.value === "diff" ? (
        <Difference title={words.diffHint} before={item.applied} after={desired(item.lines)} />
      ) : (
        <>
          <Owners managers={item.managers} only={only.value} choose={(shown) => (only.value = only.value === shown ? null : shown)} />
          <Text lines={item.lines} managers={item.managers} only={only.value} />
        </>
      )}
    </div>
  );
}

/** Fields that the server writes: they are in no configuration. */
const OF_SERVER = /^(?:status|metadata\.(?:uid|resourceVersion|generation|creationTimestamp|annotations\.kubectl\.kubernetes\.io\/last-applied.*))(?:$|[.[])/;

/** The text without the status and what else only the server writes. */
function desired(lines: readonly Line[]): string {
  return lines
    .filter(([, field]) => !OF_SERVER.test(field))
    .map(([text]) => text)
    .join("\n");
}

/** The managers by name: entries of the same one share a colour. */
function names(managers: readonly Manager[]): string[] {
  return [...new Set(managers.map((each) => each.shown))];
}

function Owners(props: { managers: readonly Manager[]; only: string | null; choose(shown: string): void }) {
  const latest = new Map<string, string>();
  for (const each of props.managers) if ((latest.get(each.shown) ?? "") < each.time) latest.set(each.shown, each.time);
  return (
    <div class="yaml-owners">
      <h3 title={words.ownersHint}>{words.owners}</h3>
      <ul>
        {names(props.managers).map((shown, index) => (
          <li key={shown}>
            <button type="button" aria-pressed={props.only === shown} title={words.showOnly(visible(shown))} onClick={() => props.choose(shown)}>
              <span class={`yaml-swatch owner-${index % COLOURS}`} aria-hidden="true" />
              {visible(shown)}
              {latest.get(shown) ? (
                <span class="faint">
                  {" "}
                  <Ago time={latest.get(shown) ?? ""} />
                </span>
              ) : null}
            </button>
          </li>
        ))}
        <li class="faint">
          <span class="yaml-swatch owner-none" aria-hidden="true" />
          {words.nobody}
        </li>
      </ul>
    </div>
  );
}

function Text(props: { lines: readonly Line[]; managers: readonly Manager[]; only: string | null }) {
  const all = names(props.managers);
  const digits = String(props.lines.length).length;
  return (
    <pre class="yaml-lines" tabIndex={0} aria-label={words.lines}>
      {props.lines.map(([text, field, owners, isDefault], index) => {
        const shown = [...new Set(owners.map((at) => props.managers[at]?.shown ?? ""))];
        const owned = shown.length ? words.ownedBy(shown.map(visible).join(", ")) : isDefault ? words.ownedByServer : "";
        const dim = props.only !== null && !shown.includes(props.only);
        const colour = shown.length ? `owner-${all.indexOf(shown[0] ?? "") % COLOURS}` : isDefault ? "owner-none" : "";
        return (
          <div key={index} class={dim ? "yaml-line dim" : "yaml-line"} title={owned ? `${visible(field)}: ${owned}` : undefined}>
            <span class="yaml-number-column" aria-hidden="true">
              {String(index + 1).padStart(digits)}
            </span>
            <span class={`yaml-owner ${colour}`} aria-hidden="true" />
            <YamlLine line={text} />
            {owned ? <span class="visually-hidden"> ({owned})</span> : null}
          </div>
        );
      })}
    </pre>
  );
}
