/** What a class adds to the page: messages of the teacher for learners, and a banner while the teacher looks at a seat. */
import { useEffect, useRef } from "preact/hooks";
import { useFeed } from "../link/hooks";
import { navigate } from "../router";
import { isLearner, isTeacher } from "../state/classroom";
import { logical, setLogical } from "../state/place";
import { Button } from "../ui/button";
import { Icon } from "../ui/icon";
import { toast } from "../ui/toast";
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

function Notices() {
  const feed = useFeed<never, Notice>("class-notices", {}, "");
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

/** The banner of the teacher who looks at a seat. */
export function SeatBanner() {
  const seat = /^\/seats\/([^/]+)/.exec(logical.value)?.[1];
  if (!seat || !isTeacher.value) return null;
  return (
    <div class="banner past">
      <Icon name="info" />
      <p>{words.readOnly}</p>
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
