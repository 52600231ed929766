/**
 * The connection of this tab: one WebSocket with channels, credit, and reconnection with back-off.
 *
 * Feeds are opened again after a reconnection. Conversations and requests that were under way end with
 * `CONNECTION_LOST`; requests made while the connection is away wait for it.
 */
import { batch, signal } from "@preact/signals";
import { ApiError, CONNECTION_LOST } from "./protocol";
import type { OpenedSocket } from "./entrance";
import type { FeedUpdate, Hello, Reply, ServerMessage, Status } from "./protocol";

export type LinkState =
  | { is: "off" }
  | { is: "connecting" }
  | { is: "open" }
  /** `since`: milliseconds, as of performance.now(). */
  | { is: "lost"; since: number };

export interface ChannelHandlers {
  /** The channel was opened on the server, for the first time or again. */
  opened?(again: boolean): void;
  update?(update: FeedUpdate): void;
  message?(data: unknown): void;
  bytes?(data: Uint8Array): void;
  end?(error: Status | null): void;
}

interface Channel {
  readonly open: { feed: string; cluster: string; args: unknown };
  readonly handlers: ChannelHandlers;
  /** A feed is opened again after a reconnection; a conversation ends. */
  readonly durable: boolean;
  opened: boolean;
  /** What was received since credit was granted last. */
  spent: number;
  spentBytes: number;
}

interface Pending {
  readonly message: Record<string, unknown>;
  resolve(reply: Reply): void;
  reject(error: ApiError): void;
  sent: boolean;
  timer: number;
}

export interface RequestMessage {
  method: string;
  path: string;
  query?: string;
  body?: unknown;
  accept?: string;
  contentType?: string;
  cluster: string;
}

/** Messages and bytes of a channel that may be on their way: few, or a slow connection delivers what was true long ago. */
const CREDIT = 64;
const CREDIT_BYTES = 128 * 1024;
const MOST_PENDING = 512;
/** Requests under way at once; the server refuses more than 72. */
const MOST_SENT = 48;
/** The code with which the server closes the tabs of a session that has ended. */
const SESSION_ENDED = 4401;
const REQUEST_TIMEOUT = 60_000;
const FIRST_DELAY = 250;
const LONGEST_DELAY = 5_000;

export const linkState = signal<LinkState>({ is: "off" });
export const hello = signal<Hello | null>(null);
/** Counts connections, so that values read once can be read again after a reconnection. */
export const connections = signal(0);

let socket: WebSocket | null = null;
let connect: (() => OpenedSocket) | null = null;
let onRefused: (() => Promise<boolean>) | null = null;
let nextId = 1;
let failures = 0;
let retryTimer = 0;
const channels = new Map<number, Channel>();
const pending = new Map<number, Pending>();
/** The number of pending requests that were sent. */
let sent = 0;

/**
 * Connect, and stay connected. `refused` is asked after a connection that failed before the greeting: true ends the
 * attempts, because the session is over.
 */
export function startLink(make: () => OpenedSocket, refused: () => Promise<boolean>): void {
  connect = make;
  onRefused = refused;
  failures = 0;
  linkState.value = { is: "connecting" };
  dial();
}

export function stopLink(): void {
  connect = null;
  window.clearTimeout(retryTimer);
  socket?.close();
  socket = null;
  linkState.value = { is: "off" };
}

/** Try again at once, instead of when the back-off is over. */
export function retryNow(): void {
  if (socket || !connect) return;
  window.clearTimeout(retryTimer);
  dial();
}

function dial(): void {
  if (!connect) return;
  const { socket: mine, missed } = connect();
  socket = mine;
  let greeted = false;
  const onMessage = (event: MessageEvent<string | ArrayBuffer>) => {
    if (socket !== mine) return;
    if (typeof event.data !== "string") {
      receiveBytes(event.data);
      return;
    }
    const message = JSON.parse(event.data) as ServerMessage;
    if (message.type === "hello") {
      greeted = true;
      welcome(message);
    } else {
      receive(message, byteLength(event.data));
    }
  };
  const onClose = (event: CloseEvent) => {
    if (socket !== mine) return;
    socket = null;
    void lose(greeted && event.code !== SESSION_ENDED);
  };
  mine.onmessage = onMessage;
  mine.onclose = onClose;
  for (const event of missed) event instanceof MessageEvent ? onMessage(event) : onClose(event);
}

function welcome(message: Hello): void {
  failures = 0;
  const again = connections.value > 0;
  // What is opened in reaction to the connection is open already.
  const waiting = [...channels];
  // Together: a component that opens something with each connection opens it once.
  batch(() => {
    hello.value = message;
    linkState.value = { is: "open" };
    connections.value += 1;
  });
  for (const [id, channel] of waiting) if (channels.has(id)) openChannel(id, channel, again && channel.opened);
  sendWaiting();
}

