/** Puts into the document what the browser needs for the first paint: the frame of the page, and links to the first chunk. */
import type { HtmlTagDescriptor, Plugin } from "vite";
import { PATHS } from "../src/ui/icon-paths.ts";
import { LABELS } from "../src/views/labels.ts";

/** The chunk with everything that the first view needs. */
export const FIRST = "first";
const MARK = `<svg class="mark" viewBox="0 0 32 32"><path class="mark-rest" d="M6.600 22a11 11 0 1 1 18.800 0"/><path class="mark-arc" d="M6.600 22A11 11 0 0 1 16 5.200"/><circle class="mark-point" cx="16" cy="16" r="3.200"/></svg>`;

/** Return header and navigation as the page renders them, which replaces them when it has loaded. */
function frame(): string {
  const views = Object.entries(LABELS).filter(([id]) => id !== "class");
  const links = views.map(
    ([id, label]) =>
      `<li><span class="view-link"><svg class="icon" viewBox="0 0 24 24"><path d="${PATHS[id]}"/></svg><span class="label">${label}</span></span></li>`,
  );
  return (
    `<div class="first-frame" aria-hidden="true"><div class="header"><span class="brand">${MARK}<span class="brand-name">Setpoint</span></span></div>` +
    `<div class="content"><div class="navigation"><ul class="view-links">${links.join("")}</ul></div><div class="main"></div></div></div>`
  );
}

export function firstPaint(): Plugin {
  return {
    name: "setpoint-first-paint",
    transformIndexHtml: {
      order: "post",
      handler(html, { bundle }) {
        const tags: HtmlTagDescriptor[] = [];
        const first = Object.values(bundle ?? {}).find((part) => part.type === "chunk" && part.name === FIRST);
        if (first?.type === "chunk") {
          tags.push({ tag: "link", attrs: { rel: "modulepreload", crossorigin: true, href: `./${first.fileName}` } });
          for (const file of first.viteMetadata?.importedCss ?? []) {
            tags.push({ tag: "link", attrs: { rel: "stylesheet", crossorigin: true, href: `./${file}` } });
          }
        }
        // The first script applies the theme: nothing is painted before it has run.
        const blocking = html.replace('<script type="module"', '<script type="module" blocking="render"');
        return { html: blocking.replace("<!-- first frame -->", frame()), tags: tags.map((tag) => ({ ...tag, injectTo: "head" })) };
      },
    },
  };
}
