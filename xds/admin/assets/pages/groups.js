// All groups: what each is served, its rollout, and what its nodes rejected.

import { get, pathOf, queryOf } from "../admin_api.js";
import { counts, element, link, plural, state, table, when } from "../dom.js";
import { who } from "../words.js";

const PAGE = 100;
const NACKS = 500; // equal ones are one

export const groups = {
  title: () => "Groups",

  async read({ query, signal }) {
    const [page, rollouts, nacks] = await Promise.all([
      get(`/groups${queryOf({ limit: PAGE, page_token: query.page_token })}`, signal),
      get("/rollouts", signal),
      get(`/nacks${queryOf({ state: "open", by: "message", limit: NACKS })}`, signal),
    ]);
    return { page, rollouts: rollouts.items, nacks: nacks.items };
  },

  draw({ query }, { page, rollouts, nacks }) {
    const rolloutOf = new Map(rollouts.map((each) => [each.group, each]));
    const nacksOf = new Map();
    for (const { group, nodes_total: nodes } of nacks) nacksOf.set(group, (nacksOf.get(group) ?? 0) + nodes);
    const rows = page.items.map((each) => row(each, rolloutOf.get(each.group), nacksOf.get(each.group) ?? 0));
    const columns = ["group", "nodes", "revision", "rollout", "open NACKs", "last change"];
    return [
      counts(plural(rows.length, "group"), (query.page_token || page.next_page_token) && " on this page"),
      rows.length ? table("Groups", columns, rows) : element("p", {}, "There is no group yet. ", element("code", {}, "xds apply"), " makes one."),
      element("p", {}, page.next_page_token && link(`/ui/groups${queryOf({ page_token: page.next_page_token })}`, "more groups")),
    ];
  },
};

function row({ group, nodes, revision, ...last }, rollout, nacked) {
  const change = revision ? [when(last.time), " by ", who(last), last.message && `: ${last.message}`] : "settings alone";
  const cells = [
    link(pathOf("/ui/groups", group), group),
    link(`/ui/nodes${queryOf({ group })}`, plural(nodes, "node")),
    revision || "–",
    rollout ? state(rollout.state, `${rollout.state}, wave ${rollout.wave} of ${rollout.waves}`) : "–",
    nacked ? link(`/ui/nodes${queryOf({ group, state: "nacked" })}`, state("nacked", plural(nacked, "NACK"))) : "–",
    change,
  ];
  return { key: group, cells };
}
