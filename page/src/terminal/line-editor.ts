/**
 * Edits the line at the end of a terminal: the keys of readline, a history with search, and completion.
 *
 * It knows nothing of the connection: `Line.keys` takes what is typed, and calls back.
 */
import type { Terminal } from "@xterm/xterm";
import { printable } from "../ui/text";
import { terminal as words } from "../words/terminal";
import { columns, commonStart, described, quoted, unquoted } from "./completions";
import type { Completions } from "./completions";
import { layout, textWidth } from "./width";

export interface LineHandlers {
  /** Enter: the whole line. */
  enter(line: string): void;
  interrupt(): void;
  /** Ctrl-D on an empty line. */
  end(): void;
  /** The completions of a line; null if there are none here. */
  complete(line: string): Promise<Completions | null> | null;
  /** Keys behind the one that ended the line, typed while a completion was awaited. */
  rest(keys: string): void;
}

const KEYS: Record<string, string> = {
  "\x1b[D": "left",
  "\x1bOD": "left",
  "\x02": "left",
  "\x1b[C": "right",
  "\x1bOC": "right",
  "\x06": "right",
  "\x1b[1;5D": "word-left",
  "\x1bb": "word-left",
  "\x1b[1;5C": "word-right",
  "\x1bf": "word-right",
  "\x1b[H": "home",
  "\x1bOH": "home",
  "\x01": "home",
  "\x1b[F": "end",
  "\x1bOF": "end",
  "\x05": "end",
  "\x1b[A": "up",
  "\x1bOA": "up",
  "\x10": "up",
  "\x1b[B": "down",
  "\x1bOB": "down",
  "\x0e": "down",
  "\x7f": "backspace",
  "\b": "backspace",
  "\x1b[3~": "delete",
  "\x15": "kill-start",
  "\x0b": "kill-end",
  "\x17": "kill-word",
  "\x1b\x7f": "kill-word",
  "\x19": "yank",
  "\x0c": "clear",
  "\x12": "search",
  "\x07": "cancel",
  "\x1b": "cancel",
  "\x03": "interrupt",
  "\x04": "eof",
  "\t": "tab",
  "\r": "enter",
  "\n": "enter",
};
const SEQUENCE = /^(?:\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Z]|\x1b[bf\x7f]|\x1b)/;

/** The first key of what was typed: a character, or the sequence of a key. */
export function firstKey(data: string): string {
  return SEQUENCE.exec(data)?.[0] ?? String.fromCodePoint(data.codePointAt(0) ?? 0);
}

export class LineEditor {
  private text = "";
  /** The position of the cursor, in UTF-16 units. */
  private at = 0;
  private prompt = "";
  /** The column in which the line begins: behind what a command has written, or 0. */
  private column = 0;
  private rowsAbove = 0;
  private active = false;
  /** Whether the line is not drawn: it is not known yet where the output before it ends. */
  private hidden = false;
  /** Counts the attempts to find the end of the output; only the latest counts. */
  private placing = 0;
  private historyAt = -1;
  private draft = "";
  private killed = "";
  private searching: string | null = null;
  private tabs = 0;
  private suggested = "";
  /** Whether to show the rest of an earlier line behind the cursor. Confusing when it is read aloud. */
  suggests = true;
  /** Keys that came while a completion was awaited. */
  private waiting: string | null = null;
  private pressed = "";

  constructor(
    private readonly screen: Terminal,
    private readonly history: string[],
    private readonly handlers: LineHandlers,
  ) {}

  get isActive(): boolean {
    return this.active;
  }

  get line(): string {
    return this.text;
  }

  /** The keys that made the line, as they were typed; empty after the end of the line. */
  get typed(): string {
    return this.pressed;
  }

  /** Show a prompt in the first column and let the user type. */
  begin(prompt: string): void {
    this.reset(prompt);
    this.draw();
  }

