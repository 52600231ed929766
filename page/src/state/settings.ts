/** Settings of this browser, kept in the storage of the origin. */
import { computed, effect, signal } from "@preact/signals";
import type { Signal } from "@preact/signals";

const PREFIX = "setpoint.";

/** A signal that keeps its value over visits. A blocked or full storage only loses the setting. */
export function stored<T>(name: string, initial: T): Signal<T> {
  let value = initial;
  try {
    const text = localStorage.getItem(PREFIX + name);
    if (text !== null) {
      const parsed: unknown = JSON.parse(text);
      if (typeof parsed === typeof initial) value = parsed as T;
    }
  } catch {
    // The initial value serves.
  }
  const result = signal(value);
  let first = true;
  effect(() => {
    const text = JSON.stringify(result.value);
    if (first) {
      first = false;
      return;
    }
    try {
      localStorage.setItem(PREFIX + name, text);
    } catch {
      // It holds for this visit.
    }
  });
  return result;
}

function media(query: string): Signal<boolean> {
  const list = window.matchMedia(query);
  const result = signal(list.matches);
  list.addEventListener("change", () => (result.value = list.matches));
  return result;
}

export type ThemeSetting = "auto" | "light" | "dark";

export const themeSetting = stored<ThemeSetting>("theme", "auto");
const systemDark = media("(prefers-color-scheme: dark)");
/** The theme in use. Canvas drawings read it, so that they draw again when it changes. */
export const theme = computed<"light" | "dark">(() =>
  themeSetting.value === "dark" || (themeSetting.value !== "light" && systemDark.value) ? "dark" : "light",
);

export type MotionSetting = "auto" | "less";

export const motionSetting = stored<MotionSetting>("motion", "auto");
const systemLessMotion = media("(prefers-reduced-motion: reduce)");
/** Whether things may move. */
export const motion = computed(() => motionSetting.value !== "less" && !systemLessMotion.value);

/** Whether the window is as narrow as a phone. */
export const phone = media("(max-width: 700px)");
/** Whether there is space for the inspector beside the view. */
export const wide = media("(min-width: 1100px)");

/** The present value of a custom property, for canvas drawings: `colour("--accent")`. Read `theme.value` beside it. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** The nonce that the Content Security Policy asks of `<style>` elements; for libraries that make some. */
export function styleNonce(): string {
  return document.querySelector<HTMLMetaElement>("meta[property=csp-nonce]")?.nonce ?? "";
}

export function startTheme(): void {
  effect(() => {
    document.documentElement.dataset.theme = theme.value;
    document.documentElement.dataset.motion = motion.value ? "full" : "less";
  });
}
