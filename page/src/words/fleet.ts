/** Texts of the fleet view. */
export interface StateText {
  word: string;
  label: string;
  hint: string;
}

export const fleet = {
  title: "Fleet",
  picture: "Picture",
  table: "Table",
  form: "Form",
  states: {
    1: { word: "ready", label: "ready", hint: "The Pod runs and is ready." },
    2: { word: "starting", label: "starting", hint: "Its containers are being started, or are not ready yet." },
    3: { word: "failing", label: "failing", hint: "It has failed, or a container waits after an error." },
    4: { word: "finishing", label: "finishing", hint: "Some of its containers have completed." },
    5: { word: "pending", label: "pending", hint: "It is bound to a node that has not begun to start it." },
    6: { word: "succeeded", label: "succeeded", hint: "All its containers have completed." },
    7: { word: "terminating", label: "terminating", hint: "It is being deleted." },
  } as Record<number, StateText>,
  nodeStates: {
    1: "ready",
    2: "not ready",
    3: "unknown",
    4: "no such Node",
  } as Record<number, string>,
  cordoned: "cordoned",
  search: "Find Pods",
  searchHint: "name, ns:default, node:node-1, zone:a, failing …",
  clearSearch: "Clear the search",
  found: (count: number) => (count === 1 ? "1 Pod matches" : `${count.toLocaleString("en")} Pods match`),
  foundList: "Pods that match",
  foundMore: (shown: number) => `The first ${shown} are listed. Add a word to narrow the search.`,
  total: (pods: number, nodes: number) =>
    `${pods.toLocaleString("en")} ${pods === 1 ? "Pod" : "Pods"} on ${nodes.toLocaleString("en")} ${nodes === 1 ? "node" : "nodes"}`,
  loading: (pods: number, of: number) =>
    of > pods ? `Reading Pods: ${pods.toLocaleString("en")} of ${of.toLocaleString("en")}` : "Reading Pods …",
  legend: "Pods by state",
  unbound: (count: number) => `${count.toLocaleString("en")} without a node`,
  unboundTitle: "Pods without a node",
  noReason: "The scheduler has not said why yet.",
  more: (count: number) => `${count.toLocaleString("en")} more`,
  fit: "Show everything",
  zoomIn: "Zoom in",
  zoomOut: "Zoom out",
  colours: "Colours",
  coloursStandard: "Standard",
  coloursSafe: "For colour-blind people",
  canvas: "Picture of all nodes and Pods",
  canvasHelp:
    "Arrow keys move between Pods, Page Up and Page Down between nodes, Enter opens, plus and minus zoom, 0 shows everything. The table has the same content.",
  allNodes: "All nodes",
  noZone: "without a zone",
  zoneNodes: (count: number) => (count === 1 ? "1 node" : `${count.toLocaleString("en")} nodes`),
  zoneAndNode: "Zone and node",
  nodeTip: (zone: string, condition: string, pods: number) =>
    `${zone ? `${zone} · ` : ""}${condition} · ${pods} ${pods === 1 ? "Pod" : "Pods"}`,
  podTip: (node: string, state: string) => `${state} on ${node}`,
  openNode: (name: string) => `Open ${name}`,
  tableLabel: "Zones, nodes and Pods",
  keyTable: "Picture or table",
  feature: "the fleet",
  none: (label: string) => `No Pod is ${label}.`,
  closeTray: "Close the list",
  zoom: "Zoom",
  nodesReady: "Nodes ready",
  pods: "Pods",
  nodesMore: (count: number) => `Show ${count.toLocaleString("en")} more nodes`,
  extra: (count: number) => `${count} more without a place in the picture`,
  empty: "There are no nodes and no Pods.",
  emptyHint: "The picture fills as soon as a node registers.",
  lost: "The connection was lost. The picture shows the last known state.",
};
