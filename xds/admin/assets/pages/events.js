// What happens on the server, newest first.

import { lines, pathOf, queryOf } from "../admin_api.js";
import { clipped, counts, link, plural, table, when } from "../dom.js";
import { choiceFilter, textFilter } from "../filters.js";

const SHOWN = 200;
const CHANGES = "push,rollback,rollout,group,config_entries,nack,order,watch,source,store"; // none is per node and push
const ALL = `${CHANGES},node,stream,assignment,endpoints,auth`; // ACKs are recorded for who asks
const KINDS = [
  ["", "changes and NACKs"],
  [ALL, "all"],
  ...ALL.split(",").map((kind) => [kind, kind.replaceAll("_", " ")]),
];
const SINCE = [["", "1 hour ago"], ["10m", "10 minutes ago"], ["24h", "a day ago"], ["7d", "a week ago"]];
const COLUMNS = ["when", "kind", "what", "group", "node", "detail"];
const GAPS = {
  lagged: "events are missing here: the server no longer had them",
  partial: "events of servers are missing here, which did not answer",
};

export const events = {
  title: () => "Events",
  above: () => "/",

  filters: () => [
    textFilter("node", "Node", { hint: "The exact id of a node", size: 16 }),
    textFilter("group", "Group", { hint: "The exact name of a group", size: 12 }),
    choiceFilter("kinds", "Kind", KINDS),
    choiceFilter("since", "Since", SINCE),
  ],

  // The first time all since the chosen time, then what came after the last one.
  async read({ query, kept, signal }) {
    const { kinds, group, node, since } = query;
    const isFirst = !kept.last;
    const after = isFirst ? { since: since || "1h" } : { last_event_id: kept.last };
    if (isFirst) Object.assign(kept, { items: [], total: 0, rows: 0 });
    const turn = (kept.turn = Symbol("turn"));
    const asked = { kinds: kinds || CHANGES, group, node, follow: "false", ...after };
    for await (const event of lines(`/events${queryOf(asked)}`, signal)) {
      if (turn !== kept.turn) break; // another read has begun meanwhile, behind the last event of this one
      if (!event) continue;
      kept.last = event.id ?? kept.last;
      kept.total += event.kind in GAPS ? 0 : 1;
      kept.items.unshift({ ...event, isFirst, key: `event ${(kept.rows += 1)}` });
      kept.items.length = Math.min(kept.items.length, SHOWN);
    }
    return kept;
  },

  draw: (view, { items, total }) => [
    counts(total > SHOWN ? `the newest ${SHOWN} of ${plural(total, "event")}` : plural(total, "event")),
    items.length > 0 && table("All that happened", COLUMNS, items.map(row), 3),
  ],
};

function row({ key, time, kind, action, group, node, type, revision, message, server, isFirst }) {
  if (kind in GAPS) {
    const text = kind === "lagged" && isFirst ? "the server keeps no earlier events" : GAPS[kind];
    return { key, kind: "gap", cells: ["–", kind, text, "–", "–", "–"] };
  }
  return {
    key,
    cells: [
      when(time),
      kind.replaceAll("_", " "),
      [action.replaceAll("_", " "), revision && ` revision ${revision}`],
      group ? link(pathOf("/ui/groups", group), group) : "–",
      node ? link(pathOf("/ui/nodes", node), node) : "–",
      clipped([type, message, server].filter(Boolean).join(": ")),
    ],
  };
}
