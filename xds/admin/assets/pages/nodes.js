// All nodes: those with trouble first, in pages of the server, counted over everything that the filters match.

import { get, pathOf, queryOf } from "../admin_api.js";
import { clipped, counts, element, link, plural, state, table, when } from "../dom.js";
import { choiceFilter, textFilter } from "../filters.js";
import { LINES, missing, pagesOf, place } from "../words.js";

const PAGE = 100;
const STATES = ["nacked", "orphaned", "pending", "synced", "not_subscribed"]; // the worst one first
const WORDS = { nacked: "NACKed", not_subscribed: "not subscribed" };
const FILTERS = ["text", "group", "state", "line", "user_agent"];
const COLUMNS = ["node", "state", "group", "revision", "since", "client", "locality"];
const KINDS = ["push", "rollback", "rollout", "group", "nack", "order", "node", "stream"];
export const NONE =
  "No node is connected. xds envoy starts one; xds bootstrap writes the configuration of an Envoy of yours.";

export const nodes = {
  title: () => "Nodes",
  above: () => "/",
  wants: (view, { kind }) => KINDS.includes(kind),

  filters: (view, data) => [
    textFilter("text", "Filter", {
      placeholder: "id, cluster, zone … (press /)",
      hint: "Nodes whose id, cluster, region, zone, client or NACK contains this text",
      size: 26,
    }),
    textFilter("group", "Group", { hint: "The exact name of a group", size: 12 }),
    choiceFilter("state", "State", [["", "any"], ...STATES.map((each) => [each, WORDS[each] ?? each])], {
      hint: "Nodes with a type in this state",
    }),
    choiceFilter("line", "Rollout", [["", "any"], ...Object.entries(LINES)]),
    choiceFilter("user_agent", "Client", [["", "any"], ...clients(data)], { hint: "The client's name and version" }),
  ],

  read: ({ query, signal }) =>
    get(`/nodes${queryOf({ ...chosen(query), order: "trouble", counts: "true", limit: PAGE })}`, signal),

  draw: ({ query }, data) => [
    counts(summary(data.counts)),
    missing("Nodes", data.partial),
    data.items.length > 0 ? table("Those that need a look come first", COLUMNS, data.items.map(row)) : empty(query),
    pagesOf("/ui/nodes", chosen(query), data.next_page_token, `${PAGE} nodes`),
  ],
};

// What is chosen by the address.
function chosen(query) {
  return Object.fromEntries([...FILTERS, "page_token"].map((name) => [name, query[name]]));
}

function clients(data) {
  const names = Object.keys(data?.counts.by_version ?? {}).filter(Boolean);
  return names.sort().map((name) => [name, name]);
}

// How many nodes there are, in which states, and how many of them are gone.
export function summary({ total, connected, by_state: byState }) {
  const states = STATES.filter((each) => byState[each]).map((each) => {
    return [" · ", state(each, `${byState[each].toLocaleString("en")} ${WORDS[each] ?? each}`)];
  });
  const gone = total > connected && ` · ${(total - connected).toLocaleString("en")} gone`;
  return [`${plural(total, "node")}, ${connected.toLocaleString("en")} connected`, states, gone];
}

// The type with the worst state, as `[alias, type]`; null without types.
function worstType({ types }) {
  const found = Object.entries(types);
  const rank = ([, type]) => STATES.indexOf(type.state);
  return found.reduce((worst, each) => (!worst || rank(each) < rank(worst) ? each : worst), null);
}

// The revision that the node runs as a whole: outside of a wave, what the wave changes stays at an older one.
// 0 without any; a type of which the group has no resources has none.
export function revisionOf({ types }) {
  const revisions = Object.values(types).map((type) => type.revision).filter(Boolean);
  return revisions.length > 0 ? Math.min(...revisions) : 0;
}

function row(node) {
  const [alias, worst] = worstType(node) ?? ["", { state: "not_subscribed" }];
  const why = worst.error && clipped(`${alias}: ${worst.error}`, "why");
  return {
    key: node.id,
    kind: node.connected ? "" : "gone",
    cells: [
      link(pathOf("/ui/nodes", node.id), node.id),
      [state(worst.state), !node.connected && " and gone", why],
      clipped(node.group || "none"),
      [String(revisionOf(node) || "–"), node.line === "head" && " (wave)"],
      when(node.connected ? worst.since : node.last_seen) ?? "–",
      node.user_agent || "–",
      clipped(place(node.locality)),
    ],
  };
}

function empty(query) {
  return element("p", {}, FILTERS.some((name) => query[name]) ? "No node matches the filters." : NONE);
}
