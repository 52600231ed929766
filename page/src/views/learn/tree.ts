/** A lesson as the server sends it (`src/setpoint/view/course`). */

export type Inline =
  | string
  | { type: "code"; text: string }
  | { type: "strong" | "emphasis"; inline: Inline[] }
  | { type: "link"; href: string; inline: Inline[] }
  | { type: "image"; source: string; alt: string };

export type Block =
  | { type: "heading"; level: number; inline: Inline[] }
  | { type: "paragraph"; inline: Inline[] }
  | { type: "list"; ordered: boolean; start?: number; items: Block[][] }
  | { type: "code"; language: string; text: string }
  | { type: "table"; head: Inline[][]; rows: Inline[][][] }
  | { type: "quote"; blocks: Block[] }
  | { type: "rule" };

export interface Quiz {
  type: "quiz" | "predict";
  id: string;
  kind: "one" | "many" | "order" | "text";
  question: Block[];
  options: Inline[][];
  because: Block[];
  /** Positions of the right options; of steps, in their right order. */
  right: number[];
}

export interface Predict extends Quiz {
  type: "predict";
  run: string;
  faults: string[];
}

export type Part =
  | { type: "text"; blocks: Block[] }
  | { type: "run"; text: string; commands: string[]; fails: boolean }
  | { type: "file"; name: string; text: string }
  | { type: "check"; id: string; title: string; hints: number }
  | Quiz
  | Predict
  | { type: "reveal"; question: string; blocks: Block[] }
  | { type: "hint"; blocks: Block[] }
  | { type: "fault"; faults: string[] }
  | { type: "operator"; operator: string }
  | { type: "show"; view: string; object: string };

export interface Summary {
  type: "lesson";
  id: string;
  course: string;
  number: number;
  name: string;
  title: string;
  summary: string;
  minutes: number;
  met: number;
  total: number;
  began: boolean;
  done: boolean;
}

export interface CourseItem {
  type: "course";
  order: number;
  name: string;
  title: string;
  problems: string[];
}

export interface LessonTree {
  id: string;
  name: string;
  number: number;
  title: string;
  summary: string;
  minutes: number;
  show: { view: string; object: string } | null;
  parts: Part[];
  solution: { kind: string; text: string }[];
}

export interface Verdict {
  ok: boolean;
  message: string;
  note: string;
}

export interface Progress {
  /** When each check was met. */
  checks: Record<string, string>;
  answers: Record<string, number[] | string>;
  right: Record<string, boolean>;
  hints: Record<string, number>;
}

export interface Running {
  components: Record<string, boolean>;
  operators: string[];
  failures: Record<string, string>;
}

/** The text of inline elements without their form. */
export function plain(inline: Inline[]): string {
  return inline
    .map((one) => (typeof one === "string" ? one : "text" in one ? one.text : "inline" in one ? plain(one.inline) : one.alt))
    .join("");
}
