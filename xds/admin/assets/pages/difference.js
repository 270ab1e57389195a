// How two revisions of a group differ, and the roll-back to one of them.

import { ApiError, find, get, pathOf, queryOf, send } from "../admin_api.js";
import { button, commands, counts, element, link, plural, section, show, table } from "../dom.js";
import { neededScope, whyField } from "../forms.js";
import { sideBySide } from "../line_diff.js";
import { mayWrite } from "../scopes.js";
import { bytes, hint } from "../words.js";

const RESOURCES = 20; // of one reading
const RESOURCE_BYTES = 64 * 1024; // larger ones are named only
const ROWS = 400; // of one resource at first, and with each further step
const LONG = 2000; // characters of a line
const PRECONDITION_FAILED = 412;

export const difference = {
  title: ({ params, query }) => `${params.group}: revision ${query.from || "before"} → ${query.to || "newest"}`,
  above: ({ params }) => pathOf("/ui/groups", params.group),
  wants: ({ params }, event) => event.group === params.group && event.kind !== "ack",

  async read(view) {
    const { params, query, kept, signal } = view;
    const path = pathOf("/groups", params.group);
    const [present, caller] = await Promise.all([find(path, signal), get("/whoami", signal)]);
    const to = (kept.to ??= Number(query.to) || present?.revision || 0); // what is compared stays while it is shown
    const from = query.from === "" ? to - 1 : Number(query.from);
    kept.wanted ??= 1;
    kept.pages ??= [];
    try {
      while (kept.pages.length < kept.wanted && kept.token !== "") {
        await readPage(kept, params.group, { from, to }, signal);
      }
    } catch (error) {
      if (![400, 404, 422].includes(error.status)) throw error;
      return { problem: error.message, present, from, to };
    }
    return { present, caller, from, to };
  },

  draw(view, { problem, present, caller, from, to }) {
    const { params: { group }, kept } = view;
    const back = element("p", {}, link(pathOf("/ui/groups", group), `Group ${group}`));
    if (problem) return [element("p", { role: "alert" }, `These revisions cannot be compared: ${problem}`), back];
    const changes = Object.entries(kept.pages[0].changes);
    const resources = kept.pages.flatMap((page) => page.resources);
    const isNewest = !present || present.revision === from;
    const total = changes.reduce((sum, [, names]) => sum + countOf(names), 0);
    const shown = resources.length.toLocaleString("en");
    const words = `${plural(total, "resource differs", "resources differ")}, ${shown} shown`;
    return [
      back,
      counts(total ? words : "Nothing differs."),
      total > 0 && changeTable(changes),
      kept.refused && element("p", { role: "alert", "data-key": "refused" }, kept.refused),
      isNewest && total > 0 && rollbackForm(view, caller, { from, to, isDeleted: !present }),
      !isNewest && to !== present.revision && outdated(group, present.revision, to),
      resources.map((each) => resourceSection(each, { group, from, to })),
      kept.token && element("p", {}, button(`Show ${RESOURCES} more resources`, () => showMore(view))),
      section("On the command line", commands(`xds diff -g ${group} --from ${from} --to ${to}`)),
    ];
  },

  // The lines of a resource never change, so they are made once.
  drawn(view, { from, to }) {
    for (const each of view.kept.pages.flatMap((page) => page.resources)) {
      const holder = document.querySelector(`[data-lines="${CSS.escape(keyOf(each))}"]`);
      if (holder && !holder.firstChild) show(holder, linesOf(each, from, to));
    }
  },
};

async function readPage(kept, group, { from, to }, signal) {
  const { token } = kept;
  const asked = queryOf({ from, limit: RESOURCES, max_bytes: RESOURCE_BYTES, page_token: token });
  const path = `${pathOf("/groups", group, "revisions", String(to))}/diff`;
  const page = from >= 0 && to > 0 && (await find(path + asked, signal));
  if (!page) throw new ApiError(404, "one of them was never made, or its content has been deleted.");
  if (kept.token !== token) return; // another read, as after a second click, has got this page meanwhile
  kept.pages.push(page);
  kept.token = page.next_page_token ?? "";
}

function showMore(view) {
  view.kept.wanted += 1;
  view.again();
}

const countOf = ({ added, changed, removed }) => added.length + changed.length + removed.length;

function changeTable(changes) {
  const rows = changes.map(([type, names]) => {
    const { added, changed, removed } = names;
    return { key: type, cells: [type, added.length, changed.length, removed.length] };
  });
  return table("Changes by type", ["type", "added", "changed", "removed"], rows, 1);
}

function outdated(group, present, to) {
  const href = pathOf("/ui/groups", group, "diff") + queryOf({ from: present, to });
  const compare = link(href, `Compare revision ${to} with it`);
  return element("p", {}, `The group is at revision ${present}. `, compare, " to roll back.");
}

// -- one resource -----------------------------------------------------------------------------------------------------

const keyOf = ({ type, name }) => `${type}/${name}`;

