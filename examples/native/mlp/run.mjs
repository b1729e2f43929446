// The classifier in WebAssembly, without WASI: for node, and for a page by `import { classify } from "./run.mjs"`.
//
//     python build.py wasm32-simd static
//     python -m ziglang cc -target wasm32-freestanding -nostdlib -Wl,--no-entry -Wl,--export=mlp_run \
//         -Wl,--export=__heap_base -Wl,--whole-archive libmlp.a -o mlp.wasm
//     node run.mjs

export async function classify(bytes, input) {
  const { instance } = await WebAssembly.instantiate(bytes, {});
  const { memory, mlp_run, __heap_base } = instance.exports;
  const base = Math.ceil(__heap_base.value / 64) * 64;
  const [inputs, outputs, arena, arenaBytes] = [base, base + 128, base + 192, 4096];
  const missing = arena + arenaBytes - memory.buffer.byteLength;
  if (missing > 0) memory.grow(Math.ceil(missing / 65536));
  new Float32Array(memory.buffer, inputs, 32).set(input);
  const status = mlp_run(inputs, outputs, arena, arenaBytes);
  if (status !== 0) throw new Error(`status ${status}`);
  return Array.from(new Float32Array(memory.buffer, outputs, 8));
}

if (typeof process !== "undefined") {
  const { readFile } = await import("node:fs/promises");
  const output = await classify(await readFile("mlp.wasm"), new Float32Array(32).fill(1));
  console.log(output.slice(0, 4).map((value) => value.toFixed(4)).join(" "));
}
