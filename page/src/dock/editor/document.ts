/** A text that is being edited: a file of the workspace, or an object. */
import { computed, signal } from "@preact/signals";
import { announce, announceNow } from "../../a11y/live";
import { converse } from "../../link/hooks";
import { namespace } from "../../state/place";
import { shortName } from "../../state/refs";
import type { ObjectRef } from "../../state/refs";
import { editor as words } from "../../words/editor";

export interface Problem {
  line: number;
  column: number;
  message: string;
  field: string;
  is_error: boolean;
  manager: string;
}

/** Problems as they are met when the text is read. */
function byLine(problems: readonly Problem[]): readonly Problem[] {
  return [...problems].sort((a, b) => a.line - b.line || a.column - b.column);
}

export interface CheckedObject {
  kind: string;
  name: string;
  outcome: string;
  before: string;
  after: string;
}

export interface SchemaField {
  name: string;
  type: string;
  required: boolean;
  description: string;
  has_fields: boolean;
  is_list: boolean;
  values: string[];
}

export interface Meanwhile {
  field: string;
  before: string;
  now: string;
  managers: string[];
  also_mine: boolean;
}

export interface EditorArgs {
  path?: string;
  object?: ObjectRef;
  reveal?: boolean;
  /** The logical cluster. */
  prefix: string;
  /** Called when the text is closed. */
  done?: (() => void) | undefined;
}

type Answer = { id: number; error?: string } & Record<string, unknown>;

const CHECK_AFTER = 400;
export const MAX_TEXT = 512 * 1024;

/** Questions to the server, each with its answer. After a lost connection, the next question begins anew. */
export class Questions {
  private readonly waiting = new Map<number, (answer: Answer) => void>();
  private conversation: { say(data: unknown): boolean; close(): void } | null = null;
  private last = 0;

  constructor(private readonly prefix: string) {}

  private open(): { say(data: unknown): boolean; close(): void } {
    this.conversation ??= converse(
      "editor",
      {},
      {
        message: (data) => {
          const answer = data as Answer;
          this.waiting.get(answer.id)?.(answer);
          this.waiting.delete(answer.id);
        },
        end: (error) => {
          this.conversation = null;
          for (const take of this.waiting.values()) take({ id: 0, error: error?.message ?? words.lost });
          this.waiting.clear();
        },
      },
      this.prefix,
    );
    return this.conversation;
  }

  ask<T = Record<string, unknown>>(question: object): Promise<T & { error?: string }> {
    const id = ++this.last;
    return new Promise((take) => {
      this.waiting.set(id, take as (answer: Answer) => void);
      if (!this.open().say({ id, ...question })) {
        this.waiting.delete(id);
        take({ error: words.lost } as T & { error?: string });
      }
    });
  }

  close(): void {
    this.conversation?.close();
    this.conversation = null;
  }
}

export class EditedText {
  readonly text = signal("");
  /** The text as it is on the server. */
  readonly stored = signal("");
  readonly loaded = signal(false);
  readonly error = signal("");
  readonly problems = signal<readonly Problem[]>([]);
  readonly objects = signal<readonly CheckedObject[]>([]);
  readonly checked = signal(false);
  readonly meanwhile = signal<readonly Meanwhile[] | null>(null);
  readonly changed = computed(() => this.text.value !== this.stored.value);
  /** Whether the user closes the text without saving it. */
  discarded = false;
  /** The latest save, which may not be finished. */
  saving: Promise<boolean> = Promise.resolve(false);
  readonly questions: Questions;
  readonly name: string;
  private timer = 0;
  private checks = 0;

