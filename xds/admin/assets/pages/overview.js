// What is wrong, since when, and what changed.

import { get, queryOf } from "../admin_api.js";
import { counts, element, link, plural, section, state, table, when } from "../dom.js";

export const overview = {
  title: () => "Overview",

  async read({ signal }) {
    const [check, nodes, nacks, rollouts] = await Promise.all([
      get("/check", signal),
      get("/nodes?limit=1", signal),
      get("/nacks?state=open&by=message&limit=10", signal),
      get("/rollouts", signal),
    ]);
    return { check, nodes, nacks, rollouts };
  },

  draw: (view, { check, nacks }) => [
    counts(state(check.state)),
    table("Check", ["check", "state", "detail", "next"], check.items.map(checkRow)),
    nacks.items.length > 0 && table("NACKs", ["message", "nodes", "type", "since"], nacks.items.map(nackRow)),
  ],
};

function checkRow({ check, state: name, detail, next }) {
  return { key: check, cells: [check, state(name), detail, name === "ok" ? "–" : element("code", {}, next)] };
}

function nackRow(each) {
  return { key: String(each.id), cells: [link(`/ui/nodes${queryOf({ text: each.message })}`, each.message), plural(each.nodes_total, "node"), each.type, when(each.first)] };
}
