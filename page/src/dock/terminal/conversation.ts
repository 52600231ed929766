/**
 * The page's side of the conversation with a shell: what a typed key means, and what the server answers. The messages
 * are those of `src/setpoint/cli/page_terminal/conversation.py`.
 *
 * What is typed is kept in order in every state: keys that belong to a line that cannot be edited yet wait for it.
 */
import type { Terminal } from "@xterm/xterm";
import type { Completions } from "../../terminal/completions";
import { LineEditor } from "../../terminal/line-editor";
import { Pager } from "../../terminal/pager";
import { TypedInput } from "../../terminal/typed-input";
import { printable } from "../../ui/text";

export interface Message {
  output?: string;
  prompt?: string;
  status?: number;
  read?: number;
  history?: string[];
  more?: true;
  busy?: true;
  raw?: boolean;
  completions?: Completions & { id: number };
  edit?: { id: number; path: string };
  page?: { name: string; text: string } | null;
  open?: { view: string; lesson: string };
  exit?: number;
}

export interface Handlers {
  say(data: unknown): void;
  /** Enter was pressed after the end of the conversation. */
  again(): void;
  /** Edit a file of the workspace; without a path: its editor is not needed any more. */
  edit(edit: { id: number; path: string }): void;
  open(place: { view: string; lesson: string }): void;
  /** The shell has ended. */
  exited(): void;
}

type Mode = "connecting" | "prompt" | "running" | "raw" | "paging" | "ended";

const HISTORY_LENGTH = 1_000;
const COMPLETION_TIMEOUT = 5_000;
const INTERRUPT = "\x03";
const END_OF_INPUT = "\x04";

export class TerminalConversation {
  readonly editor: LineEditor;
  private readonly input: TypedInput;
  private pager: Pager | null = null;
  private mode: Mode = "connecting";
  private directory = "~";
  /** The lines before the current one, if the command is not complete. */
  private lines = "";
  /** A text for the next line, which the user did not type. */
  private toType = "";
  /** Keys for the next line, which is not shown yet. */
  private ahead = "";
  /** Counts the lines that were begun: the latest is the one that is edited. */
  private begun = 0;
  private completing = new Map<number, (found: Completions | null) => void>();
  private lastId = 0;

  constructor(
    private readonly screen: Terminal,
    private readonly history: string[],
    private readonly handlers: Handlers,
  ) {
    this.input = new TypedInput((text) => handlers.say({ input: text }));
    this.editor = new LineEditor(screen, history, {
      enter: (line) => this.entered(line),
      interrupt: () => this.interrupted(),
      end: () => this.ended(),
      complete: (line) => this.complete(line),
      rest: (keys) => this.take(keys),
    });
  }

  get atPrompt(): boolean {
    return this.mode === "prompt";
  }

  /** A conversation begins; what is typed from now on waits for its prompt. */
  begin(): void {
    this.mode = "connecting";
    this.lines = "";
  }

  /** The conversation is over: show why. */
  stop(text: string): void {
    for (const answer of this.completing.values()) answer(null);
    this.completing.clear();
    if (this.mode === "ended") return;
    this.pager = null;
    this.editor.stop();
    this.setRaw(false);
    this.mode = "ended";
    this.ahead = this.toType = "";
    this.screen.write(`\r\n\x1b[2m${text}\x1b[0m\r\n`);
  }

  // -- from the server ----------------------------------------------------------------------------------------------

  receive(message: Message): void {
    if (message.output !== undefined) this.editor.output(message.output);
    else if (message.prompt !== undefined) this.prompted(message.prompt, message);
    else if (message.more) this.continued();
    else if (message.read !== undefined) this.input.acknowledge(message.read);
    else if (message.raw !== undefined) this.setRaw(message.raw);
    else if (message.completions) {
      this.completing.get(message.completions.id)?.(message.completions);
      this.completing.delete(message.completions.id);
    } else if (message.edit) this.handlers.edit(message.edit);
    else if (message.page) this.paged(message.page);
    else if (message.page === null) {
      if (this.pager) this.screen.write("\r\x1b[J");
      this.pager = null;
      if (this.mode === "paging") this.mode = "running";
    } else if (message.open) this.handlers.open(message.open);
    else if (message.exit !== undefined) this.handlers.exited();
  }

  private prompted(directory: string, { history = [], read = 0 }: Message): void {
    for (const line of history) if (this.history.at(-1) !== line) this.history.push(line);
    this.history.splice(0, this.history.length - HISTORY_LENGTH);
    this.lines = "";
    this.directory = printable(directory);
    this.beginLine(`${this.directory} $ `, read);
  }

