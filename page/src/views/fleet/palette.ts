/** The colours of the picture, as numbers, for both painters. */
import { signal } from "@preact/signals";
import { stored } from "../../state/settings";
import { STATES } from "./states";

export type Rgb = readonly [number, number, number];

export interface Palette {
  /** By state; EMPTY is the colour of a free slot. */
  states: readonly Rgb[];
  background: Rgb;
  /** The box of a node, by its state: 0 is not used. */
  boxes: readonly Rgb[];
  outline: Rgb;
}

export type ColourSet = "standard" | "safe";

/** The colours that the user has chosen. */
export const colourSet = stored<ColourSet>("fleet.colours", "standard");

const forcedQuery = window.matchMedia("(forced-colors: active)");
/** Whether the system has replaced all colours. */
export const forcedColours = signal(forcedQuery.matches);
forcedQuery.addEventListener("change", () => (forcedColours.value = forcedQuery.matches));

const NODE_STATES = 5;

/** Read the colours of an element, whose style sheet has them as custom properties. */
export function readPalette(element: Element): Palette {
  const style = getComputedStyle(element);
  const read = (name: string) => parse(style.getPropertyValue(name));
  return {
    states: Array.from({ length: STATES }, (_, state) => read(`--fleet-${state}`)),
    background: read("--fleet-background"),
    boxes: Array.from({ length: NODE_STATES }, (_, state) => read(`--fleet-node-${state}`)),
    outline: read("--fleet-outline"),
  };
}

const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

/** Any CSS colour as red, green and blue: a canvas understands them all, system colours too. */
function parse(text: string): Rgb {
  if (!probe) return [128, 128, 128];
  probe.canvas.width = probe.canvas.height = 1;
  probe.fillStyle = "#808080";
  probe.fillStyle = text.trim();
  probe.fillRect(0, 0, 1, 1);
  const [red = 0, green = 0, blue = 0] = probe.getImageData(0, 0, 1, 1).data;
  return [red, green, blue];
}

export function mix(a: Rgb, b: Rgb, share: number): Rgb {
  return [0, 1, 2].map((i) => Math.round(a[i]! + (b[i]! - a[i]!) * share)) as unknown as Rgb;
}
