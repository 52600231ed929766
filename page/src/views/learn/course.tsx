/** The list of lessons with the learner's progress. */
import { useRef, useState } from "preact/hooks";
import { converse, useFeed } from "../../link/hooks";
import { linkTo } from "../../router";
import { Button } from "../../ui/button";
import { Icon } from "../../ui/icon";
import { Failure, Loading, Notice } from "../../ui/notice";
import { visible } from "../../ui/text";
import { toast } from "../../ui/toast";
import { learn as words } from "../../words/learn";
import { dropped, goTo } from "./session";
import type { CourseItem, Summary } from "./tree";

const MOST = 256 * 1024;

export function CourseList() {
  const feed = useFeed<CourseItem | Summary>("lessons", {}, "");
  const [over, setOver] = useState(false);
  if (feed.error) return <Failure error={feed.error} feature={words.feature} small={false} />;
  if (!feed.synced) return <Loading />;
  const items = [...feed.items.values()];
  const courses = items.filter((item): item is CourseItem => item.type === "course").sort((a, b) => a.order - b.order);
  const lessons = items.filter((item): item is Summary => item.type === "lesson");
  const done = lessons.filter((lesson) => lesson.done).length;
  return (
    <div
      class={over ? "learn-list over" : "learn-list"}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        const file = event.dataTransfer?.files[0];
        if (file) void openFile(file);
      }}
    >
      <header class="learn-list-head">
        <p class="faint">{words.total(done, lessons.length)}</p>
        <Tools />
      </header>
      {lessons.length === 0 ? (
        <Notice title={words.none}>
          <p>{words.noneHint}</p>
        </Notice>
      ) : null}
      {courses.map((course) => (
        <div key={course.name}>
          <h2>{visible(course.title)}</h2>
          {course.problems.length > 0 ? (
            <div class="learn-problems">
              <p>{words.problems}</p>
              <ul>
                {course.problems.map((problem) => (
                  <li key={problem}>
                    <code>{visible(problem)}</code>
                  </li>
                ))}
              </ul>
            </div>
          ) : null}
          <ol class="learn-cards">
            {lessons
              .filter((lesson) => lesson.course === course.name)
              .sort((a, b) => a.number - b.number)
              .map((lesson) => (
                <Card key={lesson.id} lesson={lesson} />
              ))}
          </ol>
        </div>
      ))}
      <p class="faint">{words.dropHint}</p>
    </div>
  );
}

function Card({ lesson }: { lesson: Summary }) {
  const state = lesson.done ? words.done : lesson.met > 0 ? words.progress(lesson.met, lesson.total) : "";
  return (
    <li class={lesson.done ? "learn-card done" : "learn-card"}>
      <a href={linkTo({ view: "learn", kind: null, name: "", params: { lesson: lesson.id } })}>
        <span class="learn-number" aria-hidden="true">
          {lesson.done ? <Icon name="check" /> : lesson.number}
        </span>
        <span class="learn-card-text">
          <span class="learn-card-title">{visible(lesson.title)}</span>
          <span class="learn-card-summary">{visible(lesson.summary)}</span>
          <span class="faint">
            {words.minutes(lesson.minutes)}
            {state ? ` · ${state}` : ""}
          </span>
        </span>
        <progress class="learn-bar" max={lesson.total || 1} value={lesson.met} aria-hidden="true" />
      </a>
    </li>
  );
}

function Tools() {
  const lessonFile = useRef<HTMLInputElement>(null);
  const progressFile = useRef<HTMLInputElement>(null);
  return (
    <div class="learn-actions">
      <Button small look="plain" onClick={() => lessonFile.current?.click()}>
        {words.drop}
      </Button>
      <Button small look="plain" onClick={exportProgress}>
        {words.export}
      </Button>
      <Button small look="plain" onClick={() => progressFile.current?.click()}>
        {words.import}
      </Button>
      <input ref={lessonFile} type="file" accept=".md" hidden aria-label={words.drop} onChange={(event) => void taken(event.currentTarget, openFile)} />
      <input ref={progressFile} type="file" accept=".json" hidden aria-label={words.import} onChange={(event) => void taken(event.currentTarget, importProgress)} />
    </div>
  );
}

async function taken(input: HTMLInputElement, use: (file: File) => Promise<void>): Promise<void> {
  const file = input.files?.[0];
  input.value = "";
  if (file) await use(file);
}

/** Open a lesson file, which only this tab knows. */
async function openFile(file: File): Promise<void> {
  if (file.size > MOST) {
    toast(words.tooLarge, { error: true });
    return;
  }
  const name = file.name.replace(/\.md$/i, "").toLowerCase().replace(/[^a-z0-9-]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 40) || "lesson";
  dropped.value = { name, text: await file.text() };
  goTo(`dropped/${name}`);
}

function exportProgress(): void {
  const channel = converse(
    "progress",
    { export: true },
    {
      message: (data) => {
        const found = data as { export: unknown; leftOut: number };
        const text = JSON.stringify(found.export, null, 2);
        const link = document.createElement("a");
        link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
        link.download = "setpoint-progress.json";
        link.click();
        window.setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
        if (found.leftOut) toast(words.leftOut(found.leftOut));
        channel.close();
      },
      end: (error) => error && toast(error.message ?? words.notProgress, { error: true }),
    },
    "",
  );
}

async function importProgress(file: File): Promise<void> {
  let found: unknown;
  try {
    found = JSON.parse(await file.text());
  } catch {
    toast(words.notProgress, { error: true });
    return;
  }
  converse(
    "progress",
    { import: found },
    {
      message: (data) => {
        const found = data as { imported: number; leftOut: number };
        toast(words.imported(found.imported));
        if (found.leftOut) toast(words.leftOut(found.leftOut));
      },
      end: (error) => error && toast(error.message ?? words.notProgress, { error: true }),
    },
    "",
  );
}
