/** A dial: how much of the desired number is there. The number stands beside it as text. */
const START = (3 * Math.PI) / 4;
const SWEEP = (3 * Math.PI) / 2;
const RADIUS = 26;

export function Gauge({ observed, desired, phase }: { observed: number; desired: number; phase: string }) {
  const share = desired > 0 ? Math.min(1, observed / desired) : observed > 0 ? 1 : 0;
  const full = desired === 0 && observed === 0 ? 1 : share;
  return (
    <svg class={`gauge ${phase}`} viewBox="0 0 64 64" aria-hidden="true" focusable="false">
      <path class="gauge-track" d={arc(1)} />
      {full > 0 ? <path class="gauge-value" d={arc(full)} /> : null}
      <text class={observed > 99 || desired > 99 ? "gauge-text long" : "gauge-text"} x="32" y="37" text-anchor="middle">
        {observed}/{desired}
      </text>
    </svg>
  );
}

function arc(share: number): string {
  const end = START + SWEEP * share;
  const [x, y] = [32 + RADIUS * Math.cos(end), 32 + RADIUS * Math.sin(end)];
  const [x0, y0] = [32 + RADIUS * Math.cos(START), 32 + RADIUS * Math.sin(START)];
  return `M${x0.toFixed(2)} ${y0.toFixed(2)}A${RADIUS} ${RADIUS} 0 ${share * SWEEP > Math.PI ? 1 : 0} 1 ${x.toFixed(2)} ${y.toFixed(2)}`;
}
