/** The conversation with the server, which begins again after a lost connection. */
import { effect, signal } from "@preact/signals";
import { converse } from "../../link/hooks";
import { connections, linkState } from "../../link/link";
import type { Status } from "../../link/protocol";
import type { FleetMessage } from "./model";
import { FleetModel } from "./model";

export interface PodAnswer {
  index: number | null;
  /** As `namespace/name`; null for a free slot. */
  name: string | null;
  node: string | null;
  state: number;
}

type NamesMessage = Extract<FleetMessage, { type: "names" }>;

export class FleetConnection {
  readonly model = new FleetModel();
  readonly error = signal<Status | null>(null);
  /** Whether the picture may be out of date. */
  readonly isLost = signal(false);
  private readonly listeners = new Set<(message: NamesMessage) => void>();
  private channel: { say(data: unknown): boolean; close(): void } | null = null;
  private answers: { wants: (answer: PodAnswer) => boolean; resolve(answer: PodAnswer | null): void }[] = [];
  private frames: Promise<void> = Promise.resolve();
  private query = "";
  private closed = false;
  private readonly stop: () => void;

  constructor(
    private readonly namespace: string,
    private readonly prefix: string,
  ) {
    let known = -1;
    this.stop = effect(() => {
      const count = connections.value;
      if (linkState.value.is !== "open" || count === known) return;
      known = count;
      this.open();
    });
  }

  private open(): void {
    const { model } = this;
    this.channel = converse(
      "fleet",
      this.namespace ? { namespace: this.namespace } : {},
      {
        message: (data) => {
          const message = data as FleetMessage;
          if (model.receive(message)) return;
          if (message.type === "names") for (const listener of this.listeners) listener(message);
          else if (message.type === "pod") this.answer(message);
        },
        bytes: (frame) => {
          // One after the other: unpacking takes time, and changes belong to what came before.
          this.frames = this.frames.then(() => model.receiveBytes(frame)).catch(() => {});
          this.isLost.value = false;
        },
        end: (error) => {
          this.channel = null;
          for (const one of this.answers.splice(0)) one.resolve(null);
          if (this.closed) return;
          if (error?.reason === "ConnectionLost") this.isLost.value = true;
          else this.error.value = error ?? { message: "" };
        },
      },
      this.prefix,
    );
    if (this.query) this.channel.say({ search: this.query });
  }

  close(): void {
    this.closed = true;
    this.stop();
    this.channel?.close();
    this.channel = null;
    for (const one of this.answers.splice(0)) one.resolve(null);
  }

  search(query: string): void {
    this.query = query;
    this.channel?.say({ search: query });
    if (!query.trim()) this.model.found.value = null;
  }

  /** Call a listener with all names of Pods that anyone asked for, until the returned function is called. */
  onNames(listener: (message: NamesMessage) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  askNames(positions: readonly number[]): void {
    this.channel?.say({ names: positions });
  }

  askTray(count: number): void {
    this.channel?.say({ tray: count });
  }

  /** Which Pod is at an index; null if the connection ends. */
  pick(index: number): Promise<PodAnswer | null> {
    return this.question({ pick: index }, (answer) => answer.index === index);
  }

  /** Where a Pod is, by `namespace/name`. */
  locate(name: string): Promise<PodAnswer | null> {
    return this.question({ locate: name }, (answer) => answer.name === name);
  }

  private question(data: unknown, wants: (answer: PodAnswer) => boolean): Promise<PodAnswer | null> {
    return new Promise((resolve) => {
      if (!this.channel?.say(data)) {
        resolve(null);
        return;
      }
      this.answers.push({ wants, resolve });
    });
  }

  private answer(message: Extract<FleetMessage, { type: "pod" }>): void {
    const { index, name, node = null, state = 0 } = message;
    const answer: PodAnswer = { index, name, node, state };
    const at = this.answers.findIndex((one) => one.wants(answer));
    if (at >= 0) this.answers.splice(at, 1)[0]!.resolve(answer);
  }
}
