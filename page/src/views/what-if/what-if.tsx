/** What if: a change is made to a copy of the cluster in virtual time, and the end is compared with the present. */
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { announce } from "../../a11y/live";
import { ask } from "../../link/hooks";
import { hello } from "../../link/link";
import { ApiError } from "../../link/protocol";
import type { Status } from "../../link/protocol";
import { at, logical, namespace, setLogical } from "../../state/place";
import { Button } from "../../ui/button";
import { Failure, Notice } from "../../ui/notice";
import { visible } from "../../ui/text";
import { shell } from "../../words/shell";
import { whatIf as words } from "../../words/what-if";
import { ChangeForm } from "./form";
import type { Question } from "./form";
import type { Plan } from "./model";
import { Result } from "./result";
import "./what-if.css";

/** The latest prediction, kept while another view is shown. */
const latest = signal<Plan | null>(null);

export default function WhatIf() {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Status | null>(null);
  const result = useRef<HTMLDivElement>(null);
  const plan = latest.value;
  useEffect(() => {
    if (at.value !== null) setError(null);
  }, [at.value]);
  if (logical.value) {
    return (
      <Notice title={words.title}>
        <p>{words.inFork}</p>
        <Button onClick={() => setLogical("")}>{shell.backToNow}</Button>
      </Notice>
    );
  }
  if (hello.value && !hello.value.features.includes("forks")) return <Notice title={shell.notOffered(words.feature)} />;
  const predict = async (question: Question) => {
    setBusy(true);
    setError(null);
    const { changes, until, at: moment, fork, faults } = question;
    const body = { changes, until, keep: words.forkName, namespace: namespace.peek() || "default", ...(moment ? { at: moment } : {}), ...(fork ? { fork } : {}), faults };
    try {
      const found = await ask<Plan>("POST", "/setpoint/v1/plan", { body, prefix: "" });
      latest.value = found;
      announce(visible(found.report.verdict));
      result.current?.scrollIntoView({ block: "nearest" });
    } catch (reason) {
      setError(reason instanceof ApiError ? reason.status : { message: String(reason) });
    }
    setBusy(false);
  };
  return (
    <div class="whatif-view">
      <header>
        <h2>{words.title}</h2>
        <p class="soft">{words.about}</p>
      </header>
      <ChangeForm busy={busy} fork={plan?.fork?.name ?? ""} ask={(question) => void predict(question)} />
      <div ref={result} aria-busy={busy}>
        {error ? <Failure error={error} {...(error.code === 403 ? { feature: words.feature } : {})} /> : null}
        {plan && !error ? <Result plan={plan} removed={() => (latest.value = null)} /> : null}
      </div>
    </div>
  );
}
