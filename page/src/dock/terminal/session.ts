/** One terminal: a shell on the server, shown by xterm. It outlives the panel, so that closing the panel loses nothing. */
import { signal } from "@preact/signals";
import { converse } from "../../link/hooks";
import { navigate } from "../../router";
import { openScreen } from "../../terminal/screen";
import type { Screen } from "../../terminal/screen";
import { visible } from "../../ui/text";
import { toast } from "../../ui/toast";
import { terminal as words } from "../../words/terminal";
import { closePanel, openPanel } from "../state";
import { TerminalConversation } from "./conversation";
import type { Message } from "./conversation";
import { screenReader } from "./settings";

/** Milliseconds after which a text that waits for its line is mentioned. */
const MENTION_AFTER = 700;

/** Earlier lines by logical cluster: all terminals share them, as on the server. */
const histories = new Map<string, string[]>();

export class TerminalSession {
  readonly host = document.createElement("div");
  /** The lines that the user wants to paste, until they agree. */
  readonly pasting = signal<string | null>(null);
  private screen: Screen | null = null;
  private conversation: TerminalConversation | null = null;
  private channel: { say(data: unknown): boolean; close(): void } | null = null;
  /** The number of the file that is edited for a command; 0 means none. */
  private editing = 0;

  constructor(
    /** Tells it from all other terminals of the tab. */
    readonly number: number,
    /** The path of the logical cluster. */
    readonly prefix: string,
    /** The number among those of the logical cluster, from 1. */
    readonly place: number,
  ) {
    this.host.className = "terminal-host";
    this.host.dataset.ownKeys = "";
  }

  get name(): string {
    const fork = /\/forks\/([\w.-]+)$/.exec(this.prefix)?.[1];
    return words.name(this.place) + (fork ? ` (${fork})` : "");
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
    this.channel?.close();
    this.channel = null;
    this.screen?.dispose();
    this.screen = this.conversation = null;
    this.detach();
  }

  /** Put a text on the line, without running it. */
  type(text: string): void {
    this.conversation?.type(text);
    this.focus();
    // Most commands end by themselves before anyone wonders where the text is.
    window.setTimeout(() => this.conversation?.isTextWaiting && toast(words.typedLater(visible(text))), MENTION_AFTER);
  }

  /** A key that the keyboard of a phone does not have. */
  press(keys: string): void {
    this.conversation?.take(keys);
    this.focus();
  }

  /** The user agreed to paste several lines. */
  paste(): void {
    const text = this.pasting.peek();
    this.pasting.value = null;
    if (text === null) return;
    this.conversation?.paste(text);
    this.focus();
  }

  readAloud(on: boolean): void {
    if (this.screen) this.screen.terminal.options.screenReaderMode = on;
    if (this.conversation) this.conversation.editor.suggests = !on;
  }

  private start(): void {
    const screen = openScreen(this.host, {
      label: words.label(this.name),
      screenReader: screenReader.peek(),
      convertEol: true,
      resized: (columns, rows) => {
        this.channel?.say({ size: [columns, rows] });
        this.conversation?.editor.resized();
      },
      leave: () => document.getElementById("dock-terminal")?.querySelector<HTMLElement>("[role=tab][aria-selected=true]")?.focus(),
    });
    let history = histories.get(this.prefix);
    if (!history) histories.set(this.prefix, (history = []));
    const conversation = new TerminalConversation(screen.terminal, history, {
      say: (data) => this.channel?.say(data),
      again: () => this.connect(screen, conversation),
      edit: (file) => this.edit(screen, file),
      open: ({ view, lesson }) => navigate({ view, kind: null, name: "", params: { lesson } }),
      exited: () => conversation.stop(words.ended),
    });
    this.screen = screen;
    this.conversation = conversation;
    screen.terminal.onData((data) => conversation.take(data));
    this.host.addEventListener("paste", (event) => this.pasted(event, conversation), { capture: true });
    screen.terminal.writeln(`\x1b[2m${words.welcome}\x1b[0m`);
    conversation.editor.suggests = !screenReader.peek();
    this.connect(screen, conversation);
  }

  private connect({ terminal }: Screen, conversation: TerminalConversation): void {
    conversation.begin();
    this.channel = converse(
      "terminal",
      { size: [terminal.cols, terminal.rows] },
      {
        message: (data) => conversation.receive(data as Message),
        end: (error) => {
          this.channel = null;
          const lost = error?.reason === "ConnectionLost" || !error;
          conversation.stop(lost ? words.lost : words.refused(visible(error.message ?? error.reason ?? "")));
        },
      },
      this.prefix,
    );
  }

  private edit({ terminal }: Screen, { id, path }: { id: number; path: string }): void {
    if (!path) {
      if (this.editing === id) closePanel("editor");
      this.editing = 0;
      return;
    }
    this.editing = id;
    terminal.write(`\x1b[2m${words.editing(visible(path))}\x1b[0m\r\n`);
    openPanel("editor", {
      path,
      prefix: this.prefix,
      done: () => {
        if (this.editing !== id) return;
        this.editing = 0;
        this.channel?.say({ edited: id, saved: true });
        this.focus();
      },
    });
  }

  private pasted(event: ClipboardEvent, conversation: TerminalConversation): void {
    const text = event.clipboardData?.getData("text/plain").replaceAll("\r\n", "\n") ?? "";
    if (!conversation.atPrompt || !text.trimEnd().includes("\n")) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    this.pasting.value = text.trimEnd();
  }
}
