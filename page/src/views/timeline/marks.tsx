/** What the marks of the timeline mean. */
import { timeline as words } from "../../words/timeline";

const PATHS: Record<string, string> = {
  created: "M7 3a4 4 0 1 0 0 8 4 4 0 0 0 0-8z",
  spec: "M7 2l5 5-5 5-5-5z",
  metadata: "M7 2l5 5-5 5-5-5z",
  status: "M7 3a4 4 0 1 0 0 8 4 4 0 0 0 0-8z",
  deleted: "M3 3l8 8M11 3l-8 8",
};

export function Mark({ part }: { part: string }) {
  return (
    <svg class={`timeline-mark ${part}`} viewBox="0 0 14 14" aria-hidden="true" focusable="false">
      <path d={PATHS[part] ?? PATHS.spec} />
    </svg>
  );
}

export function Marks() {
  return (
    <ul class="timeline-marks" aria-label={words.partsLabel}>
      {Object.entries(words.parts).map(([part, label]) => (
        <li key={part}>
          <Mark part={part} />
          {label}
        </li>
      ))}
      <li>
        <svg class="timeline-mark several" viewBox="0 0 14 14" aria-hidden="true" focusable="false">
          <path d="M3 11V7h3v4zM8 11V3h3v8z" />
        </svg>
        {words.several}
      </li>
    </ul>
  );
}
