/** Commands to the gates of the control loops. */
import { announce } from "../../a11y/live";
import { ask } from "../../link/hooks";
import { logical } from "../../state/place";
import { visible } from "../../ui/text";
import { toastError } from "../../ui/toast";
import { loops as words } from "../../words/loops";
import type { LoopRun } from "./board";

const PATH = "/setpoint/v1/loops";

interface Answer {
  stepped?: { loop: string; key: string };
}

/** Send a command; failures are shown. */
export async function command(action: string, fields: Record<string, string | number> = {}): Promise<void> {
  try {
    const answer = await ask<Answer>("POST", PATH, { body: { action, ...fields }, prefix: logical.peek() });
    const loop = String(fields.loop ?? "");
    if (answer.stepped) announce(words.stepped(answer.stepped.loop, visible(answer.stepped.key)));
    else if (action === "pause") announce(words.pausedSay(loop));
    else if (action === "resume") announce(words.resumedSay(loop));
  } catch (error) {
    toastError(error);
  }
}

export async function readRuns(loop: string): Promise<LoopRun[]> {
  const answer = await ask<{ runs: LoopRun[] }>("GET", PATH, { query: { runs: loop }, prefix: logical.peek() });
  return answer.runs;
}
