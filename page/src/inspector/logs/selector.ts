/** Which Pods an object selects, as a label selector. */
import { ask } from "../../link/hooks";
import { objectPath } from "../../state/refs";
import type { ObjectRef } from "../../state/refs";

interface Expression {
  key: string;
  operator: string;
  values?: string[];
}

interface Selecting {
  spec?: { selector?: Record<string, unknown> };
}

/** The selector; empty if the object selects nothing. */
export async function selectorOf(target: ObjectRef): Promise<string> {
  const found = await ask<Selecting>("GET", objectPath(target));
  const selector = found.spec?.selector ?? {};
  if (!("matchLabels" in selector) && !("matchExpressions" in selector)) return pairs(selector);
  const labels = pairs((selector.matchLabels ?? {}) as Record<string, unknown>);
  const expressions = ((selector.matchExpressions ?? []) as Expression[]).map(expressionText);
  return [labels, ...expressions].filter(Boolean).join(",");
}

function pairs(labels: Record<string, unknown>): string {
  return Object.entries(labels)
    .map(([key, value]) => `${key}=${String(value)}`)
    .join(",");
}

function expressionText({ key, operator, values = [] }: Expression): string {
  switch (operator) {
    case "In":
      return `${key} in (${values.join(",")})`;
    case "NotIn":
      return `${key} notin (${values.join(",")})`;
    case "DoesNotExist":
      return `!${key}`;
    default:
      return key;
  }
}
