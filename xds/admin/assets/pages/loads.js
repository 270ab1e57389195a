// The load that clients report, by cluster.

import { get, pathOf, queryOf } from "../admin_api.js";
import { counts, link, plural, state, table, when } from "../dom.js";
import { hint, joined, missing, pagesOf, percent, rate } from "../words.js";

const PAGE = 100;
const COLUMNS = ["cluster", "requests per second", "failed", "dropped per second", "nodes", "groups", "reported"];
const BAD = 0.05; // of all tries

export const loads = {
  title: () => "Load",
  wants: () => false, // reports are no events

  read: ({ query, signal }) => get(`/load${queryOf({ limit: PAGE, page_token: query.page_token })}`, signal),

  draw({ query }, { items, reporting, partial, next_page_token: next }) {
    return [
      counts(
        plural(items.length, "cluster"),
        (query.page_token || next) && " on this page",
        `, reported every ${reporting.interval_s} s`,
      ),
      missing("Reports", partial),
      items.length
        ? table("Clusters", COLUMNS, items.map(row), 3)
        : hint("No node reports load. The command ", "xds bootstrap", " lets an Envoy report it."),
      pagesOf("/ui/load", { page_token: query.page_token }, next, `${PAGE} clusters`),
    ];
  },
};

function row(each) {
  const failed = each.failed_ratio;
  return {
    key: `${each.cluster} ${each.service_name}`,
    cells: [
      link(pathOf("/ui/load", each.cluster), each.cluster),
      rate(each.rps),
      failed >= BAD ? state("failed", percent(failed)) : percent(failed),
      rate(each.dropped_rps),
      each.nodes,
      joined(each.groups.map((group) => link(pathOf("/ui/groups", group), group))),
      when(each.reported),
    ],
  };
}
