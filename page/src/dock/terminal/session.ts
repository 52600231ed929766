/** One terminal: a shell on the server, shown by xterm. It outlives the panel, so that closing the panel loses nothing. */
import { signal } from "@preact/signals";
import { converse } from "../../link/hooks";
import { navigate } from "../../router";
import { LineEditor } from "../../terminal/line-editor";
import type { Completions } from "../../terminal/line-editor";
import { Pager } from "../../terminal/pager";
import { openScreen } from "../../terminal/screen";
import type { Screen } from "../../terminal/screen";
import { terminal as words } from "../../words/terminal";
import { closePanel, openPanel } from "../state";
import { screenReader } from "./settings";

interface Message {
  output?: string;
  prompt?: string;
  status?: number;
  unread?: string;
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

/** Earlier lines by logical cluster: all terminals share them, as on the server. */
const histories = new Map<string, string[]>();
const HISTORY_LENGTH = 1_000;

type Mode = "connecting" | "prompt" | "running" | "raw" | "paging" | "ended";

export class TerminalSession {
  readonly host = document.createElement("div");
  /** The lines that the user wants to paste, until they agree. */
  readonly pasting = signal<string | null>(null);
  private screen: Screen | null = null;
  private editor: LineEditor | null = null;
  private pager: Pager | null = null;
  private conversation: { say(data: unknown): boolean; close(): void } | null = null;
  private mode: Mode = "connecting";
  private lines = "";
  private toType = "";
  /** Keys that were typed before the prompt was shown. */
  private ahead = "";
  /** Keys of the unfinished line of input for a command that runs. */
  private unsent = "";
  private completing = new Map<number, (found: Completions | null) => void>();
  private lastId = 0;
  private readonly history: string[];

  constructor(
    readonly number: number,
    /** The path of the logical cluster. */
    readonly prefix: string,
  ) {
    this.host.className = "terminal-host";
    this.host.dataset.ownKeys = "";
    let history = histories.get(prefix);
    if (!history) histories.set(prefix, (history = []));
    this.history = history;
  }

  get name(): string {
    const fork = /\/forks\/([\w.-]+)$/.exec(this.prefix)?.[1];
    return words.name(this.number) + (fork ? ` (${fork})` : "");
  }

  /** Show the terminal in an element. */
  attach(parent: HTMLElement): void {
    parent.append(this.host);
    if (!this.screen) this.start();
    this.screen?.fit();
  }

  detach(): void {
    this.host.remove();
  }

  focus(): void {
    this.screen?.terminal.focus();
  }

  close(): void {
    this.conversation?.close();
    this.conversation = null;
    this.screen?.dispose();
    this.screen = null;
    this.detach();
  }

  /** Put a text on the line, without running it. */
  type(text: string): void {
    if (this.mode === "prompt" && this.editor) this.editor.set(text);
    else this.toType = text;
    this.focus();
  }

  /** A key that the keyboard of a phone does not have. */
  press(keys: string): void {
    this.take(keys);
    this.focus();
  }

  /** The user agreed to paste several lines. */
  paste(): void {
    const text = this.pasting.peek();
    this.pasting.value = null;
    if (text === null || !this.editor) return;
    this.editor.set(this.editor.line + text);
    this.editor.keys("\r");
    this.focus();
  }

  readAloud(on: boolean): void {
    if (this.screen) this.screen.terminal.options.screenReaderMode = on;
    if (this.editor) this.editor.suggests = !on;
  }

  // -- beginning ----------------------------------------------------------------------------------------------------

  private start(): void {
    const screen = openScreen(this.host, {
      label: words.label(this.name),
      screenReader: screenReader.peek(),
      convertEol: true,
      resized: (columns, rows) => {
        this.conversation?.say({ size: [columns, rows] });
        this.editor?.resized();
      },
      leave: () => document.getElementById("dock-terminal")?.querySelector<HTMLElement>("[role=tab][aria-selected=true]")?.focus(),
    });
    this.screen = screen;
    screen.terminal.onData((data) => this.take(data));
    this.host.addEventListener("paste", (event) => this.pasted(event), { capture: true });
    screen.terminal.writeln(`\x1b[2m${words.welcome}\x1b[0m`);
    this.editor = new LineEditor(screen.terminal, this.history, {
      enter: (line) => this.entered(line),
      interrupt: () => this.interrupted(),
      end: () => this.ended(),
      complete: (line) => this.complete(line),
      rest: (keys) => this.take(keys),
    });
    this.editor.suggests = !screenReader.peek();
    this.connect();
  }

  private connect(): void {
    const screen = this.screen;
    if (!screen) return;
    this.mode = "connecting";
    this.lines = "";
    const size = [screen.terminal.cols, screen.terminal.rows];
    this.conversation = converse(
      "terminal",
      { size },
      {
        message: (data) => this.receive(data as Message),
        end: (error) => {
          this.conversation = null;
          for (const answer of this.completing.values()) answer(null);
          this.completing.clear();
          if (this.mode === "ended") return;
          const lost = error?.reason === "ConnectionLost" || !error;
          this.stop(lost ? words.lost : words.refused(error.message ?? error.reason ?? ""));
        },
      },
      this.prefix,
    );
  }

  private stop(text: string): void {
    this.pager = null;
    this.editor?.stop();
    this.setRaw(false);
    this.mode = "ended";
    this.screen?.terminal.write(`\r\n\x1b[2m${text}\x1b[0m\r\n`);
  }

