/** Texts of the strip that says what happens. */
export const story = {
  label: "What happens",
  quiet: "Change something, and this line says who does what, and why.",
  past: "This is a past moment. The line continues when you go back to now.",
  missing: "This server does not record who writes what.",
  hidden: "You may not read who writes what.",
  away: "The writes are being read again.",
  why: "Why?",
  show: "Show all",
  hide: "Show less",
  list: "The latest writes, the newest first",
  counted: (writes: number, by: string) => `${writes} writes at once, by ${by}.`,
  skipped: (writes: number) => (writes === 1 ? "One write is" : `${writes} writes are`) + " not listed: this tab was too slow to receive them.",
  folded: (heartbeats: number, events: number) => `${heartbeats} heartbeats and ${events} Events are not listed.`,
  revision: (revision: number) => `revision ${revision}`,
} as const;
