/** The number of columns that a text takes in a terminal. */

const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\u33ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/u;
const ZERO = /[\u0300-\u036f\u200b-\u200f\u20d0-\u20ff\ufe00-\ufe0f]/u;

export function characterWidth(character: string): number {
  const code = character.codePointAt(0) ?? 0;
  if (code < 0x300) return code === 0 ? 0 : 1;
  if (ZERO.test(character)) return 0;
  return WIDE.test(character) ? 2 : 1;
}

export function textWidth(text: string): number {
  let width = 0;
  for (const character of text) width += characterWidth(character);
  return width;
}

/** Where a text ends that begins in the column `start`. */
export function layout(text: string, width: number, start: number): { row: number; column: number } {
  let row = 0;
  let column = start;
  for (const character of text) {
    if (character === "\n") {
      row += 1;
      column = 0;
      continue;
    }
    const size = characterWidth(character);
    if (column + size > width) {
      row += 1;
      column = 0;
    }
    column += size;
  }
  return column === width ? { row: row + 1, column: 0 } : { row, column };
}
