// The services of the catalog, with the health of their instances.

import { get, pathOf, queryOf } from "../admin_api.js";
import { counts, element, link, plural, state, table, when } from "../dom.js";

const PAGE = 100;

export const services = {
  title: () => "Services",
  wants: (view, { kind }) => ["endpoints", "config_entries", "source"].includes(kind),

  read: ({ query, signal }) => get(`/services${queryOf({ limit: PAGE, page_token: query.page_token })}`, signal),

  draw(view, { items, next_page_token: next }) {
    return [
      counts(plural(items.length, "service"), (view.query.page_token || next) && " on this page"),
      items.length
        ? table("Services", ["service", "instances", "health", "sources", "assignments", "last change"], items.map(row), 3)
        : element("p", {}, "No source has shown a service, and none is registered. The command xds sources shows the sources."),
      element("p", {}, next && link(`/ui/services${queryOf({ page_token: next })}`, "more services")),
    ];
  },
};

function row({ service, instances, passing, critical, warning, draining, held, sources, bindings, changed_at: changed }) {
  const rest = [warning && `${warning} warning`, critical && `${critical} critical`, draining && `${draining} draining`, held && `${held} held`];
  const words = [`${passing}/${instances} passing`, ...rest.filter(Boolean)].join(", ");
  const kind = passing === instances ? "ok" : passing ? "warning" : "failed";
  return { key: service, cells: [link(pathOf("/ui/services", service), service), instances, state(kind, words), sources.join(", ") || "–", bindings, when(changed) ?? "–"] };
}
