/** The text form of the picture: zones, their nodes, and the Pods of a node. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { Button } from "../../ui/button";
import { Icon } from "../../ui/icon";
import { visible } from "../../ui/text";
import { now } from "../../ui/time";
import { fleet as words } from "../../words/fleet";
import type { FleetConnection } from "./connection";
import type { FleetModel } from "./model";
import { NODE_READY, POD_STATES, STATES, STATE_MASK } from "./states";
import { Swatch } from "./swatch";

const NODES_AT_ONCE = 100;

interface Row {
  key: string;
  name: string;
  ready: number;
  nodes: number;
  pods: number;
  counts: number[];
}

interface ZoneRow extends Row {
  positions: number[];
}

type SortKey = "name" | "ready" | "pods" | number;

export interface TableProps {
  connection: FleetConnection;
  openPod(name: string): void;
  openNode(name: string): void;
}

function countsOf(model: FleetModel, position: number): number[] {
  return Array.from({ length: STATES }, (_, state) => model.counts[position * STATES + state] ?? 0);
}

function zoneRows(model: FleetModel): ZoneRow[] {
  const found = new Map<string, ZoneRow>();
  model.nodes.forEach((node, position) => {
    let row = found.get(node.zone);
    if (!row) {
      row = { key: node.zone, name: node.zone || words.noZone, ready: 0, nodes: 0, pods: 0, counts: new Array(STATES).fill(0), positions: [] };
      found.set(node.zone, row);
    }
    row.nodes += 1;
    row.ready += node.state === NODE_READY ? 1 : 0;
    for (let state = 1; state < STATES; state++) {
      const count = model.counts[position * STATES + state] ?? 0;
      row.counts[state]! += count;
      row.pods += count;
    }
    row.pods += node.extra;
    row.positions.push(position);
  });
  return [...found.values()];
}

function sorted<R extends Row>(rows: readonly R[], sort: { by: SortKey; down: boolean }): R[] {
  const value = (row: R) =>
    sort.by === "ready" ? row.ready : sort.by === "pods" ? row.pods : sort.by === "name" ? 0 : (row.counts[sort.by] ?? 0);
  const sign = sort.down ? -1 : 1;
  // The server has ordered them by zone and name.
  if (sort.by === "name") return sort.down ? rows.toReversed() : [...rows];
  return rows.toSorted((a, b) => sign * (value(a) - value(b)));
}

export function FleetTable({ connection, openPod, openNode }: TableProps) {
  const { model } = connection;
  const layout = model.layouts.value;
  // Once a second is enough for numbers that people read, and thousands of rows take time to sort.
  void now.value;
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const [openNodes, setOpenNodes] = useState<ReadonlySet<string>>(new Set());
  const [sort, setSort] = useState<{ by: SortKey; down: boolean }>({ by: "name", down: false });
  const zones = sorted(zoneRows(model), sort);
  const onlyZone = zones.length === 1 ? zones[0]!.key : null;

  const toggle = (set: ReadonlySet<string>, key: string) => {
    const next = new Set(set);
    if (!next.delete(key)) next.add(key);
    return next;
  };
  const header = (by: SortKey, label: string, state?: number) => (
    <th scope="col" key={String(by)} aria-sort={sort.by === by ? (sort.down ? "descending" : "ascending") : "none"}>
      <button
        type="button"
        class="fleet-sort"
        onClick={() => setSort({ by, down: sort.by === by ? !sort.down : by !== "name" })}
      >
        {state ? <Swatch state={state} /> : null}
        {label}
        {sort.by === by ? <Icon name={sort.down ? "down" : "up"} /> : null}
      </button>
    </th>
  );

  return (
    <div class="fleet-table" tabIndex={0} role="region" aria-label={words.tableLabel}>
      <table>
        <thead>
          <tr>
            {header("name", words.zoneAndNode)}
            {header("ready", words.nodesReady)}
            {header("pods", words.pods)}
            {POD_STATES.map((one) => header(one.state, one.label, one.state))}
          </tr>
        </thead>
        {zones.map((zone) => {
          const expanded = open.has(zone.key) || zone.key === onlyZone;
          return (
            <tbody key={zone.key}>
              <tr class="fleet-zone-row">
                <th scope="row">
                  {zone.key === onlyZone ? (
                    visible(zone.key || words.allNodes)
                  ) : (
                    <Expander open={expanded} label={visible(zone.name)} toggle={() => setOpen((now) => toggle(now, zone.key))} />
                  )}
                </th>
                <td class="number">
                  {zone.ready} / {zone.nodes}
                </td>
                <Counts row={zone} />
              </tr>
              {expanded ? (
                <NodeRows
                  key={layout}
                  connection={connection}
                  zone={zone}
                  sort={sort}
                  open={openNodes}
                  toggle={(name) => setOpenNodes((now) => toggle(now, name))}
                  openPod={openPod}
                  openNode={openNode}
                />
              ) : null}
            </tbody>
          );
        })}
      </table>
    </div>
  );
}

function Expander({ open, label, toggle }: { open: boolean; label: string; toggle(): void }) {
  return (
    <button type="button" class="fleet-expander" aria-expanded={open} onClick={toggle}>
      <Icon name={open ? "down" : "right"} />
      {label}
    </button>
  );
}

function Counts({ row }: { row: Row }) {
  return (
    <>
      <td class="number">{row.pods.toLocaleString("en")}</td>
      {POD_STATES.map((one) => (
        <td key={one.state} class={row.counts[one.state] ? "number" : "number faint"}>
          {(row.counts[one.state] ?? 0).toLocaleString("en")}
        </td>
      ))}
    </>
  );
}

function NodeRows(props: {
  connection: FleetConnection;
  zone: ZoneRow;
  sort: { by: SortKey; down: boolean };
  open: ReadonlySet<string>;
  toggle(name: string): void;
  openPod(name: string): void;
  openNode(name: string): void;
}) {
  const { connection, zone, sort } = props;
  const { model } = connection;
  const [shown, setShown] = useState(NODES_AT_ONCE);
  const rows = useMemo(
    () =>
      sorted(
        zone.positions.map((position) => {
          const node = model.nodes[position]!;
          const ready = node.state === NODE_READY ? 1 : 0;
          const pods = model.podsOf(position) + node.extra;
          return { key: node.name, name: node.name, ready, nodes: 1, pods, counts: countsOf(model, position), position };
        }),
        sort,
      ),
    [zone, sort],
  );
  const rest = rows.length - shown;
  return (
    <>
      {rows.slice(0, shown).map((row) => {
        const node = model.nodes[row.position]!;
        const condition = [words.nodeStates[node.state] ?? "", node.cordoned ? words.cordoned : ""].filter(Boolean).join(", ");
        const expanded = props.open.has(row.key);
        return (
          <>
            <tr key={row.key} class="fleet-node-row">
              <th scope="row">
                <Expander open={expanded} label={visible(row.name)} toggle={() => props.toggle(row.key)} />
                <Button small look="plain" onClick={() => props.openNode(row.name)} aria-label={words.openNode(visible(row.name))}>
                  <Icon name="open" />
                </Button>
              </th>
              <td class={node.state === NODE_READY && !node.cordoned ? "" : "fleet-bad"}>{condition}</td>
              <Counts row={row} />
            </tr>
            {expanded ? <PodRow key={`${row.key} pods`} connection={connection} position={row.position} openPod={props.openPod} /> : null}
          </>
        );
      })}
      {rest > 0 ? (
        <tr>
          <td colSpan={3 + POD_STATES.length}>
            <Button small onClick={() => setShown(shown + 5 * NODES_AT_ONCE)}>
              {words.nodesMore(Math.min(rest, 5 * NODES_AT_ONCE))}
            </Button>
          </td>
        </tr>
      ) : null}
    </>
  );
}

function PodRow({ connection, position, openPod }: { connection: FleetConnection; position: number; openPod(name: string): void }) {
  const { model } = connection;
  const [names, setNames] = useState<readonly (string | null)[]>([]);
  const total = model.podsOf(position);
  useEffect(() => {
    const unlisten = connection.onNames((message) => {
      const found = message.nodes.find(([one]) => one === position);
      if (found && message.layout === model.layout) setNames(found[1]);
    });
    connection.askNames([position]);
    return unlisten;
  }, [connection, position, total]);
  return (
    <tr>
      <td colSpan={3 + POD_STATES.length}>
        <ul class="fleet-pods">
          {names.map((name, slot) => {
            const state = (model.slots[position * model.stride + slot] ?? 0) & STATE_MASK;
            if (!name || !state) return null;
            return (
              <li key={slot}>
                <Button small look="plain" onClick={() => openPod(name)}>
                  <Swatch state={state} />
                  {visible(name)} <span class="soft">{words.states[state]?.label}</span>
                </Button>
              </li>
            );
          })}
        </ul>
      </td>
    </tr>
  );
}
