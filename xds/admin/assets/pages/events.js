// What happens on the server, newest first.

import { lines, pathOf, queryOf } from "../admin_api.js";
import { counts, element, link, plural, table, when } from "../dom.js";
import { choiceFilter, textFilter } from "../filters.js";

const SHOWN = 200;
const KINDS = ["push", "rollback", "rollout", "group", "config_entries", "nack", "order", "watch", "source", "node", "stream", "assignment", "endpoints", "auth", "store"];

export const events = {
  title: () => "Events",
  above: () => "/",

  filters: () => [
    choiceFilter("kinds", "Kind", [["", "all"], ...KINDS.map((kind) => [kind, kind.replaceAll("_", " ")])]),
    textFilter("group", "Group", { hint: "The exact name of a group", size: 12 }),
    textFilter("node", "Node", { hint: "The exact id of a node", size: 16 }),
    choiceFilter("since", "Since", [["", "1 hour ago"], ["10m", "10 minutes ago"], ["24h", "a day ago"], ["7d", "a week ago"]]),
  ],

  // The first time all since the chosen time, then what came after the last one.
  async read({ query, kept, signal }) {
    kept.items ??= [];
    kept.total ??= 0;
    const { kinds, group, node, since } = query;
    const after = kept.last ? { last_event_id: kept.last } : { since: since || "1h" };
    for await (const event of lines(`/events${queryOf({ kinds, group, node, follow: "false", ...after })}`, signal)) {
      if (!event) continue;
      kept.total += 1;
      kept.last = event.id ?? kept.last;
      kept.items.unshift({ ...event, key: `${event.server ?? ""} ${event.id ?? event.next}` });
      kept.items.length = Math.min(kept.items.length, SHOWN);
    }
    return kept;
  },

  draw: (view, { items, total }) => [
    counts(total > items.length ? `The newest ${items.length} of ${plural(total, "event")}` : plural(total, "event")),
    items.length > 0 && table("Events", ["when", "kind", "what", "group", "node", "detail"], items.map(row)),
  ],
};

function row(event) {
  if (event.kind === "lagged") return { key: event.key, kind: "nacked", cells: ["–", "lagged", "–", "–", "–", "Events are missing here: the server has dropped them."] };
  if (event.kind === "partial") return { key: event.key, kind: "nacked", cells: ["–", "partial", "–", "–", "–", event.message ?? "Servers do not answer."] };
  const { time, kind, action, group, node, type, revision, message } = event;
  return {
    key: event.key,
    cells: [
      when(time),
      kind.replaceAll("_", " "),
      [action, revision && ` revision ${revision}`],
      group || "–",
      node ? link(pathOf("/ui/nodes", node), node) : "–",
      [type, message].filter(Boolean).join(": ") || "–",
    ],
  };
}
