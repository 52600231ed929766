/** What a class adds to the page: messages of the teacher for learners, and banners while the teacher looks at a seat. */
import { useEffect, useRef } from "preact/hooks";
import { announce } from "../a11y/live";
import { useFeed } from "../link/hooks";
import { navigate } from "../router";
import { isLearner, isTeacher } from "../state/classroom";
import { logical, setLogical } from "../state/place";
import { Button } from "../ui/button";
import { Icon } from "../ui/icon";
import { visible } from "../ui/text";
import { toast } from "../ui/toast";
import type { Seat } from "../views/class/seats";
import { classroom as words } from "../words/class";

interface Notice {
  text?: string;
  lesson?: string;
  title?: string;
}

/** Shows each message of the teacher once; a lesson is opened. */
export function ClassNotices() {
  return isLearner.value ? <Notices /> : null;
}

/** The feed of the worker for one learner: messages as its log, and the item `look` while the teacher looks. */
const useNotices = () => useFeed<{ by: string }, Notice>("class-notices", {}, "");

function Notices() {
  const feed = useNotices();
  const shown = useRef<number | null>(null);
  useEffect(() => {
    if (!feed.synced) return;
    const notices = feed.log.slice(shown.current ?? feed.log.length);
    shown.current = feed.log.length;
    for (const notice of notices) {
      if (notice.text) toast(words.teacherSays(notice.text));
      if (notice.lesson) {
        toast(words.teacherSendsTo(notice.title ?? notice.lesson));
        navigate({ view: "learn", params: { lesson: notice.lesson } });
      }
    }
  }, [feed.revision]);
  return null;
}

/** The banner of a learner at whom the teacher looks, or of the teacher who looks. */
export function SeatBanner() {
  const seat = /^\/seats\/([^/]+)/.exec(logical.value)?.[1];
  if (isLearner.value) return <LookedAt />;
  return seat && isTeacher.value ? <Looking seat={seat} /> : null;
}

/** Says that the teacher looks. Its element is always there: screen readers announce what changes within it. */
function LookedAt() {
  const isLookedAt = useNotices().items.has("look");
  const before = useRef(false);
  useEffect(() => {
    if (before.current && !isLookedAt) announce(words.lookedAway);
    before.current = isLookedAt;
  }, [isLookedAt]);
  return (
    <div role="status">
      {isLookedAt ? (
        <div class="banner looked-at">
          <Icon name="eye" />
          <p>{words.lookedAt}</p>
        </div>
      ) : null}
    </div>
  );
}

function Looking({ seat }: { seat: string }) {
  // The server tells the learner for as long as a tab of the teacher has this feed.
  useFeed("class-look", { seat }, "");
  const seats = useFeed<Partial<Seat>>("class", {}, "");
  const learner = [...seats.items.values()].find((one) => one.seat === seat)?.nickname;
  return (
    <div class="banner past">
      <Icon name="eye" />
      <p>
        {words.readOnly(learner ? visible(learner) : words.aLearner)} {words.isTold}
      </p>
      <Button
        small
        onClick={() => {
          setLogical("");
          navigate({ view: "class" });
        }}
      >
        {words.back}
      </Button>
    </div>
  );
}
