// Words that several pages say.

import { element } from "./dom.js";

// What is missing where servers do not answer; null where all do.
export function missing(what, partial = []) {
  return partial.length > 0 && element("p", { role: "alert" }, `${what} of servers that do not answer are missing: ${partial.join(", ")}.`);
}

// Who made a change: the principal, and what the client says about itself.
export function who({ actor, author }) {
  if (!actor || actor === author) return author || "nobody by name";
  return author ? `${actor} (${author})` : actor;
}

export function bytes(number) {
  if (number < 1000) return `${number} B`;
  return number < 1e6 ? `${(number / 1e3).toFixed(1)} kB` : `${(number / 1e6).toFixed(1)} MB`;
}

export function rate(number) {
  return number.toLocaleString("en", { maximumFractionDigits: number < 10 ? 2 : number < 100 ? 1 : 0 });
}

export function percent(ratio) {
  return ratio === null || ratio === undefined ? "–" : `${(100 * ratio).toLocaleString("en", { maximumFractionDigits: 1 })} %`;
}

// `zone a of region r`, shortly: `r/a`.
export function place({ region, zone, sub_zone: subZone }) {
  return [region, zone, subZone].filter(Boolean).join("/") || "no locality";
}
