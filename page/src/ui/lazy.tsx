/** A component that is loaded when it is first shown. */
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { shell } from "../words/shell";
import { Loading, Notice } from "./notice";

type Load<P> = () => Promise<{ default: ComponentType<P> }>;

const loaded = new Map<unknown, unknown>();

export function Lazy<P extends object>({ load, props }: { load: Load<P>; props: P }) {
  const [, again] = useState(0);
  const [failed, setFailed] = useState(false);
  const Part = loaded.get(load) as ComponentType<P> | undefined;
  useEffect(() => {
    if (loaded.has(load)) return;
    let current = true;
    setFailed(false);
    load().then(
      (module) => {
        loaded.set(load, module.default);
        if (current) again((count) => count + 1);
      },
      () => current && setFailed(true),
    );
    return () => {
      current = false;
    };
  }, [load]);
  if (Part) return <Part {...props} />;
  if (failed) {
    return (
      <Notice title={shell.partMissing}>
        <p>{shell.partMissingHint}</p>
      </Notice>
    );
  }
  return <Loading />;
}
