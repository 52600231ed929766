/** The session of this browser: the code of a link is traded for a key, which stays in the storage of the origin. */
import { signal } from "@preact/signals";
import { address, enter as findEntrance, forgetKey, openSocket, readKey, trade } from "../link/entrance";
import type { Entrance } from "../link/entrance";
import { startLink, stopLink } from "../link/link";
import { forgetOther } from "./impersonation";

export type Session =
  | { is: "starting" }
  | { is: "in" }
  | Exclude<Entrance, { is: "open" }>
  /** The key is not valid any more. */
  | { is: "ended" };

export const session = signal<Session>({ is: "starting" });

/** Enter with the code in the fragment, or with the key of an earlier visit. */
export async function enter(): Promise<void> {
  const entrance = await findEntrance();
  if (entrance.is === "open") start();
  else session.value = entrance;
}

/** Join a class. Returns null on success, otherwise the reason of the server. */
export async function joinClass(code: string, nickname: string): Promise<string | null> {
  const refusal = await trade("class/v1/join", { code, nickname });
  if (refusal === null) start();
  return refusal;
}

function start(): void {
  if (readKey() === null) {
    session.value = { is: "none" };
    return;
  }
  session.value = { is: "in" };
  startLink(openSocket, isOver);
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
  forgetKey();
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
