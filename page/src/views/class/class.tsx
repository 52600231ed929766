/** The teacher's board: who is where, what everyone does next, and a look at any seat. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { converse, useFeed } from "../../link/hooks";
import { navigate } from "../../router";
import { setLogical } from "../../state/place";
import { Button } from "../../ui/button";
import { Confirm } from "../../ui/dialog";
import { Failure, Loading, Notice } from "../../ui/notice";
import { Phase } from "../../ui/phase";
import { visible } from "../../ui/text";
import { Ago, now, shortDuration } from "../../ui/time";
import { toast } from "../../ui/toast";
import { classroom as words } from "../../words/class";
import { csv, isAway, isStuck, sorted } from "./seats";
import type { ClassItem, Seat } from "./seats";
import "./class.css";

interface Lessons {
  lessons?: { id: string; title: string }[];
}

export default function Class() {
  const feed = useFeed<Seat | ClassItem | Lessons>("class", {});
  const control = useControl();
  const seats = useMemo(
    () => sorted([...feed.items].filter(([key]) => /^s[0-9a-f]{8}$/.test(key)).map(([, item]) => item as Seat)),
    [feed.revision],
  );
  if (feed.error) return <Failure error={feed.error} feature="classes" />;
  const about = feed.items.get("class") as ClassItem | undefined;
  if (!feed.synced || !about) return <Loading />;
  const lessons = (feed.items.get("lessons") as Lessons | undefined)?.lessons ?? [];
  return (
    <div class="class">
      <Invitation about={about} />
      {seats.length > 0 ? (
        <>
          <Everyone say={control} lessons={lessons} seats={seats} />
          <Seats seats={seats} say={control} />
        </>
      ) : (
        <Notice title={words.nobody}>
          <p>{words.nobodyHint}</p>
        </Notice>
      )}
    </div>
  );
}

type Say = (command: object) => void;

/** The conversation in which commands are given; each outcome is shown. */
function useControl(): Say {
  const channel = useRef<ReturnType<typeof converse> | null>(null);
  useEffect(() => {
    const opened = converse("class-control", {}, { message: (data) => toast((data as { done: string }).done) }, "");
    channel.current = opened;
    return () => opened.close();
  }, []);
  return (command) => channel.current?.say(command);
}

function Invitation({ about }: { about: ClassItem }) {
  const link = `${location.origin}/#class-${about.code}`;
  const copy = async () => {
    await navigator.clipboard.writeText(link);
    toast(words.copied);
  };
  return (
    <section class="class-invitation" aria-label={words.joinWith}>
      <p>{words.joinWith}</p>
      <p class="class-link">
        <code>{link}</code>
        {/* The clipboard is for pages over TLS and on this machine only. */}
        {window.isSecureContext ? (
          <Button small onClick={() => void copy()}>
            {words.copy}
          </Button>
        ) : null}
      </p>
      <p class="soft">{words.seats(about.taken, about.seats)}</p>
    </section>
  );
}

function Everyone({ say, lessons, seats }: { say: Say; lessons: readonly { id: string; title: string }[]; seats: readonly Seat[] }) {
  const [lesson, setLesson] = useState("");
  const [text, setText] = useState("");
  const [asking, setAsking] = useState(false);
  const chosen = lesson || lessons[0]?.id || "";
  const title = lessons.find((one) => one.id === chosen)?.title ?? chosen;
  return (
    <section class="class-everyone" aria-label={words.everyone}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (chosen) say({ do: "notice", notice: { lesson: chosen, title } });
        }}
      >
        <label>
          {words.sendTo}
          <select class="field" value={chosen} onChange={(event) => setLesson(event.currentTarget.value)}>
            {lessons.map((one) => (
              <option key={one.id} value={one.id}>
                {visible(one.title)}
              </option>
            ))}
          </select>
        </label>
        <Button type="submit">{words.send}</Button>
      </form>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (text.trim()) say({ do: "notice", notice: { text: text.trim() } });
          setText("");
        }}
      >
        <label>
          {words.message}
          <input class="field" type="text" maxLength={300} value={text} onInput={(event) => setText(event.currentTarget.value)} />
        </label>
        <Button type="submit">{words.say}</Button>
      </form>
      <Button onClick={() => setAsking(true)}>{words.inject}</Button>
      <Button look="plain" onClick={() => save(seats)}>
        {words.export}
      </Button>
      {asking ? (
        <Confirm
          title={words.fault}
          action={words.inject}
          danger
          close={() => setAsking(false)}
          confirm={() => {
            setAsking(false);
            say({ do: "fault", fault: { fault: "node-stop", target: "node-1" } });
          }}
        >
          <p>{words.faultHint}</p>
        </Confirm>
      ) : null}
    </section>
  );
}

function Seats({ seats, say }: { seats: readonly Seat[]; say: Say }) {
  const [removing, setRemoving] = useState<Seat | null>(null);
  const { columns } = words;
  return (
    <div class="class-seats" tabIndex={0} role="region" aria-label={words.board}>
      <table role="table">
        <thead role="rowgroup">
          <tr role="row">
            {[columns.name, columns.lesson, columns.progress, columns.command, columns.since, columns.state].map((name) => (
              <th key={name} scope="col" role="columnheader">
                {name}
              </th>
            ))}
            <td role="cell" />
          </tr>
        </thead>
        <tbody role="rowgroup">
          {seats.map((seat) => (
            <tr key={seat.seat} role="row">
              <th scope="row" role="rowheader">{visible(seat.nickname)}</th>
              <td role="cell">{seat.lesson ? visible(seat.lesson) : <span class="soft">{words.noLesson}</span>}</td>
              <td role="cell">{seat.steps ? <Steps done={seat.done ?? 0} all={seat.steps} /> : null}</td>
              <td role="cell" class="class-command">
                {seat.command ? <code title={visible(seat.command)}>{visible(seat.command)}</code> : null}
              </td>
              <td role="cell">{seat.commandAt ? <Ago time={new Date(seat.commandAt * 1_000).toISOString()} /> : null}</td>
              <td role="cell">
                <State seat={seat} />
              </td>
              <td role="cell" class="class-actions">
                <Button small aria-label={words.lookAt(visible(seat.nickname))} onClick={() => lookAt(seat)}>
                  {words.look}
                </Button>
                <Button small look="danger" onClick={() => setRemoving(seat)}>
                  {words.remove}
                </Button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {removing ? (
        <Confirm
          title={words.removeTitle(visible(removing.nickname))}
          action={words.remove}
          danger
          close={() => setRemoving(null)}
          confirm={() => {
            say({ do: "remove", seat: removing.seat });
            setRemoving(null);
          }}
        >
          <p>{words.removeHint}</p>
        </Confirm>
      ) : null}
    </div>
  );
}

function State({ seat }: { seat: Seat }) {
  if (isAway(seat)) return <>{words.away}</>;
  if (!isStuck(seat, now.value)) return <>{words.states[seat.state] ?? seat.state}</>;
  return <Phase phase="stuck" word={words.stuck(shortDuration(now.value - (seat.stepAt ?? 0) * 1_000))} />;
}

function Steps({ done, all }: { done: number; all: number }) {
  return (
    <span class="class-steps">
      <progress max={all} value={done} aria-hidden="true" />
      {words.steps(done, all)}
    </span>
  );
}

function lookAt(seat: Seat): void {
  setLogical(seat.cluster || `/seats/${seat.seat}`);
  navigate({ view: "objects" });
}

/** Save the board as a file. */
function save(seats: readonly Seat[]): void {
  const url = URL.createObjectURL(new Blob([csv(seats)], { type: "text/csv" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = words.file;
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
