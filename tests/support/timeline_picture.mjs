// The picture of a timeline without a browser: `test_page_timeline.py` gives it writes and a width. The answer to `draw`
// has the colour of each bar and mark, the texts with their left and right edges, and the scale of the axis.
import { createInterface } from "node:readline";
import "./no_browser.mjs";
import { makeAxis, scaleFor } from "../../page/src/timeline/axis";
import { draw } from "../../page/src/timeline/draw";

const PARTS = ["created", "spec", "metadata", "status", "deleted"];
const INK = { text: "text", soft: "soft", line: "line", lane: "lane", surface: "surface", accent: "accent", range: "range" };
const LETTER = 6;

function picture({ spans, width, count }) {
  const scale = scaleFor(spans, "revision", width, count ?? Infinity);
  const axis = makeAxis(spans, "revision", scale);
  const [bars, marks, texts] = [[], [], []];
  const context = {
    clearRect() {},
    beginPath() {},
    moveTo() {},
    lineTo() {},
    arc() {},
    fill: () => marks.push(context.fillStyle),
    stroke: () => marks.push(context.strokeStyle),
    fillRect: (x, y, wide, high) => high > 4 && high < 20 && bars.push([context.fillStyle, x, wide]),
    measureText: (text) => ({ width: text.length * LETTER }),
    fillText(text, x) {
      const wide = text.length * LETTER;
      const left = context.textAlign === "center" ? x - wide / 2 : x;
      texts.push([text, left, left + wide]);
    },
  };
  const from = Math.max(0, axis.length + 14 - width);
  const all = { width, height: 100, axis, spans, from, lanes: ["you"], laneHeight: 22, current: null, hover: null, range: null, selected: null };
  draw(context, all, { ...INK, parts: Object.fromEntries(PARTS.map((part) => [part, part])), font: "11px sans-serif" });
  return { scale, bars, marks, texts };
}

for await (const line of createInterface({ input: process.stdin })) {
  const [, data] = JSON.parse(line);
  process.stdout.write(`${JSON.stringify(picture(data))}\n`);
}
