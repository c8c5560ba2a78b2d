// Operators' requests: each is signed here, in the browser, and checked by the keeper. The signing key stays in this page's memory, where a
// script can use it but not read it, and is gone with the page.
import { get, send } from "./api.js";

let signer = null; // { name, key }

const bytesOf = (hex) => Uint8Array.from(hex.match(/../g) || [], (pair) => parseInt(pair, 16));
const hexOf = (bytes) => [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
const base64url = (bytes) => btoa(String.fromCharCode(...bytes)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");

export const operatorName = () => signer?.name || "";
export function lock() { signer = null; }

// coveop_NAME_ and 192 hex digits: the private number, x and y.
export async function unlock(secret) {
  const parts = /^coveop_([A-Za-z0-9._-]{1,63})_([0-9a-f]{64})([0-9a-f]{64})([0-9a-f]{64})$/.exec(secret.trim());
  if (!parts) throw new Error("This is not an operator's signing key: it begins with coveop_. `cove operator add NAME` makes one.");
  if (!globalThis.crypto?.subtle) throw new Error("Browsers sign only on https pages, or on localhost: open the console by https.");
  const [d, x, y] = parts.slice(2).map((hex) => base64url(bytesOf(hex)));
  const key = await crypto.subtle.importKey("jwk", { kty: "EC", crv: "P-256", d, x, y }, { name: "ECDSA", namedCurve: "P-256" }, false, ["sign"])
    .catch(() => { throw new Error("This signing key is damaged: its numbers do not belong together."); });
  signer = { name: parts[1], key };
  try { await run("status"); } catch (error) { signer = null; throw error; }
}

// What the `cove` command behind this verb prints.
export async function run(verb, args = []) {
  const { nonce } = await get("/operator/nonce");
  const text = new TextEncoder().encode(["cove operator", nonce, verb, ...args].join("\n"));
  const signature = hexOf(await crypto.subtle.sign({ name: "ECDSA", hash: "SHA-256" }, signer.key, text));
  const response = await send("POST", "/operator/run", { body: { operator: signer.name, nonce, verb, arguments: args, signature } });
  return response.text();
}

export const runJson = async (verb, args) => JSON.parse(await run(verb, args));

// A new key is made here: the server is told its hash alone.
export async function newKey() {
  const key = `e2b_${hexOf(crypto.getRandomValues(new Uint8Array(20)))}`;
  return { key, hash: hexOf(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(key))) };
}