  constructor(readonly args: EditorArgs) {
    this.questions = new Questions(args.prefix);
    this.name = args.object ? shortName(args.object) : (args.path ?? "").replace(/^\/home\/user\//, "");
    void this.load();
  }

  get isManifest(): boolean {
    return !!this.args.object || /\.(?:ya?ml|json)$/.test(this.args.path ?? "");
  }

  async load(): Promise<void> {
    const { object, path, reveal } = this.args;
    const answer = object
      ? await this.questions.ask<{ text: string }>({ do: "object", object, reveal: reveal ?? false })
      : await this.questions.ask<{ text: string }>({ do: "read", path });
    if (answer.error) {
      this.error.value = answer.error;
      return;
    }
    this.stored.value = answer.text;
    this.text.value = answer.text;
    this.loaded.value = true;
    this.problems.value = [];
    this.check();
  }

  type(text: string): void {
    this.text.value = text;
    this.checked.value = false;
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => void this.check(), CHECK_AFTER);
  }

  /** Let the server try what the text would do. */
  async check(): Promise<void> {
    const text = this.text.peek();
    if (!this.isManifest || !text.trim() || text.length > MAX_TEXT) {
      this.checked.value = true;
      this.problems.value = [];
      this.objects.value = [];
      return;
    }
    const number = ++this.checks;
    const { object } = this.args;
    const answer = await (object
      ? this.questions.ask<{ problems: Problem[] }>({ do: "save", object, before: this.stored.peek(), after: text, dryRun: true })
      : this.questions.ask<{ problems: Problem[]; objects: CheckedObject[] }>({ do: "check", text, namespace: namespace.peek() || "default" }));
    if (number !== this.checks || text !== this.text.peek()) return;
    const before = this.problems.peek().length;
    this.problems.value = answer.error ? [whole(answer.error)] : byLine(answer.problems);
    this.objects.value = "objects" in answer && !answer.error ? (answer.objects as CheckedObject[]) : [];
    this.checked.value = true;
    const count = this.problems.peek().length;
    if (count !== before) announce(count ? words.problem(this.problems.peek()[0]!.line, this.problems.peek()[0]!.message) : words.noProblems);
  }

  /** Save; with `takeOver` also over changes of others. Returns whether it is saved. */
  save(takeOver = false): Promise<boolean> {
    this.saving = this.saveNow(takeOver);
    return this.saving;
  }

  private async saveNow(takeOver: boolean): Promise<boolean> {
    const text = this.text.peek();
    if (text.length > MAX_TEXT) return this.fail(words.tooLong);
    const { object, path } = this.args;
    if (!object) {
      const answer = await this.questions.ask({ do: "write", path, text });
      if (answer.error) return this.fail(answer.error);
      return this.succeed(text, words.saved(this.name));
    }
    const answer = await this.questions.ask<{ outcome: string; problems: Problem[]; meanwhile: Meanwhile[] }>({
      do: "save",
      object,
      before: this.stored.peek(),
      after: text,
      takeOver,
    });
    if (answer.error) return this.fail(answer.error);
    this.meanwhile.value = null;
    switch (answer.outcome) {
      case "saved":
        // The server may have added something: the next difference is from what is there now.
        await this.load();
        return this.succeed(this.text.peek(), words.applied(this.name));
      case "unchanged":
        announce(words.unchanged);
        return true;
      case "conflict":
        this.meanwhile.value = answer.meanwhile;
        return false;
      case "deleted":
        return this.fail(words.deleted);
      default:
        this.problems.value = byLine(answer.problems);
        this.checked.value = true;
        return this.fail(this.problems.peek()[0] ? words.problem(this.problems.peek()[0]!.line, this.problems.peek()[0]!.message) : "");
    }
  }

  private succeed(text: string, said: string): true {
    this.stored.value = text;
    this.error.value = "";
    announceNow(said);
    return true;
  }

  private fail(message: string): false {
    this.error.value = message;
    if (message) announceNow(message);
    return false;
  }

  close(): void {
    window.clearTimeout(this.timer);
    this.questions.close();
    this.args.done?.();
  }
}

function whole(message: string): Problem {
  return { line: 1, column: 1, message, field: "", is_error: true, manager: "" };
}
