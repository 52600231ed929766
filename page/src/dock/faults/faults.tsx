/** Break something on purpose: what is possible, what is in effect, and undo. */
import { useMemo, useState } from "preact/hooks";
import { ask, useFeed } from "../../link/hooks";
import { logical } from "../../state/place";
import { linkTo } from "../../router";
import { Button } from "../../ui/button";
import { Icon } from "../../ui/icon";
import { Failure, Loading } from "../../ui/notice";
import { visible } from "../../ui/text";
import { now, shortDuration } from "../../ui/time";
import { toast, toastError } from "../../ui/toast";
import { faults as words } from "../../words/faults";
import { FaultForm } from "./form";
import { faultsOf } from "./model";
import type { ActiveFault, FaultItem, FaultKind, Faults } from "./model";
import "./faults.css";

export default function FaultsPanel() {
  const feed = useFeed<FaultItem>("faults", {}, logical.value);
  const found = useMemo(() => faultsOf(feed.items), [feed.revision, feed.items]);
  if (feed.error) return <Failure error={feed.error} feature={words.feature} />;
  if (!feed.synced) return <Loading />;
  return (
    <div class="faults-panel">
      <section class="faults-active" aria-label={words.active}>
        <h3>{words.active}</h3>
        {found.active.length === 0 ? <p class="soft">{words.noneActive}</p> : null}
        <ul class="faults-list">
          {found.active.map((one) => (
            <Active key={one.id} fault={one} />
          ))}
        </ul>
      </section>
      <Possible found={found} />
    </div>
  );
}

function Active({ fault }: { fault: ActiveFault }) {
  const undo = async () => {
    try {
      await ask("POST", "/setpoint/v1/faults", { body: { undo: fault.id }, prefix: logical.peek() });
      toast(words.undone(visible(fault.text)));
    } catch (error) {
      toastError(error);
    }
  };
  const details = [
    fault.since ? words.since(shortDuration(now.value - fault.since)) : "",
    fault.by ? words.by(visible(fault.by)) : "",
    fault.until ? words.endsIn(shortDuration(fault.until - now.value)) : "",
  ];
  return (
    <li>
      <span>
        <strong>{visible(fault.text)}</strong> <span class="faint number">{details.filter(Boolean).join(", ")}</span>
      </span>
      {fault.undo ? (
        <Button small writes aria-label={words.undoThis(visible(fault.text))} onClick={() => void undo()}>
          {words.undo}
        </Button>
      ) : null}
    </li>
  );
}

function Possible({ found }: { found: Faults }) {
  const [open, setOpen] = useState<FaultKind | null>(null);
  const groups = [...new Set(found.kinds.map((one) => one.group))];
  const simulated = found.state.simulatedNodes > 0;
  return (
    <section class="faults-possible" aria-label={words.possible}>
      <h3>{words.possible}</h3>
      <p class="soft">{words.about}</p>
      <div class="faults-groups">
        {groups.map((group) => (
          <div key={group} class="faults-group">
            <h4>{words.groups[group] ?? group}</h4>
            <div class="faults-buttons">
              {found.kinds
                .filter((one) => one.group === group)
                .map((one) => (
                  <Button
                    key={one.id}
                    small
                    writes
                    title={one.about}
                    aria-haspopup="dialog"
                    disabled={one.simulated && !simulated ? words.onlySimulated : null}
                    onClick={() => setOpen(one)}
                  >
                    <Icon name="faults" /> {one.title}
                  </Button>
                ))}
            </div>
          </div>
        ))}
        {logical.value ? null : (
          <div class="faults-group">
            <h4>{words.links}</h4>
            <p class="soft">
              {words.linksAbout} <a href={linkTo({ view: "what-if" })}>{words.linksPlace}</a>.
            </p>
          </div>
        )}
      </div>
      {open ? <FaultForm fault={open} state={found.state} close={() => setOpen(null)} /> : null}
    </section>
  );
}
