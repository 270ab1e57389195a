// The load of one cluster over time, by the locality of its endpoints, and the shares that were decided.

import { find, pathOf, queryOf } from "../admin_api.js";
import { clock, drawChart } from "../chart.js";
import { choiceFilter } from "../filters.js";
import { commands, element, facts, link, plural, section, state, table, when } from "../dom.js";
import { joined, missing, percent, place, quoted, rate } from "../words.js";

const WINDOWS = [["", "2 minutes"], ["1h", "1 hour"]];
const SERIES = 12;
const LINES = 500; // pairs of localities
const GROUPS = 5;

export const load = {
  title: ({ params }) => `Load of ${params.cluster}`,
  above: () => "/ui/load",
  wants: (view, { kind }) => kind === "assignment",
  filters: () => [choiceFilter("window", "Window", WINDOWS)],

  async read({ params, query, signal }) {
    const path = pathOf("/load", params.cluster);
    const window = query.window || "2m";
    const [now, lines] = await Promise.all([
      find(`${path}${queryOf({ window: "60", limit: LINES })}`, signal),
      find(`${path}/series${queryOf({ window, by: "locality", limit: LINES })}`, signal),
    ]);
    const groups = now?.groups.slice(0, GROUPS) ?? [];
    const asked = queryOf({ cluster: params.cluster });
    const policyOf = (group) => find(pathOf("/groups", group, "assignments") + asked, signal);
    // A group that is deleted has none; its nodes may still report.
    const policies = (await Promise.all(groups.map(policyOf))).flatMap((found) => found?.items ?? []);
    return { now, lines, decided: policies };
  },

  draw({ params }, { now, lines, decided }) {
    if (!now || !lines) {
      return element("p", {}, "No client has reported load of this cluster lately. ", link("/ui/load", "All clusters"));
    }
    const over = byTarget(lines);
    const name = quoted(params.cluster);
    return [
      loadFacts(now),
      missing("Reports", now.partial),
      section(
        "Over time",
        element("div", { "data-key": "chart of requests", "data-own": true, "data-chart": "requests" }),
        element("div", { "data-key": "chart of errors", "data-own": true, "data-chart": "errors" }),
        figureTable(over),
      ),
      pairTable(now.localities),
      decided.map((each) => shareTable(each, decided.length > 1)),
      section("On the command line", commands(`xds load ${name}`, `xds load ${name} --by node`)),
    ];
  },

  drawn(view, { lines }) {
    if (!lines) return;
    const { times, targets } = byTarget(lines);
    for (const [what, values] of [["requests", "rps"], ["errors", "errors"]]) {
      const series = targets.map((target) => ({ name: target.name, values: target[values] }));
      const holder = document.querySelector(`[data-chart="${what}"]`);
      if (holder) drawChart(holder, `${what} per second by target locality`, lines.window_s, times, series);
    }
  },
};

function loadFacts(now) {
  return facts([
    ["requests per second", rate(now.rps)],
    ["failed or dropped", now.failed_ratio ? state("failed", percent(now.failed_ratio)) : percent(0)],
    ["in progress", String(now.in_progress)],
    ["reported by", plural(now.nodes, "node")],
    ["groups", joined(now.groups.map((group) => link(pathOf("/ui/groups", group), group)))],
    ["last report", when(now.reported)],
  ]);
}

// -- over time --------------------------------------------------------------------------------------------------------

// Per target the sums over all sources; beyond SERIES the smallest are one.
function byTarget({ items, step_s: stepS }) {
  const points = items[0]?.points ?? [];
  const found = new Map();
  for (const { locality, points } of items) {
    const name = place(locality);
    const target = found.get(name) ?? { name, rps: points.map(() => 0), errors: points.map(() => 0) };
    points.forEach((point, at) => {
      target.rps[at] += point.rps;
      target.errors[at] += point.errors / stepS;
    });
    found.set(name, target);
  }
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const ordered = [...found.values()].sort((a, b) => sum(b.rps) - sum(a.rps));
  const [shown, rest] = [ordered.slice(0, SERIES - 1), ordered.slice(SERIES - 1)];
  const together = (which) => points.map((_, at) => sum(rest.map((each) => each[which][at])));
  const others = { name: `${rest.length} others`, rps: together("rps"), errors: together("errors") };
  const targets = rest.length > 1 ? [...shown, others] : ordered;
  return { times: points.map(({ time }) => Date.parse(time) / 1000), targets };
}

function figureTable({ times, targets }) {
  const columns = ["time (UTC)", ...targets.flatMap(({ name }) => [`${name}: requests/s`, `${name}: errors/s`])];
  const rows = times.map((time, at) => {
    const text = clock(time);
    return { key: text, cells: [text, ...targets.flatMap(({ rps, errors }) => [rate(rps[at]), rate(errors[at])])] };
  });
  const values = { class: "scroll", tabindex: 0, role: "region", "aria-label": "Figures over time" };
  return element(
    "details",
    { "data-key": "figures" },
    element("summary", {}, "The figures as a table"),
    element("div", values, table("Figures over time", columns, rows.reverse(), 1)),
  );
}

// -- from where to where ----------------------------------------------------------------------------------------------

function pairTable(localities) {
  const rows = localities.map(({ source, locality, priority, rps, error_ratio: errors, share }) => {
    const [from, to, failover] = [place(source), place(locality), priority ? `failover ${priority}` : "–"];
    const cells = [from, to, failover, rate(rps), percent(errors), percent(share)];
    return { key: `${from} ${to} ${priority}`, cells };
  });
  const columns = ["from", "to", "priority", "requests per second", "errors", "share of all"];
  return table("In the last minute", columns, rows, 2);
}

// What traffic assignment wants, and what it got.
function shareTable({ group, decided, waits_for: waitsFor, sources, reasons }, isOneOfMany) {
  const rows = sources.flatMap(({ source, standing, allotments, wanted, demand_rps: demand }) =>
    allotments.map(({ locality, priority, share, real_share: real, real_rps: realRps }) => ({
      key: `${place(source)} ${place(locality)} ${priority}`,
      cells: [
        place(source),
        place(locality),
        percent(wanted.find((each) => place(each.locality) === place(locality))?.share ?? 0),
        priority ? `failover ${priority}` : percent(share),
        percent(real),
        realRps === null ? "–" : `${rate(realRps)} of ${rate(demand)}`,
        standing,
      ],
    })),
  );
  const columns = ["from", "to", "wanted share", "served share", "real share", "requests per second", "standing"];
  const why = [waitsFor && `; waits for ${waitsFor}`, ...reasons.map(({ detail }) => `; ${detail}`)];
  return [
    table(isOneOfMany ? `Traffic assignment of ${group}` : "Traffic assignment", columns, rows, 2),
    element("p", {}, "decided ", when(decided) ?? "not yet", why),
  ];
}
