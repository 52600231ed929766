/** The session of this browser: the code of a link is traded for a key, which stays in the storage of the origin. */
import { signal } from "@preact/signals";
import { isRoute } from "../router";
import { startLink, stopLink } from "../link/link";
import { forgetOther, seenAs } from "./impersonation";

export type Session =
  | { is: "starting" }
  | { is: "in" }
  /** The link of a class, which asks for a name. */
  | { is: "joining"; code: string }
  /** No key and no code. */
  | { is: "none" }
  /** The code was used before, or is too old. */
  | { is: "refused"; message: string }
  /** The key is not valid any more. */
  | { is: "ended" };

export const session = signal<Session>({ is: "starting" });

const KEY = "setpoint.key";
const SUBPROTOCOL = "setpoint.page.v1";
/** The fragment of the link of a class begins with this. */
const CLASS = "#class-";

function address(path: string): URL {
  return new URL(path, document.baseURI);
}

function readKey(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

/** Enter with the code in the fragment, or with the key of an earlier visit. */
export async function enter(): Promise<void> {
  const fragment = location.hash;
  if (!isRoute(fragment)) {
    history.replaceState(null, "", `${location.pathname}#/`);
    if (fragment.startsWith(CLASS) && readKey() === null) {
      session.value = { is: "joining", code: fragment.slice(CLASS.length) };
      return;
    }
    const refusal = fragment.startsWith(CLASS) ? null : await trade("page/v1/session", { code: fragment.slice(1) });
    if (refusal !== null && readKey() === null) {
      session.value = { is: "refused", message: refusal };
      return;
    }
  }
  start();
}

/** Join a class. Returns null on success, otherwise the reason of the server. */
export async function joinClass(code: string, nickname: string): Promise<string | null> {
  const refusal = await trade("class/v1/join", { code, nickname });
  if (refusal === null) start();
  return refusal;
}

function start(): void {
  const key = readKey();
  if (key === null) {
    session.value = { is: "none" };
    return;
  }
  session.value = { is: "in" };
  startLink(() => {
    const url = address("page/v1/socket");
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    if (seenAs) {
      url.searchParams.set("as", seenAs.user);
      for (const group of seenAs.groups) url.searchParams.append("as-group", group);
    }
    return new WebSocket(url, [SUBPROTOCOL, `key.${key}`]);
  }, isOver);
}

/** Trade a code for a key. Returns null on success, otherwise the reason of the server. */
async function trade(path: string, request: object): Promise<string | null> {
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

/** Ask whether the server has ended the session; a server that does not answer has not. */
async function isOver(): Promise<boolean> {
  const key = readKey();
  if (key === null) return end();
  try {
    const answer = await fetch(address("page/v1/session"), {
      headers: { Authorization: `Bearer ${key}` },
      credentials: "omit",
    });
    return answer.status === 401 || answer.status === 403 ? end() : false;
  } catch {
    return false;
  }
}

function end(): true {
  try {
    localStorage.removeItem(KEY);
  } catch {
    // Without storage there is no key to forget.
  }
  forgetOther();
  session.value = { is: "ended" };
  return true;
}

/** End the session in this browser and on the server. */
export async function leave(): Promise<void> {
  const key = readKey();
  stopLink();
  end();
  if (key === null) return;
  try {
    await fetch(address("page/v1/session"), { method: "DELETE", headers: { Authorization: `Bearer ${key}` } });
  } catch {
    // The key is forgotten here; on the server it expires.
  }
}