  /** Let the user type input for a command that runs, behind what it has written: that may be a question. */
  beginInput(): void {
    this.reset("");
    this.hidden = true;
    this.place();
  }

  /** Write what a command prints. The input that is being typed stays behind it. */
  output(text: string): void {
    const isInput = this.active && !this.prompt;
    if (isInput && !this.hidden) {
      this.screen.write(`${this.toStart()}\x1b[J`);
      this.hidden = true;
    }
    this.screen.write(text);
    if (isInput) this.place();
  }

  private reset(prompt: string): void {
    this.prompt = prompt;
    this.text = "";
    this.pressed = "";
    this.at = this.column = this.rowsAbove = 0;
    this.historyAt = -1;
    this.searching = null;
    this.active = true;
    this.hidden = false;
    this.placing += 1;
  }

  /** Draw the line where the output ends: xterm parses it in turns, and knows the column then. */
  private place(): void {
    const turn = ++this.placing;
    this.screen.write("", () => {
      if (turn !== this.placing || !this.active) return;
      const column = this.screen.buffer.active.cursorX;
      if (column >= this.screen.cols) this.screen.write("\r\n");
      this.column = column % this.screen.cols;
      this.rowsAbove = 0;
      this.hidden = false;
      this.draw();
    });
  }

  /** Stop editing; what is shown stays. */
  stop(): void {
    this.active = false;
  }

  /** The terminal has another width: the prompt is drawn anew. */
  resized(): void {
    if (!this.active) return;
    this.rowsAbove = 0;
    this.column = Math.min(this.column, this.screen.cols - 1);
    this.draw();
  }

  /** Replace the line, as if it was typed. */
  set(text: string): void {
    this.text = text;
    this.at = text.length;
    this.draw();
  }

  /** Take what was typed, up to the key that ends the line; return the keys behind it. */
  keys(data: string): string {
    let rest = data;
    while (rest && (this.active || this.waiting)) {
      if (this.waiting) {
        this.waiting += rest;
        return "";
      }
      const one = firstKey(rest);
      rest = rest.slice(one.length);
      const key = KEYS[one];
      this.pressed += one;
      if (key !== "tab") this.tabs = 0;
      if (this.searching !== null && this.searchKey(key, one)) continue;
      if (key) this.press(key);
      else if (one >= " ") this.insert(one);
    }
    return rest;
  }

  // -- keys ---------------------------------------------------------------------------------------------------------

  private insert(text: string): void {
    const atEnd = this.at === this.text.length;
    this.text = this.text.slice(0, this.at) + text + this.text.slice(this.at);
    this.at += text.length;
    // The common case needs no drawing, unless the line reaches the edge.
    const column = (this.column + textWidth(this.prompt) + textWidth(printable(this.text.slice(0, this.at)))) % this.screen.cols;
    if (atEnd && !this.hidden && column > 1 && !text.includes("\n") && !this.suggested && !this.suggestion()) this.screen.write(printable(text));
    else this.draw();
  }

  private press(key: string): void {
    switch (key) {
      case "left":
        this.move(this.before(this.at));
        break;
      case "right":
        if (!this.accept()) this.move(this.after(this.at));
        break;
      case "word-left":
        this.move(this.wordBefore());
        break;
      case "word-right":
        this.move(this.wordAfter());
        break;
      case "home":
        this.move(0);
        break;
      case "end":
        if (!this.accept()) this.move(this.text.length);
        break;
      case "up":
        this.recall(1);
        break;
      case "down":
        this.recall(-1);
        break;
      case "backspace":
        this.remove(this.before(this.at), this.at);
        break;
      case "delete":
        this.remove(this.at, this.after(this.at));
        break;
      case "kill-start":
        this.kill(0, this.at);
        break;
      case "kill-end":
        this.kill(this.at, this.text.length);
        break;
      case "kill-word":
        this.kill(this.wordBefore(), this.at);
        break;
      case "yank":
        this.insert(this.killed);
        break;
      case "clear":
        this.screen.write("\x1b[H\x1b[2J");
        this.rowsAbove = this.column = 0;
        this.draw();
        break;
      case "search":
        this.searching = "";
        this.draw();
        break;
      case "interrupt":
        if (this.prompt) this.finish("^C");
        else this.stop(); // the command that is interrupted shows it
        this.handlers.interrupt();
        break;
      case "eof":
        if (this.text) this.remove(this.at, this.after(this.at));
        else {
          this.pressed = "";
          this.handlers.end();
        }
        break;
      case "tab":
        void this.complete();
        break;
      case "enter": {
        const line = this.text;
        this.finish("");
        this.handlers.enter(line);
        break;
      }
    }
  }

