/** The states of Pods and nodes: the numbers of the protocol, see `src/setpoint/view/fleet.py`. */
import { fleet as words } from "../../words/fleet";

export const EMPTY = 0;
export const READY = 1;
export const STARTING = 2;
export const FAILING = 3;
export const FINISHING = 4;
export const PENDING = 5;
export const SUCCEEDED = 6;
export const TERMINATING = 7;
/** The number of states, with EMPTY. */
export const STATES = 8;
/** The bit of a Pod that matches the search. */
export const SELECTED = 0x80;
export const STATE_MASK = 0x7f;

export interface PodStateWords {
  state: number;
  /** What the search understands. */
  word: string;
  label: string;
  hint: string;
}

/** In the order in which they are listed. */
export const POD_STATES: readonly PodStateWords[] = [READY, STARTING, PENDING, FAILING, FINISHING, SUCCEEDED, TERMINATING].map(
  (state) => ({ state, ...words.states[state]! }),
);

/** The states from the least to the most worth a look: the worst of a node is shown when its Pods are too small. */
export const SEVERITY: readonly number[] = [-1, 0, 4, 6, 2, 5, 1, 3];

export const NODE_READY = 1;
export const NODE_NOT_READY = 2;
export const NODE_UNKNOWN = 3;
export const NODE_MISSING = 4;
