import type { ComponentChildren } from "preact";
import type { Status } from "../link/protocol";
import { shell } from "../words/shell";
import { visible } from "./text";

/** An empty or special state: what it is, why, what to do next. */
export function Notice(props: { title: string; children?: ComponentChildren; small?: boolean }) {
  return (
    <div class={props.small ? "notice small" : "notice"}>
      <h2>{visible(props.title)}</h2>
      {props.children}
    </div>
  );
}

/** An error of a feed or a request. A server without the feature is no error: it gets one line. */
export function Failure({ error, feature, small = true }: { error: Status; feature?: string; small?: boolean }) {
  if (feature && (error.code === 404 || error.code === 403)) {
    return (
      <Notice title={error.code === 404 ? shell.notOffered(feature) : shell.notAllowed(feature)} small={small}>
        {error.code === 403 && error.message ? <p>{visible(error.message)}</p> : null}
      </Notice>
    );
  }
  return (
    <Notice title={shell.failed} small={small}>
      <p>{visible(error.message ?? error.reason ?? shell.noReason)}</p>
    </Notice>
  );
}

/** Shown while something loads; it appears only after 0.4 s. */
export function Loading({ what }: { what?: string }) {
  return (
    <div class="loading" role="status">
      {what ?? shell.loading}
    </div>
  );
}