  private finish(mark: string): void {
    this.at = this.text.length;
    this.searching = null;
    this.active = false;
    this.pressed = "";
    if (this.hidden) this.screen.write(printable(this.text).replaceAll("\n", "\r\n"));
    this.draw();
    this.screen.write(`${mark}\r\n`);
  }

  private move(to: number): void {
    this.at = to;
    this.draw();
  }

  private remove(from: number, to: number): void {
    if (from === to) return;
    this.text = this.text.slice(0, from) + this.text.slice(to);
    this.at = from;
    this.draw();
  }

  private kill(from: number, to: number): void {
    if (from !== to) this.killed = this.text.slice(from, to);
    this.remove(from, to);
  }

  private before(at: number): number {
    const code = this.text.charCodeAt(at - 1);
    return Math.max(at - (code >= 0xdc00 && code <= 0xdfff ? 2 : 1), 0);
  }

  private after(at: number): number {
    const code = this.text.charCodeAt(at);
    return Math.min(at + (code >= 0xd800 && code <= 0xdbff ? 2 : 1), this.text.length);
  }

  private wordBefore(): number {
    return this.text.slice(0, this.at).replace(/\S+\s*$/, "").length;
  }

  private wordAfter(): number {
    return this.at + (/^\s*\S+/.exec(this.text.slice(this.at))?.[0].length ?? 0);
  }

  // -- history ------------------------------------------------------------------------------------------------------

  private recall(step: number): void {
    const to = this.historyAt + step;
    if (to < -1 || to >= this.history.length) return;
    if (this.historyAt === -1) this.draft = this.text;
    this.historyAt = to;
    this.set(to === -1 ? this.draft : (this.history[this.history.length - 1 - to] ?? ""));
  }

  /** Whether the key belongs to the search. */
  private searchKey(key: string | undefined, typed: string): boolean {
    const sought = this.searching ?? "";
    if (key === undefined && typed >= " ") this.searching = sought + typed;
    else if (key === "backspace") this.searching = sought.slice(0, -1);
    else if (key === "search") {
      this.find(this.historyAt + 1);
      return true;
    } else if (key === "cancel") {
      this.searching = null;
      this.draw();
      return true;
    } else {
      this.searching = null;
      this.draw();
      return false;
    }
    this.find(0);
    return true;
  }

  private find(from: number): void {
    const sought = this.searching ?? "";
    for (let at = Math.max(from, 0); at < this.history.length; at += 1) {
      const line = this.history[this.history.length - 1 - at] ?? "";
      if (sought && !line.includes(sought)) continue;
      this.historyAt = at;
      this.text = line;
      this.at = line.length;
      break;
    }
    this.draw();
  }

  /** The rest of the latest line that begins like this one; empty if there is none. */
  private suggestion(): string {
    if (!this.suggests || !this.active || this.searching !== null || !this.prompt || this.text.length < 2 || this.at < this.text.length) return "";
    for (let at = this.history.length - 1; at >= 0; at -= 1) {
      const line = this.history[at] ?? "";
      if (line.startsWith(this.text) && line.length > this.text.length && !line.includes("\n")) return line.slice(this.text.length);
    }
    return "";
  }

