/**
 * The key of the session, and the sockets that are opened with it.
 *
 * The first socket is opened before the rest of the page has loaded; what it receives until then is kept.
 */

import { seenAs } from "../state/impersonation";

export type Entrance =
  | { is: "open" }
  /** A class, which asks for a name, and for its code if that is empty. */
  | { is: "joining"; code: string }
  /** The code was used before, or is too old. */
  | { is: "refused"; message: string }
  /** No key and no code. */
  | { is: "none" };

export interface OpenedSocket {
  socket: WebSocket;
  /** Messages, and the end, that came before there was a receiver. */
  missed: readonly (MessageEvent<string | ArrayBuffer> | CloseEvent)[];
}

const KEY = "setpoint.key";
const SUBPROTOCOL = "setpoint.page.v1";
/** The fragment of the link of a class begins with this. */
const CLASS = "#class-";

let first: OpenedSocket | null = null;
let entered: Promise<Entrance> | null = null;

/** Whether this is the page of a class. The server says so in the document, before there is a session. */
export const isClass = document.documentElement.dataset.class !== undefined;

export function address(path: string): URL {
  return new URL(path, document.baseURI);
}

export function readKey(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

export function forgetKey(): void {
  try {
    localStorage.removeItem(KEY);
  } catch {
    // Without storage there is no key to forget.
  }
}

/** Whether a fragment is an address, and not the code of a link. */
export function isRoute(hash: string): boolean {
  return hash === "" || hash === "#" || hash.startsWith("#/");
}

/** Enter with the code in the fragment, or with the key of an earlier visit. Further calls return the same result. */
export function enter(): Promise<Entrance> {
  entered ??= find().then((entrance) => {
    if (entrance.is === "open") first = keep(makeSocket());
    return entrance;
  });
  return entered;
}

async function find(): Promise<Entrance> {
  const fragment = location.hash;
  if (!isRoute(fragment)) {
    history.replaceState(null, "", `${location.pathname}#/`);
    if (fragment.startsWith(CLASS) && readKey() === null) return { is: "joining", code: fragment.slice(CLASS.length) };
    const refusal = fragment.startsWith(CLASS) ? null : await trade("page/v1/session", { code: fragment.slice(1) });
    if (refusal !== null && readKey() === null) return { is: "refused", message: refusal };
  }
  if (readKey() !== null) return { is: "open" };
  return isClass ? { is: "joining", code: "" } : { is: "none" };
}

/** Trade a code for a key. Returns null on success, otherwise the reason of the server. */
export async function trade(path: string, request: object): Promise<string | null> {
  try {
    const answer = await fetch(address(path), {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(request),
      credentials: "omit",
    });
    const body = (await answer.json()) as { key?: string; message?: string };
    if (!answer.ok || !body.key) return body.message ?? "";
    localStorage.setItem(KEY, body.key);
    return null;
  } catch {
    return "";
  }
}

/** Return the socket that was opened early, or another. */
export function openSocket(): OpenedSocket {
  const opened = first ?? { socket: makeSocket(), missed: [] };
  first = null;
  return opened;
}

function makeSocket(): WebSocket {
  const url = address("page/v1/socket");
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  if (seenAs) {
    url.searchParams.set("as", seenAs.user);
    for (const group of seenAs.groups) url.searchParams.append("as-group", group);
  }
  const socket = new WebSocket(url, [SUBPROTOCOL, `key.${readKey()}`]);
  socket.binaryType = "arraybuffer";
  return socket;
}

function keep(socket: WebSocket): OpenedSocket {
  const missed: (MessageEvent<string | ArrayBuffer> | CloseEvent)[] = [];
  socket.onmessage = (event: MessageEvent<string | ArrayBuffer>) => missed.push(event);
  socket.onclose = (event) => missed.push(event);
  return { socket, missed };
}
