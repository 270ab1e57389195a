// Elements, made of text alone: nodes and clients choose their own names and messages, and no text ever becomes markup.

// `values` are attributes, or handlers (`onclick`); undefined, null and false leave one out. Children are elements,
// texts and numbers, in lists of any depth; null, undefined, false and "" are left out.
export function element(tag, values = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(values)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made[name] = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  const isShown = (child) => child !== null && child !== undefined && child !== false && child !== "";
  made.append(...children.flat(Infinity).filter(isShown));
  return made;
}

// A link within the pages. `href` is a path of this server: see `pathOf`.
export function link(href, text, values = {}) {
  return element("a", { href, ...values }, text);
}

export function button(text, onclick, values = {}) {
  return element("button", { type: "button", onclick, ...values }, text);
}

// A section with its heading; null without content.
export function section(heading, ...children) {
  const shown = children.flat(Infinity).filter(Boolean);
  return shown.length ? element("section", { "data-key": heading }, element("h2", {}, heading), shown) : null;
}

// A table. A row has a `key`, unique in the table, and a cell per column: the first is the header of the row. On a
// narrow screen a row is two lines: the first `lead` cells, then the others behind the names of their columns.
export function table(caption, columns, rows, lead = 2) {
  const heads = columns.map((name) => element("th", { scope: "col" }, name));
  return element(
    "table",
    { "data-key": caption },
    element("caption", {}, element("h2", {}, caption)),
    element("thead", {}, element("tr", {}, heads)),
    element("tbody", {}, rows.map((row) => tableRow(row, columns, lead))),
  );
}

function tableRow({ key, cells, kind }, columns, lead) {
  const made = cells.map((content, at) => {
    const values = at < lead ? { class: "lead" } : { "data-label": columns[at], class: content === "–" && "none" };
    return at === 0 ? element("th", { scope: "row", ...values }, content) : element("td", values, content);
  });
  return element("tr", { "data-key": key, class: kind }, made);
}

// A list of terms and what is said of them; pairs with nothing to say are left out.
export function facts(pairs) {
  const isSaid = ([, value]) => value !== "" && value !== null && value !== undefined && value?.length !== 0;
  const said = pairs.filter(isSaid).map(([term, value]) => [element("dt", {}, term), element("dd", {}, value)]);
  return element("dl", {}, said);
}

// Commands for the terminal.
export function commands(...texts) {
  return element("pre", { tabindex: 0, "aria-label": "commands" }, element("code", {}, texts.join("\n")));
}

// How many there are, which is told to readers when it changes.
export function counts(...children) {
  return element("p", { role: "status", class: "counts", "data-key": "counts" }, children);
}

// The first two lines of a text, and all of it in the tooltip.
export function clipped(text, kind = "") {
  return text ? element("span", { class: `${kind} cut`.trim(), title: text }, text) : "–";
}

export function progress(value, max, name) {
  return element("progress", { value, max, "aria-label": name });
}

// -- words ------------------------------------------------------------------------------------------------------------

const STATES = {
  ok: ["✓", "good"],
  warning: ["!", "wait"],
  failed: ["✗", "bad"],
  synced: ["✓", "good"],
  pending: ["…", "wait"],
  nacked: ["✗", "bad", "NACKed"],
  orphaned: ["?", "wait"],
  not_subscribed: ["–", "quiet", "not subscribed"],
  connected: ["✓", "good"],
  disconnected: ["–", "quiet"],
  running: ["…", "wait"],
  paused: ["‖", "wait"],
  held: ["!", "bad"],
  promoted: ["✓", "good"],
  rolled_back: ["↶", "bad", "rolled back"],
  superseded: ["–", "quiet"],
  open: ["✗", "bad"],
  resolved: ["✓", "good"],
};

// A state: a sign and a word, never a color alone. `text` replaces the word.
export function state(name, text = undefined) {
  const [sign, kind, word] = STATES[name] ?? ["·", "quiet"];
  const drawn = element("span", { "aria-hidden": "true" }, sign);
  return element("span", { class: `state ${kind}` }, drawn, ` ${text ?? word ?? name}`);
}

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

export function span(seconds) {
  const [unit, size] = UNITS.find(([, each]) => seconds >= each) ?? ["s", 1];
  return `${Math.floor(seconds / size)} ${unit}`;
}

// "5 min ago" or "in 5 min", with the time itself in the tooltip; null without a time.
export function when(time) {
  if (!time) return null;
  const age = (Date.now() - Date.parse(time)) / 1000;
  const text = Math.abs(age) < 1 ? "now" : age > 0 ? `${span(age)} ago` : `in ${span(-age)}`;
  return element("time", { datetime: time, title: time }, text);
}

export function plural(count, one, many = `${one}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

// -- drawing again ----------------------------------------------------------------------------------------------------

// Makes `parent` show these children and changes only what differs, so that the focus, a selection and what is
// unfolded stay. Elements are matched by `data-key` or `id`, others by their place. An element with `data-own` is left
// alone once it is there: its page changes it itself.
export function show(parent, ...children) {
  const focused = document.activeElement;
  updateChildren(parent, element("div", {}, children));
  if (focused !== document.activeElement && parent.contains(focused)) focused.focus({ preventScroll: true });
}

const HANDLERS = ["onclick", "onchange", "oninput", "onsubmit"];
const keyOf = (node) => node.dataset?.key || node.id || "";

function updateChildren(old, fresh) {
  const keyed = new Map([...old.children].filter(keyOf).map((child) => [keyOf(child), child]));
  let place = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const key = keyOf(wanted);
    const found = key ? keyed.get(key) : place && !keyOf(place) ? place : null;
    if (!found || found.nodeName !== wanted.nodeName) {
      old.insertBefore(wanted, place);
      continue;
    }
    if (found === place) place = place.nextSibling;
    else old.insertBefore(found, place);
    update(found, wanted);
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

function update(old, wanted) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== wanted.data) old.data = wanted.data;
    return;
  }
  if (wanted.dataset.own !== undefined) return;
  for (const { name } of [...old.attributes]) {
    if (name !== "open" && !wanted.hasAttribute(name)) old.removeAttribute(name); // a reader has unfolded it
  }
  for (const { name, value } of wanted.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const name of HANDLERS) if (old[name] !== wanted[name]) old[name] = wanted[name];
  const value = wanted.value;
  updateChildren(old, wanted);
  const isField = ["INPUT", "SELECT"].includes(old.nodeName);
  if (isField && old !== document.activeElement && old.value !== value) old.value = value; // not while one types
}
