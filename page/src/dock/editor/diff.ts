/** The difference of two texts by lines. */

export interface DiffLine {
  mark: " " | "+" | "-";
  text: string;
}

/** Above so many differing lines, a part is shown as removed and added as a whole. */
const MOST = 2_000;

export function diffLines(before: string, after: string): DiffLine[] {
  const a = lines(before);
  const b = lines(after);
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const same = (text: string): DiffLine => ({ mark: " ", text });
  return [
    ...a.slice(0, start).map(same),
    ...middle(a.slice(start, a.length - end), b.slice(start, b.length - end)),
    ...a.slice(a.length - end).map(same),
  ];
}

function lines(text: string): string[] {
  const found = text.split("\n");
  if (found.at(-1) === "") found.pop();
  return found;
}

/** The longest common subsequence by Myers' algorithm, with the steps kept for going back. */
function middle(a: string[], b: string[]): DiffLine[] {
  const whole = (): DiffLine[] => [...a.map((text) => ({ mark: "-" as const, text })), ...b.map((text) => ({ mark: "+" as const, text }))];
  if (a.length === 0 || b.length === 0 || a.length + b.length > MOST) return whole();
  const size = a.length + b.length;
  const trace: Int32Array[] = [];
  const furthest = new Int32Array(2 * size + 2);
  for (let depth = 0; depth <= size; depth += 1) {
    trace.push(furthest.slice());
    for (let k = -depth; k <= depth; k += 2) {
      const down = k === -depth || (k !== depth && furthest[size + k - 1]! < furthest[size + k + 1]!);
      let x = down ? furthest[size + k + 1]! : furthest[size + k - 1]! + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x += 1;
      furthest[size + k] = x;
      if (x >= a.length && x - k >= b.length) return backtrack(a, b, trace, depth, size);
    }
  }
  return whole();
}

function backtrack(a: string[], b: string[], trace: Int32Array[], depth: number, size: number): DiffLine[] {
  const found: DiffLine[] = [];
  let x = a.length;
  let y = b.length;
  for (let at = depth; at >= 0; at -= 1) {
    const furthest = trace[at]!;
    const k = x - y;
    const down = k === -at || (k !== at && furthest[size + k - 1]! < furthest[size + k + 1]!);
    const previous = down ? k + 1 : k - 1;
    const startX = at === 0 ? 0 : furthest[size + previous]!;
    const startY = startX - previous;
    while (x > (at === 0 ? 0 : startX + (down ? 0 : 1)) && y > (at === 0 ? 0 : startY + (down ? 1 : 0))) {
      x -= 1;
      y -= 1;
      found.push({ mark: " ", text: a[x]! });
    }
    if (at === 0) break;
    if (down) {
      y -= 1;
      found.push({ mark: "+", text: b[y]! });
    } else {
      x -= 1;
      found.push({ mark: "-", text: a[x]! });
    }
  }
  return found.reverse();
}
