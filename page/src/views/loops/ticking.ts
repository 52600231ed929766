/** Time for countdowns, which need more than one tick a second. */
import { useEffect, useState } from "preact/hooks";

/** The present time of the cluster in milliseconds, several times a second while `active`. */
export function useClusterNow(ahead: number, active: boolean, period: number): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    setNow(Date.now());
    if (!active) return;
    const timer = window.setInterval(() => {
      if (!document.hidden) setNow(Date.now());
    }, period);
    return () => window.clearInterval(timer);
  }, [active, period]);
  return (active ? now : Date.now()) + ahead;
}

/** A short time with a decimal, or in minutes and hours. */
export function countdown(milliseconds: number): string {
  const seconds = Math.max(0, milliseconds / 1_000);
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes} m ${Math.round(seconds % 60)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} m`;
}
