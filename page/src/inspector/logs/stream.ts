/** The lines of one or more logs while they arrive. */
import { signal } from "@preact/signals";
import { converse } from "../../link/hooks";
import { logs as words } from "../../words/logs";

export interface LogLine {
  source: number;
  text: string;
}

export interface Source {
  pod: string;
  container: string;
}

interface Message {
  sources?: Source[];
  lines?: [number, string][];
  ended?: number;
  message?: string;
  more?: number;
}

/** Lines that are kept; of more, the earliest are dropped. */
const MOST = 20_000;
const SEQUENCES = /\x1b\[[0-9;:]*[@-~]|\x1b[78]/g;

export class LogStream {
  lines: LogLine[] = [];
  readonly sources: Source[] = [];
  /** Grows with each change. */
  readonly revision = signal(0);
  dropped = 0;
  more = 0;
  notes: string[] = [];
  done = false;
  private readonly conversation: { close(): void };
  private frame = 0;

  constructor(args: object, prefix: string) {
    this.conversation = converse(
      "logs",
      args,
      {
        message: (data) => this.receive(data as Message),
        end: (error) => {
          this.done = true;
          if (error) this.notes.push(error.reason === "ConnectionLost" ? words.lost : (error.message ?? ""));
          this.changed();
        },
      },
      prefix,
    );
  }

  name(source: number): string {
    const found = this.sources[source];
    if (!found) return "";
    const several = this.sources.some((each) => each.pod !== found.pod);
    const containers = this.sources.some((each) => each.pod === found.pod && each.container !== found.container);
    if (!several) return found.container;
    return containers ? `${found.pod}/${found.container}` : found.pod;
  }

  close(): void {
    cancelAnimationFrame(this.frame);
    this.conversation.close();
  }

  private receive(message: Message): void {
    if (message.sources) this.sources.push(...message.sources);
    if (message.lines) {
      for (const [source, text] of message.lines) this.lines.push({ source, text: text.replace(SEQUENCES, "") });
      const over = this.lines.length - MOST;
      if (over > 0) {
        this.lines = this.lines.slice(over);
        this.dropped += over;
      }
    }
    if (message.ended !== undefined) this.notes.push(words.ended(this.name(message.ended), message.message ?? ""));
    if (message.more !== undefined) this.more = message.more;
    this.changed();
  }

  private changed(): void {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.revision.value += 1;
    });
  }
}
