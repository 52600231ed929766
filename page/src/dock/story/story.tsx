/** The strip that says in one sentence what happens and why, unasked. It is also announced to screen readers. */
import { useEffect, useRef, useState } from "preact/hooks";
import { at, cluster } from "../../state/place";
import { select } from "../../state/selection";
import { Button } from "../../ui/button";
import { visible } from "../../ui/text";
import { Ago } from "../../ui/time";
import { story as words } from "../../words/story";
import { Line } from "../../writes/line";
import { isCount, useWrites } from "../../writes/writes";
import type { LogEntry, WriteEntry } from "../../writes/writes";
import { Narrator } from "./narrator";
import "./story.css";

const LISTED = 60;

export default function Story() {
  const feed = useWrites();
  const narrator = useRef<Narrator | null>(null);
  const [said, setSaid] = useState<WriteEntry | null>(null);
  const [open, setOpen] = useState(false);
  const [, tick] = useState(0);

  useEffect(() => {
    if (!feed.synced || feed.error) {
      narrator.current = null; // what happens until the log is complete again is the past then
      return;
    }
    const first = narrator.current === null;
    const current = (narrator.current ??= new Narrator());
    current.take(feed.log, performance.now(), first);
    const next = current.next(performance.now());
    if (next) setSaid(next);
    const wait = current.wait(performance.now());
    if (wait === null) return;
    const timer = window.setTimeout(() => tick((count) => count + 1), wait);
    return () => window.clearTimeout(timer);
  });

  useEffect(() => {
    narrator.current = null;
    setSaid(null);
  }, [cluster.value]);

  const missing = feed.error && (feed.error.code === 403 ? words.hidden : feed.error.code === 404 ? words.missing : words.away);
  const text = at.value !== null ? words.past : (missing ?? (said ? visible(said.sentence) : words.quiet));
  const object = said?.objects[0];
  return (
    <div class="story">
      <div class="story-line">
        <p class="story-sentence" role="status" aria-live="polite" id="live-story">
          {text}
        </p>
        {said && at.value === null ? (
          <span class="story-when soft">
            <Ago time={said.at ? new Date(said.at).toISOString() : undefined} />
          </span>
        ) : null}
        {said && object && at.value === null ? (
          <Button small onClick={() => select(object, { tab: "why" })}>
            {words.why}
          </Button>
        ) : null}
        <Button small look="plain" aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? words.hide : words.show}
        </Button>
      </div>
      {open ? <Latest log={feed.log} revision={feed.revision} folded={feed.items.get("folded")} skipped={feed.skipped} /> : null}
    </div>
  );
}

interface LatestProps {
  log: readonly LogEntry[];
  /** Grows with the log, which is the same list. */
  revision: number;
  folded: { heartbeats?: number; events?: number } | undefined;
  /** The number of writes that the server left out because this tab was too slow. */
  skipped: number;
}

function Latest({ log, folded, skipped }: LatestProps) {
  const latest = log.slice(-LISTED).reverse();
  return (
    <>
      <ol class="story-list" aria-label={words.list} tabIndex={0}>
        {latest.map((entry) => (
          <li key={entry.revision}>
            {isCount(entry) ? (
              <span class="soft">{visible(words.counted(entry.writes, Object.keys(entry.counts).join(", ")))}</span>
            ) : (
              <Line entry={entry} />
            )}
          </li>
        ))}
      </ol>
      {skipped ? <p class="soft story-folded">{words.skipped(skipped)}</p> : null}
      {folded ? <p class="faint story-folded">{words.folded(folded.heartbeats ?? 0, folded.events ?? 0)}</p> : null}
    </>
  );
}
