/** The timeline in full: all authors, the writes as a list, and the differences of a range. */
import { useState } from "preact/hooks";
import { useKeys } from "../../a11y/keyboard";
import { route, setParam } from "../../router";
import { at } from "../../state/place";
import { phone } from "../../state/settings";
import { Chart } from "../../timeline/chart";
import { Controls } from "../../timeline/controls";
import { useTimeline, wantOlder } from "../../timeline/data";
import { pause, play, playing } from "../../timeline/scrub";
import { revisionText, timeText } from "../../timeline/text";
import { fitWindow, mode, setMode } from "../../timeline/window";
import { Button } from "../../ui/button";
import { Icon } from "../../ui/icon";
import { Failure, Loading, Notice } from "../../ui/notice";
import { timeline as words } from "../../words/timeline";
import { Differences } from "./differences";
import { Marks } from "./marks";
import { WriteList } from "./list";
import "../../timeline/chart.css";
import "./timeline.css";

const LANE_HEIGHT = 22;
const MOST_LANES = 14;
const PHONE_LANES = 4;

/** The chosen range, from the address: `102400-102993`. */
function readRange(): readonly [number, number] | null {
  const found = /^(\d{1,15})-(\d{1,15})$/.exec(route.value.params.range ?? "");
  return found ? [Number(found[1]), Number(found[2])] : null;
}

export default function TimelineView() {
  const data = useTimeline();
  const range = readRange();
  const [chosen, setRanging] = useState(false);
  const ranging = chosen || range !== null;
  useKeys(() => [{ keys: ".", label: words.play, run: () => (playing.peek() ? pause() : play()) }], []);

  if (data.error) return <Failure error={data.error} feature={words.feature} small={false} />;
  if (!data.synced) return <Loading />;
  const choose = (from: number, to: number) => setParam("range", from < to ? `${from}-${to}` : "");
  const closeRange = () => {
    setRanging(false);
    setParam("range", "");
  };
  const zoomAll = () => {
    wantOlder.value = true;
    fitWindow();
  };
  return (
    <div class="timeline">
      <div class="timeline-bar">
        <Controls />
        <div class="timeline-switch" role="group" aria-label={words.axis}>
          <Button small aria-pressed={mode.value === "revision"} onClick={() => setMode("revision")}>
            {words.byRevision}
          </Button>
          <Button small aria-pressed={mode.value === "time"} onClick={() => setMode("time")}>
            {words.byTime}
          </Button>
        </div>
        <Button small onClick={zoomAll}>
          <Icon name="fit" />
          {words.fit}
        </Button>
        <Button small aria-pressed={ranging} onClick={() => (ranging ? closeRange() : setRanging(true))}>
          {words.compare}
        </Button>
      </div>
      {data.spans.length === 0 ? (
        <Notice title={words.title} small>
          <p>{words.empty}</p>
        </Notice>
      ) : (
        <Chart
          data={data}
          laneHeight={LANE_HEIGHT}
          mostLanes={phone.value ? PHONE_LANES : MOST_LANES}
          leastLanes={phone.value ? 2 : 6}
          ranging={ranging}
          range={range}
          choose={choose}
        />
      )}
      <div class="timeline-notes faint">
        <Marks />
        <p>
          {data.reading ? words.reading : data.oldest ? words.oldest(data.oldest.at ? timeOfDay(data.oldest.at) : "–", revisionText(data.oldest.revision)) : ""}{" "}
          {words.folded}
        </p>
      </div>
      {ranging ? <Differences range={range} oldest={data.oldest?.revision ?? 1} newest={data.newest} choose={choose} close={closeRange} /> : null}
      <WriteList spans={data.spans} current={at.value} />
    </div>
  );
}

/** The time, with the day if it is another one. */
function timeOfDay(milliseconds: number): string {
  const date = new Date(milliseconds);
  return date.toDateString() === new Date().toDateString() ? timeText(milliseconds) : date.toLocaleString();
}