  /** Take over what is suggested. */
  private accept(): boolean {
    const rest = this.at === this.text.length ? this.suggestion() : "";
    if (rest) this.set(this.text + rest);
    return rest !== "";
  }

  // -- completion ---------------------------------------------------------------------------------------------------

  private async complete(): Promise<void> {
    this.tabs += 1;
    const before = this.text.slice(0, this.at);
    const list = this.tabs > 1;
    const asked = this.handlers.complete(before);
    if (!asked) return;
    this.waiting = "";
    const found = await asked;
    const typed = this.waiting;
    this.waiting = null;
    if (found && this.active && this.text.slice(0, this.at) === before) this.apply(found, list);
    const rest = this.keys(typed);
    if (rest) this.handlers.rest(rest);
  }

  private apply(found: Completions, list: boolean): void {
    const typed = this.text.slice(found.start, this.at);
    const names = found.words.map(([word]) => word);
    const common = names.length > 0 ? names.reduce(commonStart) : "";
    const single = names.length === 1 && found.total === 1;
    if (single || (common.length > typed.length && common.startsWith(unquoted(typed)))) {
      const rest = this.text.slice(this.at);
      const added = quoted(common) + (single && found.space ? " " : "");
      this.text = this.text.slice(0, found.start) + added + rest;
      this.at = found.start + added.length;
      if (single) this.tabs = 0;
      this.draw();
      return;
    }
    if (names.length > 1 && list) this.show(found);
  }

  private show(found: Completions): void {
    const at = this.at;
    this.at = this.text.length;
    this.draw();
    const lines = found.words.some(([, about]) => about) ? described(found, this.screen.cols) : columns(found, this.screen.cols);
    const most = Math.max(this.screen.rows - 2, 5);
    const shown = lines.slice(0, most);
    const left = found.total - (lines.length > most ? Math.floor((most / lines.length) * found.words.length) : found.words.length);
    if (left > 0) shown.push(words.moreCompletions(left));
    this.screen.write(`\r\n${shown.join("\r\n")}\r\n`);
    this.rowsAbove = 0;
    this.at = at;
    this.draw();
  }

  // -- drawing ------------------------------------------------------------------------------------------------------

  /** The sequence that moves the cursor to the beginning of the line. */
  private toStart(): string {
    const up = this.rowsAbove > 0 ? `\x1b[${this.rowsAbove}A` : "";
    return `${up}\r${this.column > 0 ? `\x1b[${this.column}C` : ""}`;
  }

  private draw(): void {
    if (this.hidden) return;
    const prompt = this.searching === null ? this.prompt : words.search(printable(this.searching));
    const text = printable(this.text);
    const width = this.screen.cols;
    const coloured = this.searching === null && prompt ? `\x1b[1;34m${prompt}\x1b[0m` : prompt;
    const whole = layout(plain(prompt) + text, width, this.column);
    const cursor = layout(plain(prompt) + text.slice(0, this.at), width, this.column);
    let output = `${this.toStart()}\x1b[J${coloured}${text.replaceAll("\n", "\r\n")}`;
    // A line that ends at the edge leaves the cursor there: move it on.
    if (whole.column === 0 && whole.row > 0 && !this.text.endsWith("\n")) output += "\r\n";
    this.suggested = printable(this.suggestion());
    if (this.suggested) output += `\x1b[2m${this.suggested.slice(0, Math.max(width - whole.column - 1, 0))}\x1b[0m`;
    const up = whole.row - cursor.row;
    if (up > 0) output += `\x1b[${up}A`;
    output += `\r${cursor.column > 0 ? `\x1b[${cursor.column}C` : ""}`;
    this.rowsAbove = cursor.row;
    this.screen.write(output);
  }
}

function plain(text: string): string {
  return text.replace(/\x1b\[[0-9;]*m/g, "");
}
