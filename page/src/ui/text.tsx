/** Text from the cluster, with characters that hide or reorder made visible. */

// C0 and C1 controls except tab and line feed, bidi controls, zero-width characters, the byte order mark.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

const CONTROL_PICTURES = 0x2400;

/** Replace each control and bidi character by its code in angle brackets: `<U+202E>`. */
export function visible(text: string): string {
  return text.replace(HIDDEN, (one) => `<U+${one.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}>`);
}

/** Replace each control and bidi character by one that takes a column of a terminal and is not obeyed there: `␛`, `�`. */
export function printable(text: string): string {
  return text.replace(HIDDEN, (one) => (one < " " ? String.fromCharCode(CONTROL_PICTURES + one.charCodeAt(0)) : "\ufffd"));
}
