// The page's link and its feeds, without a browser: `feed_tab.py` tells it what happens.
// Each line of the input is an event, and is answered by what the page sends and, if asked, by the state of its feeds.
import { createInterface } from "node:readline";
import { startLink } from "../../page/src/link/link";
import { acquire, hold, release } from "../../page/src/link/shared-feed";

// Timers and frames run when the test says so.
let now = 0;
let lastTimer = 0;
const timers = new Map();
const later = (run, delay = 0) => (timers.set(++lastTimer, { run, at: now + delay }), lastTimer);
globalThis.window = {
  setTimeout: later,
  clearTimeout: (id) => timers.delete(id),
};
globalThis.requestAnimationFrame = () => 0; // a hidden tab
globalThis.cancelAnimationFrame = () => undefined;
globalThis.WebSocket = { OPEN: 1 };
Math.random = () => 0.5;

let sent = [];
let socket = null;
/** What components have: the feed that they render, and whether they hold it. */
const components = new Map();

function mounted(id) {
  const component = components.get(id);
  while (component && !component.held) {
    component.held = hold(component.feed);
    if (!component.held) component.feed = acquire(...component.what);
  }
}

const events = {
  start: () =>
    startLink(
      () => {
        const mine = { readyState: 1, send: (text) => mine === socket && sent.push(JSON.parse(text)) };
        socket = mine;
        sent = [{ op: "dial" }];
        return { socket: mine, missed: [] };
      },
      async () => false,
    ),
  receive: (text) => socket.onmessage({ data: text }),
  lose: () => {
    const lost = socket;
    socket = null;
    lost?.onclose({ code: 1006 });
  },
  render: ([id, name]) => {
    const what = [name, "", {}];
    components.set(id, { what, feed: acquire(...what), held: false });
  },
  mount: mounted,
  unmount: (id) => {
    const component = components.get(id);
    components.delete(id);
    if (component?.held) release(component.feed);
  },
  pass: (time) => {
    const end = now + time;
    for (;;) {
      const [id, next] = [...timers].sort(([, a], [, b]) => a.at - b.at)[0] ?? [];
      if (!next || next.at > end) break;
      timers.delete(id);
      now = next.at;
      next.run();
    }
    now = end;
  },
  state: () => undefined,
};

for await (const line of createInterface({ input: process.stdin })) {
  const [event, data] = JSON.parse(line);
  events[event](data);
  await new Promise(setImmediate);
  const states =
    event === "state"
      ? [...components.values()].map(({ what, feed, held }) => {
          const { items, synced, error } = feed;
          return { feed: what[0], held, items: Object.fromEntries(items), synced, error };
        })
      : [];
  process.stdout.write(`${JSON.stringify([sent.splice(0), states])}\n`);
}
