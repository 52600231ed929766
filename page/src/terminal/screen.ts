/** xterm with our settings: colours of the theme, a nonce for its styles, no links, no clipboard, no title. */
import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import "./screen.css";
import { effect } from "@preact/signals";
import { colour, styleNonce, theme } from "../state/settings";

const SCROLLBACK = 5_000;

let patched = false;

/** The Content Security Policy allows `<style>` elements with the nonce of the document alone, and xterm makes some. */
function allowStyles(): void {
  if (patched) return;
  patched = true;
  const create = document.createElement.bind(document);
  document.createElement = ((name: string, options?: ElementCreationOptions) => {
    const element = create(name, options);
    if (name.toLowerCase() === "style") (element as HTMLStyleElement).nonce = styleNonce();
    return element;
  }) as typeof document.createElement;
}

function colours() {
  const text = colour("--text");
  return {
    background: colour("--sunken"),
    foreground: text,
    cursor: colour("--accent"),
    cursorAccent: colour("--sunken"),
    selectionBackground: colour("--selected"),
    selectionForeground: text,
    black: colour("--text-faint"),
    red: colour("--stuck"),
    green: colour("--settled"),
    yellow: colour("--waiting"),
    blue: colour("--accent"),
    magenta: colour("--series-4"),
    cyan: colour("--series-2"),
    white: colour("--text-soft"),
    brightBlack: colour("--text-faint"),
    brightRed: colour("--stuck"),
    brightGreen: colour("--settled"),
    brightYellow: colour("--waiting"),
    brightBlue: colour("--accent"),
    brightMagenta: colour("--series-4"),
    brightCyan: colour("--series-2"),
    brightWhite: text,
  };
}

export interface Screen {
  terminal: Terminal;
  /** Fit the number of columns and rows to the element. */
  fit(): void;
  dispose(): void;
}

export interface ScreenOptions {
  label: string;
  screenReader: boolean;
  /** Line feeds begin a new line, as in the output of commands. */
  convertEol: boolean;
  resized(columns: number, rows: number): void;
  /** Ctrl-Shift-Esc was pressed. */
  leave(): void;
}

export function openScreen(element: HTMLElement, options: ScreenOptions): Screen {
  allowStyles();
  const terminal = new Terminal({
    allowProposedApi: false,
    convertEol: options.convertEol,
    cursorBlink: false,
    fontFamily: colour("--mono"),
    fontSize: 13,
    lineHeight: 1.25,
    scrollback: SCROLLBACK,
    screenReaderMode: options.screenReader,
    minimumContrastRatio: 4.5,
    theme: colours(),
    // Links would be made of text that anybody may have written.
    linkHandler: { activate: () => undefined, allowNonHttpProtocols: false },
  });
  const fitAddon = new FitAddon();
  terminal.loadAddon(fitAddon);
  // The server removes such sequences; these are refused here, too: title, icon, hyperlinks, clipboard.
  for (const code of [0, 1, 2, 8, 52]) terminal.parser.registerOscHandler(code, () => true);
  terminal.attachCustomKeyEventHandler((event) => {
    if (event.type === "keydown" && event.key === "Escape" && event.ctrlKey && event.shiftKey) {
      event.preventDefault();
      options.leave();
      return false;
    }
    return true;
  });
  terminal.open(element);
  const area = terminal.textarea;
  if (area) {
    area.setAttribute("aria-label", options.label);
    area.removeAttribute("aria-multiline");
  }
  const fit = () => {
    if (element.clientWidth > 0 && element.clientHeight > 0) fitAddon.fit();
  };
  fit();
  const resizing = terminal.onResize(({ cols, rows }) => options.resized(cols, rows));
  const observer = new ResizeObserver(() => requestAnimationFrame(fit));
  observer.observe(element);
  const stopTheme = effect(() => {
    void theme.value;
    // The custom properties change with the attribute of the document, which another effect sets.
    queueMicrotask(() => (terminal.options.theme = colours()));
  });
  return {
    terminal,
    fit,
    dispose: () => {
      stopTheme();
      observer.disconnect();
      resizing.dispose();
      terminal.dispose();
    },
  };
}
