/** The last minute of a queue as bars, with the same in words. */
import { useEffect, useRef } from "preact/hooks";
import { colour, theme } from "../../state/settings";
import { loops as words } from "../../words/loops";
import { SAMPLES, samplesOf, summary } from "./history";

const WIDTH = 90;
const HEIGHT = 20;

/** `tick` grows with each sample. */
export function Sparkline({ name, tick, paused }: { name: string; tick: number; paused: boolean }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const shown = theme.value;
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context) return;
    const scale = Math.min(3, window.devicePixelRatio || 1);
    const element = context.canvas;
    if (element.width !== WIDTH * scale) {
      element.width = WIDTH * scale;
      element.height = HEIGHT * scale;
    }
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, WIDTH, HEIGHT);
    context.fillStyle = colour("--line");
    context.fillRect(0, HEIGHT - 1, WIDTH, 1);
    const samples = samplesOf(name);
    if (!samples) return;
    const { most } = summary(samples);
    context.fillStyle = colour(paused ? "--waiting" : "--accent");
    const width = WIDTH / SAMPLES;
    for (let i = 0; i < SAMPLES; i++) {
      const value = samples.values[(samples.next + i) % SAMPLES]!;
      if (value <= 0) continue;
      const height = Math.max(2, (value / Math.max(most, 4)) * (HEIGHT - 2));
      context.fillRect(i * width, HEIGHT - 1 - height, width, height);
    }
  }, [tick, name, shown, paused]);
  const { most, added } = summary(samplesOf(name));
  return (
    <>
      <canvas class="loops-spark" ref={canvas} width={WIDTH} height={HEIGHT} aria-hidden="true" title={words.peak(most, added)} />
      <span class="visually-hidden">{words.peak(most, added)}</span>
    </>
  );
}
