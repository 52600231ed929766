/** Writes, revisions and times as text. */
import { findKind } from "../state/kinds";
import { visible } from "../ui/text";
import { timeline as words } from "../words/timeline";
import type { NamedObject, Span } from "./spans";

const MOST_OBJECTS = 3;

/** A revision with narrow blanks between thousands. */
export function revisionText(revision: number): string {
  return revision.toLocaleString("en").replaceAll(",", "\u202f");
}

export function timeText(milliseconds: number): string {
  return milliseconds ? new Date(milliseconds).toLocaleTimeString() : "";
}

export function objectText(object: NamedObject): string {
  const kind = object.kind ?? findKind(object.group, object.resource)?.kind ?? object.resource;
  return `${kind} ${visible(object.name)}`;
}

/** What a span is about, in one sentence. */
export function describeSpan(span: Span): string {
  const { write } = span;
  if (!write) {
    return Object.entries(span.lanes)
      .toSorted(([, a], [, b]) => b - a)
      .slice(0, 5)
      .map(([name, count]) => words.lane(visible(name), count))
      .join(", ");
  }
  if (write.sentence) return visible(write.sentence);
  const names = write.objects.slice(0, MOST_OBJECTS).map(objectText);
  const more = write.objects.length - names.length;
  const [verb = "", subresource] = write.verb.split("/");
  const did = subresource === "status" ? `${words.verbs[verb] ?? verb} the status of` : (words.verbs[verb] ?? verb);
  return words.did(did, names.join(", ") + (more > 0 ? ` ${words.andMore(more)}` : ""));
}
