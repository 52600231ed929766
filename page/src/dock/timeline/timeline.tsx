/** The strip of the timeline: the latest writes by author, and the moment that the page shows. */
import { linkTo, route } from "../../router";
import { Chart } from "../../timeline/chart";
import { Controls } from "../../timeline/controls";
import { useTimeline } from "../../timeline/data";
import { Failure } from "../../ui/notice";
import { timeline as words } from "../../words/timeline";
import "../../timeline/chart.css";
import "./timeline.css";

const LANE_HEIGHT = 15;
const MOST_LANES = 6;
const NOTHING = () => undefined;

export default function TimelineStrip() {
  // The view has the same, larger.
  if (route.value.view === "timeline") return null;
  return <Strip />;
}

function Strip() {
  const data = useTimeline();
  if (data.error) return <Failure error={data.error} feature={words.feature} />;
  return (
    <div class="timeline-strip">
      <div class="timeline-strip-chart">
        {data.synced && data.spans.length === 0 ? (
          <p class="timeline-empty faint">{words.empty}</p>
        ) : (
          <Chart data={data} laneHeight={LANE_HEIGHT} mostLanes={MOST_LANES} leastLanes={MOST_LANES} ranging={false} range={null} choose={NOTHING} />
        )}
      </div>
      <div class="timeline-strip-side">
        <Controls />
        <a href={linkTo({ view: "timeline" })}>{words.open}</a>
      </div>
    </div>
  );
}
