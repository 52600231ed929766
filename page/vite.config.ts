import { defineConfig } from "vite";
import { FIRST, firstPaint } from "./plugins/first-paint.ts";
import { compress, guardOutput, listLicenses } from "./plugins/finish.ts";

export default defineConfig({
  base: "./",
  publicDir: false,
  // The server replaces this text in the document by the nonce of its Content Security Policy.
  html: { cspNonce: "__CSP_NONCE__" },
  plugins: [guardOutput(), firstPaint(), listLicenses(), compress()],
  build: {
    outDir: "../src/setpoint/web/static",
    emptyOutDir: true,
    manifest: "manifest.json",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    target: ["chrome120", "firefox121", "safari17.2"],
    reportCompressedSize: false,
    chunkSizeWarningLimit: 400,
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [
            { name: "boot", test: /src\/(boot|words\/boot|link\/entrance)\.ts$/, priority: 2 },
            // One file for the first view, with everything that it imports.
            { name: FIRST, test: /src\/(main|views\/objects\/objects)\.tsx$/, priority: 1 },
          ],
        },
      },
    },
  },
});
