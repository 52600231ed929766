/** The banners below the header: another user, a past moment, a lost connection. */
import { effect } from "@preact/signals";
import { announce, announceNow } from "../a11y/live";
import { linkState, retryNow } from "../link/link";
import { seeAs, seenAs } from "../state/impersonation";
import type { Other } from "../state/impersonation";
import { momentError } from "../state/moment";
import { at, momentTime, setMoment } from "../state/place";
import { Button } from "../ui/button";
import { Icon } from "../ui/icon";
import { visible } from "../ui/text";
import { now } from "../ui/time";
import { seeAs as seeAsWords } from "../words/see-as";
import { shell } from "../words/shell";
import "./see-as.css";

const GRACE = 1_000;

/** Seconds since the connection was lost; null while it is there, or was lost just now. */
function lostSeconds(): number | null {
  const state = linkState.value;
  if (state.is !== "lost") return null;
  // The clock of the page ticks each second: reading it renders the banner again.
  void now.value;
  const milliseconds = performance.now() - state.since;
  return milliseconds < GRACE ? null : Math.floor(milliseconds / 1_000);
}

export function startConnectionWords(): void {
  let told = false;
  effect(() => {
    const seconds = lostSeconds();
    if (seconds !== null && !told) {
      told = true;
      announceNow(shell.lost(seconds));
    } else if (told && linkState.value.is === "open") {
      told = false;
      announce(shell.backAgain);
    }
  });
}

export function Banners() {
  const lost = lostSeconds();
  return (
    <>
      {lost !== null ? (
        <div class="banner lost">
          <Icon name="warning" />
          <p class="number">{shell.lost(lost)}</p>
          <Button small onClick={retryNow}>
            {shell.lostRetry}
          </Button>
        </div>
      ) : null}
      {seenAs !== null ? <OtherBanner other={seenAs} /> : null}
      {at.value !== null ? <PastBanner revision={at.value} /> : null}
    </>
  );
}

function OtherBanner({ other }: { other: Other }) {
  const who = visible(seeAsWords.banner(other.user));
  return (
    <div class="banner other" role="region" aria-label={who}>
      <Icon name="person" />
      <p>
        <strong>
          {who}
          {other.groups.length > 0 ? seeAsWords.bannerGroups(other.groups) : ""}.
        </strong>{" "}
        <span class="see-as-more">{seeAsWords.bannerMore}</span>
      </p>
      <Button small onClick={() => seeAs(null)}>
        {seeAsWords.end}
      </Button>
    </div>
  );
}

function PastBanner({ revision }: { revision: number }) {
  const number = revision.toLocaleString("en").replaceAll(",", " ");
  const time = momentTime.value;
  return (
    <div class="banner past" role="region" aria-label={shell.past(number)}>
      <Icon name="clock" />
      {momentError.value !== null ? (
        <p role="alert">
          <strong>{shell.pastGone(visible(momentError.value))}</strong>
        </p>
      ) : (
        <p>
          <strong>{time ? shell.pastTime(time.toLocaleTimeString(), number) : shell.past(number)}</strong> {shell.pastGoesOn}
        </p>
      )}
      <Button small onClick={() => setMoment(null)}>
        {shell.backToNow} <kbd aria-hidden="true">,</kbd>
      </Button>
    </div>
  );
}
