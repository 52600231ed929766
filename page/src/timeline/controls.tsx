/** The buttons of the timeline: step, play, speed, back to now. */
import { at } from "../state/place";
import { Button } from "../ui/button";
import { Icon } from "../ui/icon";
import { timeline as words } from "../words/timeline";
import { newestRevision } from "./data";
import { pause, play, playing, settle, speed, SPEEDS, step } from "./scrub";
import { revisionText } from "./text";

export function Controls() {
  const isPlaying = playing.value;
  const past = at.value !== null;
  return (
    <div class="timeline-controls" role="group" aria-label={words.title}>
      <Button small look="plain" aria-label={words.back} title={words.back} onClick={() => (pause(), step(-1))}>
        <Icon name="left" />
      </Button>
      <Button
        small
        look="plain"
        aria-label={isPlaying ? words.pause : words.play}
        title={isPlaying ? words.pause : words.play}
        onClick={isPlaying ? pause : play}
      >
        <Icon name={isPlaying ? "pause" : "play"} />
      </Button>
      <Button small look="plain" aria-label={words.forward} title={words.forward} disabled={past ? null : words.noMore} onClick={() => (pause(), step(1))}>
        <Icon name="right" />
      </Button>
      <label class="timeline-speed">
        <span class="visually-hidden">{words.speed}</span>
        <select class="field" value={speed.value} onChange={(event) => (speed.value = Number(event.currentTarget.value))}>
          {SPEEDS.map((one) => (
            <option key={one} value={one}>
              {words.times(one)}
            </option>
          ))}
        </select>
      </label>
      <Button small aria-pressed={!past} onClick={() => (pause(), settle(null))} title={words.toNow}>
        {words.now}
      </Button>
      <span class="timeline-revision number faint">{words.revision(revisionText(at.value ?? newestRevision.value))}</span>
    </div>
  );
}
