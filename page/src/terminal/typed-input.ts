/**
 * What is typed while a command runs.
 *
 * The page keeps every character until the server says that a command has read it. When the line ends, the server says
 * how much of its input was read, and the rest belongs to the next line: also what is on its way at that moment, which
 * the server drops. So the order of what was typed never depends on what crosses what.
 *
 * Positions count the characters (code points) that were sent since the line began.
 */

/** Characters that the server takes ahead of what is read. */
export const WINDOW = 32 * 1024;
const INTERRUPT = "\x03";

export class TypedInput {
  /** What was not read, as far as is known: first what was sent, then what waits to be sent. */
  private kept: string[] = [];
  /** The position of the first kept character. */
  private start = 0;
  /** The position behind the last character that was sent. */
  private sent = 0;
  private read = 0;
  private scheduled = false;

  constructor(private readonly send: (text: string) => void) {}

  /** A line begins to run. */
  begin(): void {
    this.kept = [];
    this.start = this.sent = this.read = 0;
  }

  add(text: string): void {
    for (const character of text) this.kept.push(character);
    if (this.scheduled) return;
    this.scheduled = true;
    // Pasted lines arrive one by one and are sent as one text.
    queueMicrotask(() => {
      this.scheduled = false;
      this.sendMore();
    });
  }

  /** Ctrl-C: what no command has read is dropped, here and on the server. */
  interrupt(): void {
    this.kept = [INTERRUPT];
    this.start = this.sent;
    this.sent += 1;
    this.send(INTERRUPT);
  }

  /** A command has read the characters before a position. */
  acknowledge(read: number): void {
    this.read = Math.max(this.read, read);
    const known = Math.min(this.read, this.sent) - this.start;
    if (known > 0) {
      this.kept.splice(0, known);
      this.start += known;
    }
    this.sendMore();
  }

  /** The line has ended, and the characters before a position were read: return the others. */
  rest(read: number): string {
    const rest = this.kept.slice(Math.max(read - this.start, 0)).join("");
    this.begin();
    return rest;
  }

  private sendMore(): void {
    const from = this.sent - this.start;
    const text = this.kept.slice(from, from + Math.max(this.read + WINDOW - this.sent, 0));
    if (text.length === 0) return;
    this.sent += text.length;
    this.send(text.join(""));
  }
}
