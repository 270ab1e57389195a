// Words that several pages say.

import { queryOf } from "./admin_api.js";
import { element, link } from "./dom.js";

// What is missing where servers do not answer; null where all do.
export function missing(what, partial = []) {
  const text = `${what} of servers that do not answer are missing: ${partial.join(", ")}.`;
  return partial.length > 0 && element("p", { role: "alert" }, text);
}

// The lines of a group with a rollout, in words.
export const LINES = { head: "in the wave", base: "outside of the wave" };

// Links to the first and the next page of a list: `query` are the values of the address that stay, `next` is the token.
export function pagesOf(path, query, next, what) {
  const to = (token, text) => link(path + queryOf({ ...query, page_token: token }), text);
  const links = [query.page_token && to("", `First ${what}`), next && to(next, `Next ${what}`)].filter(Boolean);
  return links.length > 0 && element("nav", { "aria-label": "Pages of the list", class: "pages" }, links);
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

export const joined = (items) => items.map((item, at) => [at > 0 && ", ", item]);

// Words with a command between them.
export const hint = (before, command, after = "") => element("p", {}, before, element("code", {}, command), after);

// A name as a shell takes it: clients choose theirs, and readers paste commands.
export function quoted(text) {
  return /^[\w.,:@/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

export function rate(number) {
  return number.toLocaleString("en", { maximumFractionDigits: number < 10 ? 2 : number < 100 ? 1 : 0 });
}

export function percent(ratio) {
  if (ratio === null || ratio === undefined) return "–";
  return `${(100 * ratio).toLocaleString("en", { maximumFractionDigits: 1 })} %`;
}

// `zone a of region r`, shortly: `r/a`.
export function place({ region, zone, sub_zone: subZone }) {
  return [region, zone, subZone].filter(Boolean).join("/") || "no locality";
}
