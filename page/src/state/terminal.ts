/** Text that other parts put on the line of the terminal. The terminal shows it there; only the user runs it. */
import { signal } from "@preact/signals";
import { openPanel } from "../dock/state";

/** The latest text, with a number that grows, so that the same text can be put there again; null if there was none. */
export const textForTerminal = signal<{ text: string; number: number } | null>(null);

/** Open the terminal and put a text on its line, without running it. */
export function typeInTerminal(text: string): void {
  openPanel("terminal");
  textForTerminal.value = { text, number: (textForTerminal.peek()?.number ?? 0) + 1 };
}