/** `valid`: the session was accepted and has not ended as far as is known. */
async function lose(valid: boolean): Promise<void> {
  if (!connect) return;
  if (linkState.value.is === "open") linkState.value = { is: "lost", since: performance.now() };
  for (const [id, channel] of [...channels]) {
    if (channel.durable || !channel.opened) continue;
    channels.delete(id);
    channel.handlers.end?.(CONNECTION_LOST);
  }
  for (const [id, request] of [...pending]) {
    if (request.sent) settle(id)?.reject(new ApiError(CONNECTION_LOST));
  }
  if (!valid && onRefused && (await onRefused())) {
    stopLink();
    return;
  }
  if (linkState.value.is === "connecting") linkState.value = { is: "lost", since: performance.now() };
  const delay = Math.min(LONGEST_DELAY, FIRST_DELAY * 2 ** Math.min(failures, 6));
  failures += 1;
  retryTimer = window.setTimeout(dial, delay * (0.75 + Math.random() / 2));
}

function send(message: Record<string, unknown>): boolean {
  if (socket?.readyState !== WebSocket.OPEN || linkState.value.is !== "open") return false;
  socket.send(JSON.stringify(message));
  return true;
}

function openChannel(id: number, channel: Channel, again: boolean): void {
  channel.opened = true;
  channel.spent = channel.spentBytes = 0;
  channel.handlers.opened?.(again);
  send({ id, op: "open", ...channel.open });
  send({ id, op: "credit", n: CREDIT, bytes: CREDIT_BYTES });
}

/** `size`: the bytes of the message. */
function receive(message: ServerMessage, size: number): void {
  if (message.type === "response") {
    settle(message.id)?.resolve({ status: message.status, headers: message.headers, body: message.body });
    return;
  }
  const channel = channels.get(message.id);
  if (!channel) return;
  if (message.type === "end") {
    channels.delete(message.id);
    channel.handlers.end?.(message.error ?? null);
    return;
  }
  if (message.type === "update") channel.handlers.update?.(message);
  else if (message.type === "message") channel.handlers.message?.(message.data);
  spend(message.id, channel, size);
}

function receiveBytes(data: ArrayBuffer): void {
  if (data.byteLength < 4) return;
  const id = new DataView(data).getUint32(0);
  const channel = channels.get(id);
  if (!channel) return;
  channel.handlers.bytes?.(new Uint8Array(data, 4));
  spend(id, channel, data.byteLength);
}

const encoder = new TextEncoder();

/** The size of a text as it is sent. */
function byteLength(text: string): number {
  return encoder.encode(text).length;
}

/** Grant new credit when half of it is used. */
function spend(id: number, channel: Channel, size: number): void {
  channel.spent += 1;
  channel.spentBytes += size;
  if (channel.spent < CREDIT / 2 && channel.spentBytes < CREDIT_BYTES / 2) return;
  send({ id, op: "credit", n: channel.spent, bytes: channel.spentBytes });
  channel.spent = channel.spentBytes = 0;
}

/** Open a channel. A durable one survives reconnections. */
export function open(
  feed: string,
  cluster: string,
  args: unknown,
  handlers: ChannelHandlers,
  durable: boolean,
): { say(data: unknown): boolean; close(): void } {
  const id = nextId++;
  const channel: Channel = { open: { feed, cluster, args }, handlers, durable, opened: false, spent: 0, spentBytes: 0 };
  channels.set(id, channel);
  if (linkState.value.is === "open") openChannel(id, channel, false);
  return {
    say: (data) => channels.has(id) && send({ id, op: "say", data }),
    close: () => {
      if (channels.delete(id)) send({ id, op: "close" });
    },
  };
}

function settle(id: number): Pending | undefined {
  const request = pending.get(id);
  if (!request) return undefined;
  pending.delete(id);
  window.clearTimeout(request.timer);
  if (request.sent) sent -= 1;
  queueMicrotask(sendWaiting);
  return request;
}

/** Send requests that wait, in their order, as far as the limit allows. */
function sendWaiting(): void {
  if (sent >= MOST_SENT || sent === pending.size) return;
  for (const [id, request] of pending) {
    if (sent >= MOST_SENT) return;
    if (request.sent) continue;
    if (!send({ id, op: "request", ...request.message })) return;
    request.sent = true;
    sent += 1;
  }
}

/** Send one request to the API server. Rejects with an ApiError only if there is no answer. */
export function call(message: RequestMessage): Promise<Reply> {
  return new Promise((resolve, reject) => {
    if (pending.size >= MOST_PENDING) {
      reject(new ApiError({ code: 0, reason: "TooManyRequests", message: "Too many requests wait for the server." }));
      return;
    }
    const id = nextId++;
    const timer = window.setTimeout(() => {
      settle(id)?.reject(new ApiError({ code: 0, reason: "Timeout", message: "The server did not answer in time." }));
    }, REQUEST_TIMEOUT);
    const request: Pending = { message: { ...message }, resolve, reject, sent: false, timer };
    pending.set(id, request);
    sendWaiting();
  });
}
