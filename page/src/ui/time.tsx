/** Times for people. */
import { computed, signal } from "@preact/signals";
import { at, momentTime } from "../state/place";
import { shell } from "../words/shell";

/** The present time in milliseconds, once a second while the tab is visible. */
export const now = signal(Date.now());

/** The time of what is shown, in milliseconds. In the past, ages are those of then. */
export const shownNow = computed(() => (at.value === null ? now.value : (momentTime.value?.getTime() ?? now.value)));

let timer = 0;

export function startClock(): void {
  const tick = () => (now.value = Date.now());
  const run = () => {
    window.clearInterval(timer);
    if (document.hidden) return;
    tick();
    timer = window.setInterval(tick, 1_000);
  };
  document.addEventListener("visibilitychange", run);
  run();
}

/** A duration as kubectl writes it: `5s`, `3m12s`, `7h`, `12d`. */
export function shortDuration(milliseconds: number): string {
  const seconds = Math.max(0, Math.floor(milliseconds / 1_000));
  if (seconds < 120) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 10) return seconds % 60 ? `${minutes}m${seconds % 60}s` : `${minutes}m`;
  if (minutes < 180) return `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  if (hours < 8) return minutes % 60 ? `${hours}h${minutes % 60}m` : `${hours}h`;
  if (hours < 48) return `${hours}h`;
  const days = Math.floor(hours / 24);
  return days < 365 * 2 ? `${days}d` : `${Math.floor(days / 365)}y`;
}

/** How long ago something was, with the exact time in the title; `ago`: where no word around it says that. */
export function Ago({ time, ago = false }: { time: string | undefined; ago?: boolean }) {
  if (!time) return <span>–</span>;
  const since = Date.parse(time);
  if (Number.isNaN(since)) return <span>{time}</span>;
  const passed = shortDuration(shownNow.value - since);
  return (
    <time dateTime={time} title={new Date(since).toLocaleString()}>
      {ago ? shell.ago(passed) : passed}
    </time>
  );
}