  // -- from the server ----------------------------------------------------------------------------------------------

  private receive(message: Message): void {
    const screen = this.screen?.terminal;
    if (!screen) return;
    if (message.output !== undefined) screen.write(message.output);
    else if (message.prompt !== undefined) this.prompted(message);
    else if (message.unread !== undefined) this.take(message.unread.replaceAll("\n", "\r"));
    else if (message.more) this.continued();
    else if (message.raw !== undefined) this.setRaw(message.raw);
    else if (message.completions) {
      this.completing.get(message.completions.id)?.(message.completions);
      this.completing.delete(message.completions.id);
    } else if (message.edit) this.edit(message.edit);
    else if (message.page) {
      this.mode = "paging";
      this.pager = new Pager(screen, message.page.name, message.page.text, () => {
        this.pager = null;
        this.mode = "running";
        this.conversation?.say({ paged: true });
      });
    } else if (message.page === null) {
      if (this.pager) screen.write("\r\x1b[J");
      this.pager = null;
      if (this.mode === "paging") this.mode = "running";
    } else if (message.open) {
      navigate({ view: message.open.view, kind: null, name: "", params: { lesson: message.open.lesson } });
    } else if (message.exit !== undefined) this.stop(words.ended);
  }

  private prompted(message: Message): void {
    for (const line of message.history ?? []) if (this.history.at(-1) !== line) this.history.push(line);
    this.history.splice(0, this.history.length - HISTORY_LENGTH);
    this.lines = "";
    this.mode = "prompt";
    this.directory = message.prompt ?? "~";
    this.editor?.stop();
    this.ahead = (message.unread ?? "").replaceAll("\n", "\r") + this.unsent + this.ahead;
    this.unsent = "";
    this.beginLine(`${this.directory} $ `);
  }

  private directory = "~";

  private continued(): void {
    this.lines += "\n";
    this.mode = "prompt";
    this.beginLine("> ");
  }

  /** Begin a line in the first column, also if the last output did not end with a line feed. */
  private beginLine(prompt: string): void {
    const screen = this.screen?.terminal;
    // xterm parses output in turns: the column is known when what was written before is parsed.
    screen?.write("", () => {
      if (screen.buffer.active.cursorX > 0) screen.write("\r\n");
      this.editor?.begin(prompt);
      const { ahead, toType } = this;
      this.ahead = this.toType = "";
      if (ahead) this.take(ahead);
      if (toType) this.editor?.set(toType);
    });
  }

  private setRaw(raw: boolean): void {
    const screen = this.screen?.terminal;
    if (raw) this.editor?.stop();
    if (raw || this.mode === "raw") this.mode = raw ? "raw" : "running";
    screen?.write("", () => (screen.options.convertEol = !raw));
  }

  private edit({ id, path }: { id: number; path: string }): void {
    if (!path) {
      if (this.editing === id) closePanel("editor");
      this.editing = 0;
      return;
    }
    this.editing = id;
    this.screen?.terminal.write(`\x1b[2m${words.editing(path)}\x1b[0m\r\n`);
    openPanel("editor", {
      path,
      prefix: this.prefix,
      done: () => {
        if (this.editing !== id) return;
        this.editing = 0;
        this.conversation?.say({ edited: id, saved: true });
        this.focus();
      },
    });
  }

  private editing = 0;

  // -- from the user ------------------------------------------------------------------------------------------------

  private take(data: string): void {
    switch (this.mode) {
      case "raw":
        this.conversation?.say({ input: data });
        return;
      case "paging":
        this.pager?.keys(data);
        return;
      case "ended":
        if (data === "\r") this.connect();
        return;
      case "running":
        if (data === "\x03") {
          this.unsent = "";
          this.editor?.stop();
          this.conversation?.say({ interrupt: true });
        } else if (data === "\x04" && !this.editor?.line) this.conversation?.say({ end: true });
        else if (this.editor) {
          this.unsent += data;
          if (!this.editor.isActive) this.editor.begin("");
          this.editor.keys(data);
        }
        return;
      default:
        if (this.editor?.isActive) this.editor.keys(data);
        else this.ahead += data;
    }
  }

  private pasted(event: ClipboardEvent): void {
    const text = event.clipboardData?.getData("text/plain").replaceAll("\r\n", "\n") ?? "";
    if (this.mode !== "prompt" || !text.trimEnd().includes("\n")) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    this.pasting.value = text.trimEnd();
  }

  private entered(line: string): void {
    if (this.mode === "running") {
      this.unsent = "";
      this.conversation?.say({ input: `${line}\n` });
      return;
    }
    this.lines += line;
    if (this.lines.trim() && this.history.at(-1) !== this.lines) this.history.push(this.lines);
    this.mode = "running";
    this.conversation?.say({ line: this.lines });
  }

  private interrupted(): void {
    if (this.mode === "running") {
      this.conversation?.say({ interrupt: true });
      return;
    }
    this.lines = "";
    this.beginLine(`${this.directory} $ `);
  }

  private ended(): void {
    if (this.mode === "running") this.conversation?.say({ end: true });
  }

  private complete(line: string): Promise<Completions | null> {
    const conversation = this.conversation;
    if (!conversation || this.mode !== "prompt") return Promise.resolve(null);
    const id = ++this.lastId;
    return new Promise((answer) => {
      this.completing.set(id, answer);
      window.setTimeout(() => {
        if (this.completing.delete(id)) answer(null);
      }, 5_000);
      conversation.say({ complete: line, id });
    });
  }
}
