/** Buttons for what a lesson does itself: faults, and its operator. */
import { useState } from "preact/hooks";
import { Button } from "../../ui/button";
import { Icon } from "../../ui/icon";
import { learn as words } from "../../words/learn";
import { current, say } from "./session";

export function FaultButton({ faults, number }: { faults: string[]; number: number }) {
  const [pressed, setPressed] = useState(false);
  const states = faults.map(stateOf).filter(Boolean);
  return (
    <div class="learn-action" data-fault={number}>
      <Button
        look="primary"
        writes
        onClick={() => {
          say({ fault: number });
          setPressed(true);
        }}
      >
        <Icon name="faults" /> {faults.map(words.fault).join(", ")}
      </Button>
      <span class="faint" role="status">
        {states.length > 0 ? states.join(" ") : pressed ? words.faultDone : ""}
      </span>
    </div>
  );
}

/** Whether the component that a fault concerns runs; empty for other faults. */
function stateOf(fault: string): string {
  const [target = ""] = fault.split(" ");
  const running = current.value?.running?.components[target];
  return running === undefined ? "" : words.componentState(target, running);
}

export function OperatorPart({ operator }: { operator: string }) {
  const running = current.value?.running?.operators.includes(operator) ?? false;
  const failure = current.value?.running?.failures[operator];
  return (
    <div class="learn-operator" role="group" aria-label={words.operator(operator)}>
      <p>
        <strong>{words.operator(operator)}</strong>{" "}
        <span class={running ? "badge settled" : "badge"} role="status">
          {running ? words.operatorRuns : (failure ?? words.operatorStopped)}
        </span>
      </p>
      <Button look="primary" writes onClick={() => say({ operator: !running })}>
        <Icon name={running ? "pause" : "play"} /> {running ? words.operatorStop : words.operatorStart}
      </Button>
    </div>
  );
}