  private continued(): void {
    this.lines += "\n";
    this.beginLine("> ", 0);
  }

  /**
   * Begin a line in the first column, also if the last output did not end with a line feed. `read`: the position up to
   * which a command has read what was typed; the rest is typed into the line.
   */
  private beginLine(prompt: string, read: number): void {
    const unfinished = this.mode === "running" && this.editor.isActive ? this.editor.typed : "";
    this.ahead = this.input.rest(read).replaceAll("\n", "\r") + unfinished + this.ahead;
    this.mode = "prompt";
    this.editor.stop();
    const line = ++this.begun;
    // xterm parses output in turns: the column is known when what was written before is parsed.
    this.screen.write("", () => {
      if (this.mode !== "prompt" || line !== this.begun) return;
      if (this.screen.buffer.active.cursorX > 0) this.screen.write("\r\n");
      this.editor.begin(prompt);
      const { ahead } = this;
      this.ahead = "";
      if (ahead) this.take(ahead);
      if (this.toType) this.type(this.toType);
    });
  }

  private setRaw(raw: boolean): void {
    if (raw && this.mode === "running") {
      // The program reads what was typed of the line; there is nothing to edit any more.
      if (this.editor.isActive && this.editor.line) this.input.add(this.editor.line);
      this.editor.stop();
    }
    if (raw || this.mode === "raw") this.mode = raw ? "raw" : "running";
    this.screen.write("", () => (this.screen.options.convertEol = !raw));
  }

  private paged({ name, text }: { name: string; text: string }): void {
    this.pager = new Pager(this.screen, name, text);
    this.mode = "paging";
    if (this.pager.fits) this.endPager();
  }

  private endPager(): void {
    this.pager = null;
    this.mode = "running";
    this.handlers.say({ paged: true });
  }

  // -- from the user ------------------------------------------------------------------------------------------------

  /** Take what is typed. */
  take(data: string): void {
    for (let keys = data; keys; ) keys = this.takeSome(keys);
  }

  /** Take what is typed, up to the key that changes the meaning of those behind it; return those. */
  private takeSome(keys: string): string {
    switch (this.mode) {
      case "raw":
        this.input.add(keys);
        return "";
      case "paging": {
        const rest = this.pager?.keys(keys) ?? null;
        if (rest !== null) this.endPager();
        return rest ?? "";
      }
      case "ended":
        if (keys === "\r") this.handlers.again();
        return "";
      case "running":
        if (keys.startsWith(INTERRUPT)) {
          this.editor.stop();
          this.input.interrupt();
          return keys.slice(1);
        }
        if (!this.editor.isActive) this.editor.beginInput();
        return this.editor.keys(keys);
      default:
        if (this.editor.isActive) return this.editor.keys(keys);
        this.ahead += keys;
        return "";
    }
  }

  /** Whether a text that was put on the line waits for the end of a command. */
  get isTextWaiting(): boolean {
    return this.toType !== "" && this.mode !== "prompt" && this.mode !== "connecting";
  }

  /** Put a text on the line, or on the next one if a command runs, without running it. */
  type(text: string): void {
    const ready = this.mode === "prompt" && this.editor.isActive;
    this.toType = ready ? "" : text;
    if (ready) this.editor.set(text);
  }

  /** Run a text of several lines behind what was typed. */
  paste(text: string): void {
    if (this.mode === "prompt" && this.editor.isActive) {
      this.editor.set(this.editor.line + text);
      this.take("\r");
    } else this.take(`${text.replaceAll("\n", "\r")}\r`);
  }

  private entered(line: string): void {
    if (this.mode === "running") {
      this.input.add(`${line}\n`);
      return;
    }
    this.lines += line;
    if (this.lines.trim() && this.history.at(-1) !== this.lines) this.history.push(this.lines);
    this.mode = "running";
    this.input.begin();
    this.handlers.say({ line: this.lines });
  }

  private interrupted(): void {
    if (this.mode === "running") {
      this.input.interrupt();
      return;
    }
    this.lines = "";
    this.beginLine(`${this.directory} $ `, 0);
  }

  private ended(): void {
    if (this.mode === "running") this.input.add(END_OF_INPUT);
  }

  private complete(line: string): Promise<Completions | null> | null {
    if (this.mode !== "prompt") return null;
    const id = ++this.lastId;
    return new Promise((answer) => {
      this.completing.set(id, answer);
      setTimeout(() => {
        if (this.completing.delete(id)) answer(null);
      }, COMPLETION_TIMEOUT);
      this.handlers.say({ complete: line, id });
    });
  }
}
