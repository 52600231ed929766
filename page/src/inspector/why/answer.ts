/** The answer of `/setpoint/v1/why`, and questions to it. */
import { ask } from "../../link/hooks";
import { kinds } from "../../state/kinds";
import { at, logical } from "../../state/place";
import type { ObjectRef } from "../../state/refs";

export interface Step {
  revision: number;
  at: number;
  actor: string;
  object: string;
  namespace: string;
  action: string;
  changes: string[];
  reason: string;
  kind: "write" | "hidden";
  inferred: string;
  via: string;
  /** From where a person or a foreign client sent the write; empty if it is not recorded. */
  address: string;
  triggers: number;
  times: number;
  completes: boolean;
  others: Step[];
}

export interface Finding {
  rule: string;
  sentence: string;
  evidence: string[];
  until: string;
  help: string[];
  /** The log of the container that the finding is about; null if it has not exited. */
  log: { container: string; previous: boolean; lines: string[] } | null;
}

export interface Answer {
  version: number;
  question: { not?: boolean; field?: string };
  now: number;
  sentence: string;
  chain: Step[];
  origin: string;
  earlier: Step[];
  findings: Finding[];
  notes: string[];
  hints: string[];
}

export type Question = { is: "state" } | { is: "not" } | { is: "conflicts" } | { is: "field"; field: string };

export function askWhy(target: ObjectRef, question: Question): Promise<Answer> {
  const { group, resource, namespace, name } = target;
  return ask<Answer>("GET", "/setpoint/v1/why", {
    // The history is that of the present server; the moment is a part of the question.
    prefix: logical.peek(),
    query: {
      ...(at.peek() === null ? {} : { at: at.peek()! }),
      group,
      resource,
      namespace,
      name,
      ...(question.is === "not" ? { not: true } : {}),
      ...(question.is === "conflicts" ? { conflicts: true } : {}),
      ...(question.is === "field" ? { field: question.field } : {}),
    },
  });
}

/** The object of a step, such as `deployment/web`; null if the kind is not known. */
export function stepRef(step: Step): ObjectRef | null {
  const [kind = "", name = ""] = step.object.split(/\/(.*)/s);
  const found = kinds.value.find((one) => one.kind.toLowerCase() === kind);
  if (!found || !name) return null;
  const { group, version, resource } = found;
  return { group, version, resource, kind: found.kind, namespace: found.namespaced ? step.namespace : "", name };
}

/** Fields and conditions of an object about which people ask. */
export function fieldsOf(object: unknown): string[] {
  const { spec, status, data } = (object ?? {}) as {
    spec?: Record<string, unknown>;
    status?: { conditions?: { type?: string }[]; phase?: string };
    data?: Record<string, unknown>;
  };
  const found: string[] = [];
  const template = (spec?.template as { spec?: Record<string, unknown> } | undefined)?.spec ?? spec;
  if (spec && "replicas" in spec) found.push("spec.replicas");
  if (template && Array.isArray(template.containers)) found.push("image");
  for (const name of ["nodeName", "suspend", "paused", "unschedulable", "type", "selector"]) {
    if (spec && name in spec && found.length < 5) found.push(`spec.${name}`);
  }
  for (const name of Object.keys(data ?? {}).slice(0, 3)) found.push(`data.${name}`);
  const conditions = (status?.conditions ?? []).flatMap((one) => (one.type ? [one.type] : []));
  const usual = ["Ready", "Available", "Progressing", "Complete", "Failed"];
  const ordered = [...usual.filter((one) => conditions.includes(one)), ...conditions.filter((one) => !usual.includes(one))];
  return [...found.slice(0, 4), ...ordered.slice(0, 2)];
}
