/** What the build adds to Vite's own output: licences of the bundled packages, and compressed copies of the files. */
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve, sep } from "node:path";
import { gzipSync } from "node:zlib";
import type { Plugin } from "vite";

const COMPRESSED = /\.(?:js|css|html|svg|json|txt)$/;
const LICENSE_FILE = /^(?:licen[cs]e|copying|notice)(?:\.(?:md|txt))?$/i;

/** Refuse to empty a directory that is not a build of this page. */
export function guardOutput(): Plugin {
  return {
    name: "setpoint-guard-output",
    apply: "build",
    configResolved(config) {
      const directory = resolve(config.root, config.build.outDir);
      if (!existsSync(directory)) return;
      const names = readdirSync(directory);
      if (names.length > 0 && !names.includes("manifest.json")) {
        throw new Error(`${directory} holds other files; build into an empty directory or an earlier build`);
      }
    },
  };
}

/** Write `licenses.txt` with the licence of each package whose code is in the bundle. */
export function listLicenses(): Plugin {
  return {
    name: "setpoint-licenses",
    apply: "build",
    generateBundle(_options, bundle) {
      const folders = new Set<string>();
      for (const part of Object.values(bundle)) {
        const ids = part.type === "chunk" ? part.moduleIds : [];
        for (const id of ids) {
          const folder = packageFolder(id);
          if (folder) folders.add(folder);
        }
      }
      // Style sheets of packages are not modules of a chunk any more, but come from packages whose code is.
      const texts = [...folders].sort().map(licenseText);
      this.emitFile({
        type: "asset",
        fileName: "licenses.txt",
        source: `The page contains code of these packages.\n\n${texts.join(`\n${"-".repeat(72)}\n\n`)}`,
      });
    },
  };
}

function packageFolder(id: string): string | null {
  const parts = id.replace(/^\0/, "").split("?")[0]!.split(/[\\/]/);
  const at = parts.lastIndexOf("node_modules");
  if (at < 0) return null;
  const length = parts[at + 1]?.startsWith("@") ? 3 : 2;
  return parts.slice(0, at + length).join(sep);
}

function licenseText(folder: string): string {
  const about = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as Record<string, string>;
  const file = readdirSync(folder).find((name) => LICENSE_FILE.test(name));
  const text = file ? readFileSync(join(folder, file), "utf8").trim() : "";
  return `${about.name} ${about.version}\nLicense: ${about.license}\n\n${text}\n`;
}

/** Write a compressed copy beside each file, for servers that send it as it is. */
export function compress(): Plugin {
  let directory = "";
  return {
    name: "setpoint-compress",
    apply: "build",
    enforce: "post",
    configResolved(config) {
      directory = resolve(config.root, config.build.outDir);
    },
    closeBundle() {
      if (!existsSync(directory)) return;
      for (const name of readdirSync(directory, { recursive: true, encoding: "utf8" })) {
        if (!COMPRESSED.test(name)) continue;
        const path = join(directory, name);
        writeFileSync(`${path}.gz`, gzipSync(readFileSync(path), { level: 9 }));
      }
    },
  };
}
