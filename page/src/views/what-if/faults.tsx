/** The faults that components of the copy should have: delayed watches, conflicts, stale reads, crashes. */
import { useEffect, useState } from "preact/hooks";
import { ask } from "../../link/hooks";
import { Button } from "../../ui/button";
import { visible } from "../../ui/text";
import { toastError } from "../../ui/toast";
import { whatIf as words } from "../../words/what-if";
import { MOST_FAULTS } from "./model";
import type { FaultChoices, WantedFault } from "./model";

/** What the server can inject; null until it has said so. */
function useFaultChoices(wanted: boolean): FaultChoices | null {
  const [choices, setChoices] = useState<FaultChoices | null>(null);
  useEffect(() => {
    if (!wanted || choices) return;
    let current = true;
    ask<FaultChoices>("GET", "/setpoint/v1/plan", { prefix: "" })
      .then((found) => current && setChoices(found))
      .catch(toastError);
    return () => void (current = false);
  }, [wanted, choices]);
  return choices;
}

export function FaultFields(props: { faults: readonly WantedFault[]; set(faults: WantedFault[]): void; nodes: readonly string[] }) {
  const { faults, set, nodes } = props;
  const [opened, setOpened] = useState(faults.length > 0);
  const choices = useFaultChoices(opened);
  const add = () => {
    setOpened(true);
    set([...faults, { component: "controllers", fault: "delay-watch", nth: "1", seconds: "", node: nodes[0] ?? "" }]);
  };
  return (
    <fieldset class="whatif-faults">
      <legend>{words.faults}</legend>
      {faults.length === 0 ? <p class="soft">{words.faultsAbout}</p> : null}
      {choices
        ? faults.map((one, index) => (
            <FaultRow
              key={index}
              number={index + 1}
              fault={one}
              choices={choices}
              nodes={nodes}
              set={(change) => set(faults.map((other, place) => (place === index ? { ...other, ...change } : other)))}
              remove={() => set(faults.filter((_, place) => place !== index))}
            />
          ))
        : null}
      <Button small disabled={faults.length >= MOST_FAULTS ? words.mostFaults(MOST_FAULTS) : null} onClick={add}>
        {words.addFault}
      </Button>
    </fieldset>
  );
}

function FaultRow(props: {
  number: number;
  fault: WantedFault;
  choices: FaultChoices;
  nodes: readonly string[];
  set(change: Partial<WantedFault>): void;
  remove(): void;
}) {
  const { number, fault, choices, nodes, set, remove } = props;
  const kind = choices.faults.find((one) => one.id === fault.fault);
  const id = (name: string) => `whatif-fault-${number}-${name}`;
  return (
    <div class="whatif-fault" role="group" aria-label={words.faultNumber(number)}>
      <div class="whatif-field">
        <label for={id("component")}>{words.component}</label>
        <select id={id("component")} class="field" value={fault.component} onChange={(event) => set({ component: event.currentTarget.value })}>
          {choices.components.map((one) => (
            <option key={one} value={one}>
              {words.components[one] ?? one}
            </option>
          ))}
        </select>
      </div>
      <div class="whatif-field">
        <label for={id("kind")}>{words.fault}</label>
        <select id={id("kind")} class="field" value={fault.fault} onChange={(event) => set({ fault: event.currentTarget.value, seconds: "" })}>
          {Object.entries(words.faultGroups).map(([unit, label]) => (
            <optgroup key={unit} label={label}>
              {choices.faults
                .filter((one) => one.at === unit)
                .map((one) => (
                  <option key={one.id} value={one.id}>
                    {one.title}
                  </option>
                ))}
            </optgroup>
          ))}
        </select>
      </div>
      <div class="whatif-field narrow">
        <label for={id("nth")}>{words.faultNumbers[kind?.at ?? ""] ?? words.faultNumbers.write}</label>
        <input id={id("nth")} class="field" type="number" min={1} value={fault.nth} onInput={(event) => set({ nth: event.currentTarget.value })} />
      </div>
      {kind && kind.seconds > 0 ? (
        <div class="whatif-field narrow">
          <label for={id("seconds")}>{words.faultSeconds}</label>
          <input
            id={id("seconds")}
            class="field"
            type="number"
            min={0.001}
            step="any"
            placeholder={String(kind.seconds)}
            value={fault.seconds}
            onInput={(event) => set({ seconds: event.currentTarget.value })}
          />
        </div>
      ) : null}
      {kind?.node ? (
        <div class="whatif-field narrow">
          <label for={id("node")}>{words.node}</label>
          <select id={id("node")} class="field" value={fault.node} onChange={(event) => set({ node: event.currentTarget.value })}>
            {nodes.map((one) => (
              <option key={one} value={one}>
                {visible(one)}
              </option>
            ))}
          </select>
        </div>
      ) : null}
      <Button small aria-label={words.removeFaultNumber(number)} onClick={remove}>
        {words.removeFault}
      </Button>
    </div>
  );
}