function resourceSection(each, { group, from, to }) {
  const key = keyOf(each);
  const size = each.left_out_bytes;
  const command = `xds diff -g ${group} --from ${from} --to ${to}`;
  const tooLarge = size && hint(`${bytes(size)}: too large for this page. `, command, " shows it.");
  return element(
    "section",
    { "data-key": key },
    element("h2", {}, `${key}: ${each.change}`),
    tooLarge || element("div", { "data-key": `lines of ${key}`, "data-own": true, "data-lines": key }),
  );
}

function linesOf(each, from, to) {
  const text = (side) => (side === null ? [] : JSON.stringify(side, null, 2).split("\n"));
  const [before, after] = [text(each.before), text(each.after)];
  if (before.join("\n") === after.join("\n")) return element("p", {}, "Only redacted values differ.");
  const body = element("tbody");
  append(body, sideBySide(before, after));
  const heads = ["line", from ? `revision ${from}` : "nothing", "line", `revision ${to}`];
  return element(
    "table",
    { class: "lines" },
    element("caption", { class: "for-readers" }, `${keyOf(each)} before and after`),
    element("thead", {}, element("tr", {}, heads.map((name) => element("th", { scope: "col" }, name)))),
    body,
  );
}

// Appends rows, or puts them in place of `where`; beyond ROWS a button shows more.
function append(body, rows, where = null) {
  const made = rows.slice(0, ROWS).map((row) => (row.kind === "fold" ? foldRow(body, row.rows) : lineRow(row)));
  const rest = rows.slice(ROWS);
  const step = `Show ${Math.min(ROWS, rest.length)} of ${plural(rest.length, "more line")}`;
  if (rest.length) made.push(stepRow(body, rest, step));
  const focus = made[0]?.querySelector("button") ?? made[0];
  if (where) {
    where.replaceWith(...made);
    focus?.setAttribute("tabindex", "-1");
    focus?.focus({ preventScroll: true });
  } else {
    body.append(...made);
  }
}

const foldRow = (body, rows) => stepRow(body, rows, `${plural(rows.length, "unchanged line")}`);

function stepRow(body, rows, text) {
  const unfold = button(text, () => append(body, rows, row));
  const row = element("tr", { class: "fold" }, element("td", { colspan: 4 }, unfold));
  return row;
}

function lineRow({ kind, before, after }) {
  const side = (line, sign, what) => {
    if (!line) return [element("td", { class: "number" }), element("td", { class: "none" })];
    const number = element("td", { class: "number" }, line.number);
    if (kind === "same") return [number, element("td", { class: "same" }, cut(line.text))];
    return [number, element("td", { class: what }, signOf(sign, what), cut(line.text))];
  };
  return element("tr", { class: kind }, side(before, "−", "removed"), side(after, "+", "added"));
}

const signOf = (sign, what) => element("span", { class: "sign", role: "img", "aria-label": what }, sign);

function cut(text) {
  return text.length > LONG ? `${text.slice(0, LONG)}… (${text.length.toLocaleString("en")} characters)` : text;
}

// -- rolling back -----------------------------------------------------------------------------------------------------

function rollbackForm(view, caller, { from, to, isDeleted }) {
  const { params: { group }, kept } = view;
  const isAllowed = mayWrite(caller, group);
  const box = element("input", { type: "checkbox", checked: Boolean(kept.withEndpoints), disabled: !isAllowed });
  box.onchange = (event) => (kept.withEndpoints = event.target.checked);
  const disabled = !isAllowed || Boolean(kept.isBusy);
  const values = { id: "roll-back", disabled, "aria-describedby": !isAllowed && "needed-scope" };
  return section(
    `Roll back to revision ${to}`,
    element("p", {}, `A new revision gets the content of ${to}. It is refused if another push comes first.`),
    element(
      "div",
      { class: "actions", "data-key": "actions" },
      whyField(kept, "rollback-message", !isAllowed),
      element("label", {}, box, " endpoints, too"),
      button(`Roll back to revision ${to}`, () => rollBack(view, { from, to, isDeleted }), values),
    ),
    !isAllowed && neededScope("A roll-back needs", group),
  );
}

async function rollBack(view, { from, to, isDeleted }) {
  const { params: { group }, kept } = view;
  Object.assign(kept, { isBusy: true, refused: "" });
  const asked = queryOf({ message: kept.message });
  const body = { to, keep_endpoints: !kept.withEndpoints };
  const condition = isDeleted ? { "If-None-Match": "*" } : { "If-Match": `"r${from}"` };
  try {
    const done = await send("POST", `${pathOf("/groups", group)}/rollback${asked}`, body, condition);
    if (done.changed) return view.go(pathOf("/ui/groups", group));
    kept.refused = "Nothing was changed: at most endpoints differ, and they were to stay.";
  } catch (error) {
    const isLate = error.status === PRECONDITION_FAILED;
    const late = `the group is not at revision ${from} any more, so this comparison is out of date.`;
    kept.refused = `Nothing was changed: ${isLate ? late : error.message}`;
  }
  kept.isBusy = false;
  await view.again();
}
