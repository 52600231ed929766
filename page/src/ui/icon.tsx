/** Line icons on a grid of 24, drawn with the colour of the text. They are decoration: a label stands beside each. */
const PATHS: Record<string, string> = {
  class: "M3 8l9-4 9 4-9 4zM7 10v5c3 2.500 7 2.500 10 0v-5M21 8v6",
  objects: "M4 5h16M4 12h16M4 19h16M8 5v0M8 12v0",
  chain: "M5 4h5v5H5zM14 15h5v5h-5zM7.500 9v5a3 3 0 0 0 3 3H14",
  loops: "M4 12a8 8 0 0 1 13.700-5.600L20 8.500M20 4v4.500h-4.500M20 12a8 8 0 0 1-13.700 5.600L4 15.500M4 20v-4.500h4.500",
  fleet: "M4 4h4v4H4zM10 4h4v4h-4zM16 4h4v4h-4zM4 10h4v4H4zM10 10h4v4h-4zM16 10h4v4h-4zM4 16h4v4H4zM10 16h4v4h-4zM16 16h4v4h-4z",
  timeline: "M3 17h18M7 17V9M12 17V5M17 17v-5",
  learn: "M12 6c-2-1.500-5-2-8-2v14c3 0 6 .500 8 2 2-1.500 5-2 8-2V4c-3 0-6 .500-8 2zM12 6v14",
  "what-if": "M6 3v12M6 9c0 0 0 3 6 3s6 3 6 3v0M6 21a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM18 21a3 3 0 1 0 0-6 3 3 0 0 0 0 6z",
  story: "M4 5h16v11H10l-4 4v-4H4zM8 9h8M8 12h5",
  events: "M6 9a6 6 0 0 1 12 0c0 6 2 7 2 7H4s2-1 2-7M10 20a2 2 0 0 0 4 0",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM20 20l-4-4",
  help: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM9.500 9.500a2.500 2.500 0 1 1 3.500 2.300c-.700.300-1 .900-1 1.700M12 17v0",
  person: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4 21a8 8 0 0 1 16 0",
  light: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.500 1.500M17.500 17.500L19 19M5 19l1.500-1.500M17.500 6.500L19 5",
  dark: "M20 14.500A8.500 8.500 0 0 1 9.500 4a8.500 8.500 0 1 0 10.500 10.500z",
  auto: "M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18M15 7v10",
  close: "M6 6l12 12M18 6L6 18",
  menu: "M4 6h16M4 12h16M4 18h16",
  more: "M6 12v0M12 12v0M18 12v0",
  up: "M6 15l6-6 6 6",
  down: "M6 9l6 6 6-6",
  left: "M15 6l-6 6 6 6",
  right: "M9 6l6 6-6 6",
  terminal: "M4 5h16v14H4zM7.500 9.500L10 12l-2.500 2.500M12.500 15H16",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  editor: "M6 3h9l4 4v14H6zM14 3v5h5M9 12h7M9 16h5",
  trash: "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13M10 11v5M14 11v5",
  clock: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v5l3 2",
  pause: "M8 5v14M16 5v14",
  play: "M7 5l12 7-12 7z",
  step: "M6 5l9 7-9 7zM18 5v14",
  faults: "M13 3L5 14h6l-1 7 8-11h-6z",
  warning: "M12 4l9 16H3zM12 10v4M12 17v0",
  info: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 11v5M12 8v0",
  check: "M5 12.500l4.500 4.500L19 7.500",
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  fit: "M4 9V4h5M15 4h5v5M20 15v5h-5M9 20H4v-5",
  open: "M14 4h6v6M20 4l-9 9M18 14v6H4V6h6",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
};

export function Icon({ name }: { name: string }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={PATHS[name] ?? PATHS.info} />
    </svg>
  );
}
