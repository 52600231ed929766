/** The live region: sentences for screen readers, at most one each two seconds. */
import { signal } from "@preact/signals";
import { visible } from "../ui/text";

const PAUSE = 2_000;

const polite = signal("");
const urgent = signal("");
let waiting: string | null = null;
let timer = 0;

/** Say a sentence politely. Of several within two seconds, the latest is said. */
export function announce(sentence: string): void {
  if (timer) {
    waiting = sentence;
    return;
  }
  polite.value = visible(sentence);
  timer = window.setTimeout(() => {
    timer = 0;
    const next = waiting;
    waiting = null;
    if (next !== null) announce(next);
  }, PAUSE);
}

/** Say a sentence at once: for what the user must know, such as a failed write. */
export function announceNow(sentence: string): void {
  urgent.value = visible(sentence);
}

export function LiveRegion() {
  return (
    <>
      <div class="visually-hidden" role="status" aria-live="polite" id="live-polite">
        {polite}
      </div>
      <div class="visually-hidden" role="alert" aria-live="assertive" id="live-urgent">
        {urgent}
      </div>
    </>
  );
}
