/** Texts of events. */
export const events = {
  title: "Events",
  none: "No events",
  noneAbout: "Nothing was reported about this object in the last hour.",
  noneHere: "Components report here what they do. Nothing was reported in the last hour.",
  warning: "Warning",
  normal: "Normal",
  onlyWarnings: "Warnings only",
  filter: "Filter events by text",
  namespace: (name: string) => `namespace ${name}`,
  times: (count: number) => `${count} times`,
  by: (source: string) => `by ${source}`,
  last: "Last",
  list: "Events, the latest first",
  count: (count: number, warnings: number) => `${count} events, ${warnings} of them warnings`,
} as const;
