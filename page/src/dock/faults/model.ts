/** Faults as the server describes them. */
export interface FaultKind {
  id: string;
  title: string;
  about: string;
  group: string;
  fields: string[];
  options: Record<string, number | string>;
  simulated: boolean;
  ends: string;
}

export interface ActiveFault {
  id: string;
  fault: string;
  title: string;
  args: Record<string, unknown>;
  by: string;
  text: string;
  since: number;
  until: number;
  undo: boolean;
}

export interface FaultState {
  simulatedNodes: number;
  realNodes: number;
  components: string[];
}

export type FaultItem = FaultKind | ActiveFault | FaultState;

export interface Faults {
  kinds: FaultKind[];
  active: ActiveFault[];
  state: FaultState;
}

export function faultsOf(items: ReadonlyMap<string, FaultItem>): Faults {
  const kinds: FaultKind[] = [];
  const active: ActiveFault[] = [];
  for (const [key, item] of items) {
    if (key.startsWith("kind:")) kinds.push(item as FaultKind);
    else if (key.startsWith("active:")) active.push(item as ActiveFault);
  }
  const state = (items.get("state") as FaultState | undefined) ?? { simulatedNodes: 0, realNodes: 0, components: [] };
  return { kinds, active: active.sort((a, b) => b.since - a.since), state };
}
