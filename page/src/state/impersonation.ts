/**
 * The user as whom this tab acts, if not as that of the session ("see as"). It is kept for the tab, over reloads, and not
 * a part of the address: a link must not make someone act as another user. A change loads the page anew, so that
 * nothing that one user may see remains on the screen or in memory for another.
 */

export interface Other {
  user: string;
  groups: string[];
}

const KEY = "setpoint.as";
const MOST_GROUPS = 32;
/** What the server accepts: printable ASCII characters, without blanks around them. */
const NAME = /^[!-~](?:[ -~]{0,254}[!-~])?$/;

export function isName(text: string): boolean {
  return NAME.test(text);
}

function read(): Other | null {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEY) ?? "null") as Partial<Other> | null;
    return found ? checked(found.user ?? "", found.groups ?? []) : null;
  } catch {
    return null;
  }
}

function checked(user: string, groups: readonly string[]): Other | null {
  return isName(user) && groups.length <= MOST_GROUPS && groups.every(isName) ? { user, groups: [...groups] } : null;
}

/** The user as whom this tab acts; null for that of the session. It is the same for the life of the document. */
export const seenAs: Other | null = read();

/** Act as another user from now on, or as that of the session: null. Returns false if the names are not valid. */
export function seeAs(other: Other | null): boolean {
  if (other !== null && checked(other.user, other.groups) === null) return false;
  try {
    if (other === null) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, JSON.stringify(other));
  } catch {
    return false;
  }
  location.reload();
  return true;
}

/** Forget the other user, because the session has ended. */
export function forgetOther(): void {
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // Without storage there is nothing to forget.
  }
}
