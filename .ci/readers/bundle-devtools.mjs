// Bundles DevTools' models of traces and of CPU profiles into one module: bundle-devtools.mjs OUT
//
// The npm package contains TypeScript sources and lacks the modules that DevTools' build generates. Runs in the
// directory into which chrome-devtools-frontend and esbuild were installed.

import { createRequire } from "node:module";
import { join } from "node:path";
import { renameSync } from "node:fs";

const here = process.cwd();
const { build } = createRequire(join(here, "_.cjs"))("esbuild");
const out = process.argv[2];

const contents = `
  export * as Trace from "./models/trace/trace.ts";
  export * as CPUProfile from "./models/cpu_profile/cpu_profile.ts";
`;
const locales = `
  export const LOCALES = ["en-US"], BUNDLED_LOCALES = LOCALES, DEFAULT_LOCALE = "en-US";
  export const REMOTE_FETCH_PATTERN = "", LOCAL_FETCH_PATTERN = "";
`;
const generated = {
  name: "generated",
  setup(builder) {
    builder.onResolve({ filter: /\/i18n\/locales\.js$|^\.\/locales\.js$/ }, ({ path }) => ({ path, namespace: "generated" }));
    builder.onLoad({ filter: /.*/, namespace: "generated" }, () => ({ contents: locales }));
  },
};
await build({
  stdin: { contents, resolveDir: join(here, "node_modules/chrome-devtools-frontend/front_end"), loader: "ts" },
  bundle: true,
  format: "esm",
  platform: "node",
  outfile: `${out}.new`,
  logLevel: "error",
  plugins: [generated],
});
renameSync(`${out}.new`, out);
