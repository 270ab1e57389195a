// The services of the catalog, with the health of their instances.

import { get, pathOf, queryOf } from "../admin_api.js";
import { counts, link, plural, state, table, when } from "../dom.js";
import { hint, pagesOf } from "../words.js";

const PAGE = 100;
const OTHERS = ["warning", "critical", "draining", "held"];
const COLUMNS = ["service", "instances", "health", "sources", "assignments", "last change"];

export const services = {
  title: () => "Services",
  wants: (view, { kind }) => ["endpoints", "config_entries", "source"].includes(kind),

  read: ({ query, signal }) => get(`/services${queryOf({ limit: PAGE, page_token: query.page_token })}`, signal),

  draw(view, { items, next_page_token: next }) {
    return [
      counts(plural(items.length, "service"), (view.query.page_token || next) && " on this page"),
      items.length
        ? table("Services", COLUMNS, items.map(row), 3)
        : hint("No source has shown a service, and none is registered: ", "xds sources", " shows the sources."),
      pagesOf("/ui/services", { page_token: view.query.page_token }, next, `${PAGE} services`),
    ];
  },
};

function row(each) {
  const { service, instances, passing, sources } = each;
  const rest = OTHERS.filter((name) => each[name]).map((name) => `${each[name]} ${name}`);
  const kind = passing === instances ? "ok" : passing ? "warning" : "failed";
  const health = state(kind, [`${passing}/${instances} passing`, ...rest].join(", "));
  const name = link(pathOf("/ui/services", service), service);
  const changed = when(each.changed_at) ?? "–";
  return { key: service, cells: [name, instances, health, sources.join(", ") || "–", each.bindings, changed] };
}
