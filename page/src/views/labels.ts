/** The names of the views. The build puts them into the document, which is painted before any script runs. */
export const LABELS = {
  class: "Class",
  objects: "Objects",
  chain: "Chain",
  events: "Events",
  loops: "Loops",
  fleet: "Fleet",
  timeline: "Timeline",
  "what-if": "What if",
  learn: "Learn",
} as const;
