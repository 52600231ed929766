/** The prediction: now and then side by side, what happens in which order, and what to do next. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { ask } from "../../link/hooks";
import { setLogical } from "../../state/place";
import { Button } from "../../ui/button";
import { Confirm } from "../../ui/dialog";
import { visible } from "../../ui/text";
import { toast, toastError } from "../../ui/toast";
import { whatIf as words } from "../../words/what-if";
import { spoken } from "./model";
import type { ComparedRow, Plan } from "./model";

const LISTED = 12;

export function Result({ plan, removed }: { plan: Plan; removed(): void }) {
  const { report } = plan;
  return (
    <section class="whatif-result" aria-label={words.result}>
      <h3 class={plan.converges ? "whatif-verdict" : "whatif-verdict bad"}>{visible(report.verdict)}</h3>
      <p class="soft">{words.took(String(plan.revision), spoken(plan.passed), plan.took.toFixed(1))}</p>
      <Actions plan={plan} removed={removed} />
      <Lines title={words.refused} lines={plan.refused} bad />
      <Compared rows={plan.compared} />
      <Lines title={words.interruptions} lines={plan.interruptions.map(interruption)} bad />
      <Lines
        title={words.moved}
        lines={plan.moved.map((one) => words.movedLine(one.before, one.from_node, one.after, one.to_node))}
      />
      <section class="whatif-part">
        <h4>{words.events}</h4>
        {report.events.length === 0 ? <p class="soft">{words.noEvents}</p> : null}
        <ol class="whatif-events">
          {report.events.map((one, index) => (
            <li key={index}>
              <span class="number faint">{one.after}</span> {visible(one.text)}
            </li>
          ))}
          {report.moreEvents > 0 ? <li class="soft">{words.moreEvents(report.moreEvents)}</li> : null}
        </ol>
      </section>
      {report.sections.filter(isShown).map((one) => (
        <Lines key={one.title} title={one.title} lines={one.lines} />
      ))}
      <Steps plan={plan} />
      <Fold title={words.differs}>
        <Plain lines={report.changes} />
      </Fold>
      <Fold title={words.limits}>
        <Plain lines={report.limits} />
      </Fold>
    </section>
  );
}

/** The interruptions have a part of their own. */
function isShown(section: { title: string }): boolean {
  return section.title !== "In between";
}

function interruption(one: Plan["interruptions"][number]): string {
  const lasting = one.seconds === null ? words.toTheEnd : words.lasting(spoken(one.seconds));
  return (one.kind === "Service" ? words.noEndpoints : words.budget)(one.name, spoken(one.since), lasting);
}

/** What the components with faults received and wrote: the numbers that faults have. */
function Steps({ plan }: { plan: Plan }) {
  const faults = plan.faults;
  if (!faults || faults.steps.length === 0) return null;
  return (
    <Fold title={words.steps}>
      <p class="soft">{words.stepsAbout}</p>
      <ol class="whatif-events">
        {faults.steps.map((one, index) => (
          <li key={index} class={one.fault ? "faulty" : ""}>
            <span class="number faint">{spoken(one.when)}</span>
            <span>
              {words.step(words.components[one.component] ?? one.component, words.stepNumber(one.at, one.nth), visible(one.what))}
              {one.fault ? <strong> {words.stepFault(one.fault)}</strong> : null}
              {one.answer ? <span class="soft"> {visible(one.answer)}</span> : null}
            </span>
          </li>
        ))}
        {faults.moreSteps > 0 ? <li class="soft">{words.moreEvents(faults.moreSteps)}</li> : null}
      </ol>
    </Fold>
  );
}

function Compared({ rows }: { rows: readonly ComparedRow[] }) {
  return (
    <div class="whatif-scroll" tabIndex={0} role="region" aria-label={words.sideBySide}>
      <table class="whatif-compared">
        <thead>
          <tr>
            <th scope="col">{words.what}</th>
            <th scope="col">{words.now}</th>
            <th scope="col">{words.then}</th>
            <th scope="col">{words.remark}</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={`${row.kind}/${row.namespace}/${row.name}`}>
              <th scope="row">{row.name ? visible(`${row.kind.toLowerCase()}/${row.name}`) : words.allPods}</th>
              <td data-label={words.now}>{visible(row.now)}</td>
              <td data-label={words.then} class={row.now === row.then ? "" : "changed"}>
                {visible(row.then)}
              </td>
              <td class="soft">{visible(row.note)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Lines({ title, lines, bad = false }: { title: string; lines: readonly string[]; bad?: boolean }) {
  if (lines.length === 0) return null;
  return (
    <section class={bad ? "whatif-part bad" : "whatif-part"}>
      <h4>{title}</h4>
      <Plain lines={lines} />
    </section>
  );
}

function Plain({ lines }: { lines: readonly string[] }) {
  return (
    <ul class="whatif-lines">
      {lines.map((line, index) => (
        <li key={index}>{visible(line)}</li>
      ))}
    </ul>
  );
}

function Fold({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <details class="whatif-part">
      <summary>{title}</summary>
      {children}
    </details>
  );
}

function Actions({ plan, removed }: { plan: Plan; removed(): void }) {
  const [asking, setAsking] = useState(false);
  const fork = plan.fork;
  const remove = async () => {
    if (!fork) return;
    try {
      await ask("DELETE", `/setpoint/v1/forks/${fork.name}`, { prefix: "" });
      toast(words.removed);
      removed();
    } catch (error) {
      toastError(error);
    }
  };
  return (
    <div class="whatif-actions">
      {fork ? (
        <Button title={words.lookHint} onClick={() => setLogical(fork.path)}>
          {words.look}
        </Button>
      ) : null}
      {plan.requests.length > 0 ? (
        <Button writes onClick={() => setAsking(true)} aria-haspopup="dialog">
          {words.applyHere}
        </Button>
      ) : null}
      {fork ? <Button onClick={() => void remove()}>{words.remove}</Button> : null}
      {asking ? <Apply plan={plan} close={() => setAsking(false)} /> : null}
    </div>
  );
}

/** Send the requests of the change to the cluster itself, one after the other. */
function Apply({ plan, close }: { plan: Plan; close(): void }) {
  const [working, setWorking] = useState(false);
  const apply = async () => {
    if (working) return;
    setWorking(true);
    let made = 0;
    try {
      for (const one of plan.requests) {
        const query = Object.fromEntries(new URLSearchParams(one.query));
        await ask(one.method, one.path, {
          query,
          contentType: one.contentType,
          prefix: "",
          ...(one.body === null ? {} : { body: one.body }),
        });
        made += 1;
      }
      toast(words.applied(made));
    } catch (error) {
      toastError(error);
    }
    close();
  };
  return (
    <Confirm title={words.applyTitle} action={words.apply} danger confirm={() => void apply()} close={close}>
      <p>{words.applyQuestion(plan.requests.length)}</p>
      <ul class="whatif-lines">
        {plan.requests.slice(0, LISTED).map((one, index) => (
          <li key={index}>{visible(one.text)}</li>
        ))}
        {plan.requests.length > LISTED ? <li class="soft">{words.moreEvents(plan.requests.length - LISTED)}</li> : null}
      </ul>
    </Confirm>
  );
}
