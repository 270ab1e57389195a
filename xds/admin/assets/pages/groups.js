// All groups: what each is served, its rollout, and how many of its nodes rejected something.

import { get, pathOf, queryOf } from "../admin_api.js";
import { counts, link, plural, state, table, when } from "../dom.js";
import { hint, missing, pagesOf, who } from "../words.js";

const PAGE = 100;
const COUNTED = 1000; // groups with the most nodes, which the server counts

export const groups = {
  title: () => "Groups",

  async read({ query, signal }) {
    const [page, rollouts, nodes] = await Promise.all([
      get(`/groups${queryOf({ limit: PAGE, page_token: query.page_token })}`, signal),
      get("/rollouts", signal),
      get("/nodes?limit=1&counts=true", signal), // those of all servers: a group has those of the server that is asked
    ]);
    return { page, rollouts: rollouts.items, nodes };
  },

  draw({ query }, { page, rollouts, nodes }) {
    const rolloutOf = new Map(rollouts.map((each) => [each.group, each]));
    const { by_group: byGroup, nacked_by_group: nackedByGroup } = nodes.counts;
    const [nodesOf, nackedOf] = [byGroup, nackedByGroup].map((each) => new Map(Object.entries(each)));
    const least = nodesOf.size < COUNTED ? 0 : null;
    const rows = page.items.map((each) => {
      const { group } = each;
      return row({ ...each, nodes: nodesOf.get(group) ?? least }, rolloutOf.get(group), nackedOf.get(group) ?? 0);
    });
    const columns = ["group", "nodes", "revision", "rollout", "NACKed", "last change"];
    return [
      counts(plural(rows.length, "group"), (query.page_token || page.next_page_token) && " on this page"),
      missing("Nodes", nodes.partial),
      rows.length ? table("Groups", columns, rows) : hint("There is no group yet. ", "xds apply", " makes one."),
      pagesOf("/ui/groups", { page_token: query.page_token }, page.next_page_token, `${PAGE} groups`),
    ];
  },
};

function row({ group, nodes, revision, ...last }, rollout, nacked) {
  const why = last.message && `: ${last.message}`;
  const change = revision ? [when(last.time), " by ", who(last), why] : "settings alone";
  const cells = [
    link(pathOf("/ui/groups", group), group),
    link(`/ui/nodes${queryOf({ group })}`, nodes === null ? "few nodes" : plural(nodes, "node")),
    revision || "–",
    rollout ? state(rollout.state, `${rollout.state}, wave ${rollout.wave} of ${rollout.waves}`) : "–",
    nacked ? link(`/ui/nodes${queryOf({ group, state: "nacked" })}`, state("nacked", plural(nacked, "node"))) : "–",
    change,
  ];
  return { key: group, cells };
}
