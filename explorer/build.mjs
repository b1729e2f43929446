// Bundles src/ into the package's assets, with the licences of what is in them. `--check` compares, and writes nothing.
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const assets = join(here, "../fx_importer/diagnostics/explorer/assets");

/** The licence text of each package that has a file in the bundle. */
function licences(inputs) {
  const names = new Set(inputs.map((each) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(each)?.[1]).filter(Boolean));
  const texts = [...names].sort().map((name) => {
    const folder = join(here, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
    if (!license || !file) throw new Error(`${name} has no licence`);
    return `${name} ${version} (${license})\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
  });
  return texts.join(`\n${"-".repeat(80)}\n\n`);
}

/** A digest of what the assets are built from; tests/diagnostics/test_explorer_assets.py computes the same. */
function digest() {
  const names = ["build.mjs", "package-lock.json", ...readdirSync(join(here, "src")).map((each) => `src/${each}`)].sort();
  const hash = createHash("sha256");
  for (const name of names) hash.update(`${name}\n`).update(readFileSync(join(here, name)));
  return `${hash.digest("hex")}\n`;
}

const { outputFiles, metafile } = await build({
  absWorkingDir: here,
  entryPoints: { explorer: "src/main.ts", playground: "src/playground.ts" },
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  outdir: assets,
  write: false,
  metafile: true,
});
const built = new Map(outputFiles.map((each) => [each.path, each.text]));
for (const name of ["explorer.html", "playground.html"])
  built.set(join(assets, name), readFileSync(join(here, "src", name), "utf8"));
built.set(join(assets, "LICENSES.txt"), licences(Object.keys(metafile.inputs)));
built.set(join(assets, "sources.sha256"), digest());

if (process.argv.includes("--check")) {
  const read = (path) => {
    try {
      return readFileSync(path, "utf8");
    } catch {
      return null;
    }
  };
  const stale = [...built].filter(([path, text]) => read(path) !== text).map(([path]) => path);
  if (stale.length) {
    console.error(`not up to date, run 'make explorer': ${stale.join(", ")}`);
    process.exit(1);
  }
} else {
  mkdirSync(assets, { recursive: true });
  for (const [path, text] of built) writeFileSync(path, text);
  for (const [path, text] of built) console.log(`${path.slice(assets.length + 1)}: ${text.length} characters`);
}
