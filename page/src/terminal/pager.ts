/** Shows a long text page by page in a terminal, as `less` does. */
import type { Terminal } from "@xterm/xterm";
import { terminal as words } from "../words/terminal";
import { visible } from "../ui/text";
import { firstKey } from "./line-editor";
import { characterWidth } from "./width";

export class Pager {
  private readonly lines: string[];
  private top = 0;

  constructor(
    private readonly screen: Terminal,
    private readonly name: string,
    text: string,
  ) {
    this.lines = wrapped(text, screen.cols);
    if (this.fits) screen.write(`${text.replaceAll("\n", "\r\n")}${text.endsWith("\n") ? "" : "\r\n"}`);
    else this.draw();
  }

  /** Whether the whole text is on the screen, so that there is nothing to turn. */
  get fits(): boolean {
    return this.lines.length < this.screen.rows;
  }

  /** Take keys up to the one that ends the pager. Returns the keys behind it, and null while the pager goes on. */
  keys(data: string): string | null {
    for (let rest = data; rest; ) {
      const key = firstKey(rest);
      rest = rest.slice(key.length);
      if (key === "q" || key === "Q" || key === "\x03" || key === "\x1b") {
        this.screen.write("\r\x1b[J");
        return rest;
      }
      this.turn(key);
    }
    return null;
  }

  private turn(key: string): void {
    const page = this.screen.rows - 1;
    const steps: Record<string, number> = {
      " ": page,
      f: page,
      "\x1b[6~": page,
      "\r": 1,
      j: 1,
      "\x1b[B": 1,
      b: -page,
      "\x1b[5~": -page,
      k: -1,
      "\x1b[A": -1,
      g: -this.lines.length,
      "\x1b[H": -this.lines.length,
      G: this.lines.length,
      "\x1b[F": this.lines.length,
    };
    const step = steps[key];
    if (step === undefined) return;
    this.top = Math.max(0, Math.min(this.top + step, this.lines.length - page));
    this.draw();
  }

  private draw(): void {
    const page = this.screen.rows - 1;
    const shown = this.lines.slice(this.top, this.top + page);
    const end = this.top + page;
    const status =
      end >= this.lines.length ? words.pagerEnd(visible(this.name)) : words.pager(visible(this.name), Math.round((end / this.lines.length) * 100));
    this.screen.write(`\x1b[H\x1b[2J${shown.join("\r\n")}\r\n\x1b[7m${status.slice(0, this.screen.cols - 1)}\x1b[0m`);
  }
}

/** Cut lines at the width of the screen; control sequences take no columns. */
function wrapped(text: string, width: number): string[] {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  const found: string[] = [];
  for (const line of lines) {
    let part = "";
    let column = 0;
    for (const token of line.match(/\x1b\[[0-9;:]*[A-Za-z]|[^]/gu) ?? []) {
      const size = token.startsWith("\x1b") ? 0 : characterWidth(token);
      if (column + size > width) {
        found.push(part);
        part = "";
        column = 0;
      }
      part += token === "\t" ? " " : token;
      column += size;
    }
    found.push(part);
  }
  return found;
}
