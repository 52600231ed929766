/** The names of the namespaces, for the chooser. */
import { useEffect, useState } from "preact/hooks";
import { ask } from "../link/hooks";
import { connections } from "../link/link";
import { namespace, settledCluster } from "../state/place";
import { now } from "../ui/time";

interface NameList {
  items?: { metadata?: { name?: string } }[];
}

const METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/** The names, read again every 10 s; without the right to list them, only the current one. */
export function useNamespaceNames(): string[] {
  const [names, setNames] = useState<string[]>([]);
  const prefix = settledCluster.value;
  const period = Math.floor(now.value / 10_000);
  const connection = connections.value;
  useEffect(() => {
    if (connection === 0) return;
    let current = true;
    ask<NameList>("GET", "/api/v1/namespaces", { accept: METADATA, prefix }).then(
      (list) => {
        if (!current) return;
        const found = (list.items ?? []).map((item) => item.metadata?.name ?? "").filter(Boolean);
        setNames((before) => (before.join() === found.join() ? before : found));
      },
      () => undefined,
    );
    return () => {
      current = false;
    };
  }, [prefix, period, connection]);
  return namespace.value && !names.includes(namespace.value) ? [namespace.value, ...names] : names;
}
