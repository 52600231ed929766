/** The phase of an object as shape, word and colour; never as colour alone. */
export type PhaseName = "settled" | "acting" | "waiting" | "stuck" | "leaving";

export const PHASES: Record<PhaseName, { shape: string; word: string }> = {
  settled: { shape: "●", word: "settled" },
  acting: { shape: "◐", word: "acting" },
  waiting: { shape: "◔", word: "waiting" },
  stuck: { shape: "■", word: "stuck" },
  leaving: { shape: "○", word: "leaving" },
};

export function Phase({ phase, word }: { phase: PhaseName; word?: string | undefined }) {
  const known = PHASES[phase];
  return (
    <span class={`phase ${phase}`}>
      <span class="shape" aria-hidden="true">
        {known.shape}
      </span>
      <span>{word ?? known.word}</span>
    </span>
  );
}
