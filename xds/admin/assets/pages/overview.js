// What is wrong, since when, and what changed.

import { find, get, pathOf, queryOf } from "../admin_api.js";
import {
  clipped, commands, counts, element, facts, link, plural, progress, section, state, table, when,
} from "../dom.js";
import { waveBar, waveWords } from "../rollout.js";
import { missing, who } from "../words.js";
import { NONE, summary } from "./nodes.js";

const SHOWN = 10; // rows of each list; the pages that they lead to have all
const BARS = 3; // rollouts whose nodes are counted
const TEXT_LIMIT = 200; // characters of a message to find its nodes by

export const overview = {
  title: () => "Overview",
  wants: (view, { kind }) => !["stream", "assignment", "endpoints"].includes(kind),

  async read({ signal }) {
    const [check, nodes, nacks, rollouts, changes, ...about] = await Promise.all([
      get("/check", signal),
      get("/nodes?limit=1&counts=true", signal),
      get(`/nacks?state=open&by=message&limit=${SHOWN}`, signal),
      get("/rollouts", signal),
      get(`/audit?refused=false&newest=true&limit=${SHOWN}`, signal),
      get("/version", signal),
      get("/whoami", signal),
    ]);
    const progressOf = ({ group }) => find(pathOf("/groups", group, "rollout"), signal);
    const progresses = await Promise.all(rollouts.items.slice(0, BARS).map(progressOf));
    const rows = rollouts.items.map((each, at) => rolloutRow(each, progresses[at]?.nodes));
    return { check, nodes, nacks, rollouts: rows, changes, about };
  },

  draw: (view, { check, nodes, nacks, rollouts, changes, about }) => [
    counts(state(check.state, `checks: ${check.state}`), " · ", summary(nodes.counts)),
    missing("Nodes, NACKs and findings", check.partial),
    element("div", { class: "columns" },
      element("div", {},
        listed("Rollouts", ["group", "state", "progress", "since"], rollouts),
        listed("NACKs", ["message", "nodes", "first resource", "since"], nacks.items.map(nackRow)),
        listed("Checks", ["check", "state", "what is found"], check.items.map(checkRow)),
      ),
      element("div", {},
        listed("Last changes", ["when", "change", "group", "who", "why"], changes.items.map(changeRow)),
        listed("Nodes by client", ["client", "nodes", "share"], clientRows(nodes.counts)),
        nodes.counts.total === 0 && section("Nodes", element("p", {}, NONE)),
      ),
    ),
    describe(...about),
  ],
};

function listed(caption, columns, rows) {
  return rows.length > 0 && table(caption, columns, rows);
}

function rolloutRow({ group, state: name, head, wave, waves, size, since, reason, unknown }, nodes) {
  const text = `wave ${wave} of ${waves} (${size})`;
  const why = reason || (unknown && `cannot be judged yet: ${unknown}`);
  return {
    key: group,
    cells: [
      link(pathOf("/ui/groups", group), group),
      [state(name), why && element("span", { class: "why" }, ` ${why}`)],
      [`revision ${head}: ${text}`, nodes && [", ", waveWords(nodes), " ", waveBar(nodes)]],
      when(since),
    ],
  };
}

function nackRow({ id, group, message, type, names, guilty, nodes_total: total, first }) {
  const nodes = `/ui/nodes${queryOf({ group, state: "nacked", text: message.slice(0, TEXT_LIMIT) })}`;
  const resource = guilty[0] ?? names[0];
  return {
    key: String(id),
    cells: [
      clipped(message || "no message", "why"),
      link(nodes, plural(total, "node")),
      clipped(resource ? `${type}/${resource}` : type),
      when(first),
    ],
  };
}

function checkRow({ check, state: name, detail, next, see }) {
  const help = element("span", { class: "quiet" }, " next: ", element("code", {}, next), `, see ${see}`);
  return { key: check, cells: [check, state(name), [detail, name !== "ok" && help]] };
}

function changeRow({ id, time, action, group, revision, actor, author, message, subject, count }) {
  const why = [subject, message].filter(Boolean).join(": ");
  const what = [action.replace(/[._]/g, " "), revision && `revision ${revision}`, count > 1 && `${count} times`];
  return {
    key: id,
    cells: [
      when(time),
      what.filter(Boolean).join(", "),
      group ? link(pathOf("/ui/groups", group), group) : "–",
      who({ actor, author }),
      clipped(why),
    ],
  };
}

function clientRows({ total, by_version: byVersion }) {
  return Object.entries(byVersion).slice(0, SHOWN).map(([name, count]) => ({
    key: name,
    cells: [
      name ? link(`/ui/nodes${queryOf({ user_agent: name })}`, name) : "unknown",
      count.toLocaleString("en"),
      progress(count, total, `share of ${name || "unknown"}`),
    ],
  }));
}

function describe(version, caller) {
  const raw = (path) => element("a", { href: path }, path);
  return [
    section("This server", facts([
      ["version", `${version.version} (Python ${version.python}, envoy-data-plane ${version.envoy_data_plane})`],
      ["signed in as", caller.name || caller.principal || "nobody: this server requires no credentials"],
      ["for monitoring", [raw("/livez"), ", ", raw("/readyz"), ", ", raw("/metrics")]],
      ["for tools", [raw("/api/v1/openapi.json"), ", ", raw("/docs")]],
    ])),
    section("On the command line", commands(
      "xds check          these checks",
      "xds nodes          which proxy runs what",
      "xds nacks          who rejected what, and why",
      "xds history        what changed",
      "xds apply -f FILE  push a snapshot",
    )),
  ];
}
