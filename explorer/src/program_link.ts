/** Programs in addresses: compressed, as base64 for URLs. */

async function through(data: Uint8Array, stream: CompressionStream | DecompressionStream): Promise<Uint8Array> {
  const body = new Blob([data as Uint8Array<ArrayBuffer>]).stream().pipeThrough(stream as ReadableWritablePair);
  return new Uint8Array(await new Response(body).arrayBuffer());
}

/** What follows "#" in the address of a program. */
export async function linkOf(source: string, outputType: string): Promise<string> {
  const data = await through(new TextEncoder().encode(source), new CompressionStream("deflate-raw"));
  const text = btoa(Array.from(data, (each) => String.fromCharCode(each)).join(""));
  return `${outputType}/${text.replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "")}`;
}

/** The program of an address, and its output type; null if it has none. */
export async function linkedProgram(hash: string): Promise<{ outputType: string; source: string } | null> {
  const [outputType = "", text] = hash.replace(/^#/, "").split("/");
  if (!text) return null;
  try {
    const data = Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (each) => each.charCodeAt(0));
    const source = new TextDecoder().decode(await through(data, new DecompressionStream("deflate-raw")));
    return { outputType, source };
  } catch {
    return null;
  }
}
