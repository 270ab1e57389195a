// One node: what it is, what it runs and since when, what it waits for, and what happened to it.

import { find, pathOf, queryOf } from "../admin_api.js";
import {
  clipped, commands, counts, element, facts, link, plural, section, span, state, table, when,
} from "../dom.js";
import { LINES, missing, place, quoted } from "../words.js";
import { revisionOf } from "./nodes.js";

const SHOWN = 50; // moments of the timeline; the command line has more
const TIMELINE = ["when", "what", "revision", "type", "detail"];
const TYPES = ["type", "state", "since", "revision", "version ACKed", "subscribed"];

export const node = {
  title: ({ params }) => params.id,
  above: () => "/ui/nodes",
  wants: ({ params, kept }, event) => event.node === params.id || (!event.node && event.group === kept.group),

  async read({ params, kept, signal }) {
    const path = pathOf("/nodes", params.id);
    const [found, timeline] = await Promise.all([find(path, signal), find(`${path}/timeline?limit=${SHOWN}`, signal)]);
    kept.group = found?.group;
    return found && { found, timeline: timeline ?? { items: [] } };
  },

  draw: ({ params }, data) => (data ? describe(data.found, data.timeline) : gone(params.id)),
};

function eventsOf(id) {
  return link(`/ui/events${queryOf({ node: id, since: "24h" })}`, "Its events");
}

function gone(id) {
  const why = "and none was recently. The server forgets a node an hour after its last stream.";
  return [
    element("p", {}, `No node ${id} is connected, ${why}`),
    element("p", {}, link("/ui/nodes", "All nodes"), " · ", eventsOf(id)),
  ];
}

function describe(node, timeline) {
  const { group, line, polls } = node;
  const types = Object.entries(node.types);
  return [
    counts(state(node.connected ? "connected" : "disconnected"), !node.connected && [" ", when(node.last_seen)]),
    missing("Streams", node.partial),
    facts([
      ["group", group ? link(pathOf("/ui/groups", group), group) : "none: no group matches the node"],
      ["revision", revisionOf(node) || ""],
      ["rollout", LINES[line] ?? ""],
      ["cluster", node.cluster],
      ["locality", place(node.locality)],
      ["client", node.user_agent],
      ["server", node.server],
      ["admin port", node.admin],
      ["first seen", when(node.first_seen)],
      ["last poll", polls && when(polls.last)],
      ["events", eventsOf(node.id)],
    ]),
    types.filter(([, type]) => type.error).map(refused),
    types.length > 0 && table("Types", TYPES, types.map(typeRow)),
    section("Waiting", node.held.map(held)),
    section("Lingering", node.lingering.map(lingering), notShown(node)),
    timeline.items.length > 0 && table("Timeline", TIMELINE, timeline.items.map(moment)),
    timeline.truncated && element("p", { class: "quiet" }, "Earlier moments are not kept, or not shown."),
    section("Streams", node.streams.map(stream)),
    section("On the command line", commands(...forTerminal(quoted(node.id)))),
  ];
}

function forTerminal(id) {
  const commandNames = ["describe node", "explain", "config", "timeline", "nacks --node"];
  return commandNames.map((name) => `xds ${name} ${id}`);
}

function refused([alias, { since, guilty, error }]) {
  return section(
    `${alias}: NACKed`,
    element("p", {}, when(since), guilty?.length > 0 && `, rejects ${guilty.join(", ")}`),
    element("pre", { tabindex: 0, "aria-label": `NACK of ${alias}` }, error),
  );
}

function typeRow([alias, type]) {
  return {
    key: alias,
    cells: [
      alias,
      state(type.state),
      when(type.since),
      type.revision ?? "–",
      type.version_acked || "–",
      [subscribed(type), unexpressed(type)],
    ],
  };
}

function subscribed(type) {
  const names = type.subscribed.filter((name) => name !== "*");
  const all = names.length < type.subscribed.length ? ["all"] : [];
  const absent = type.missing.length > 0 ? `; missing: ${type.missing.join(", ")}` : "";
  return `${listed([...all, ...names], type.subscribed_total + all.length)}${absent}`;
}

function unexpressed(type) {
  const found = type.unexpressed?.map(({ name, problem }) => `${name} (${problem})`) ?? [];
  return found.length > 0 && `; the v2 API cannot express ${found.join(", ")}`;
}

// Some names, and how many more there are.
function listed(names, total) {
  const more = total - names.length;
  return `${names.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}

const named = ({ type, name }) => `${type}/${name}`;

function held({ resources, count, waits_for: clusters, any_cluster: isAny, waits_for_others: others }) {
  const awaited = [...(isAny ? ["all new clusters"] : clusters.map((name) => `cluster ${name}`)), ...others.map(named)];
  const what = listed(resources.map(named), count);
  return element("p", {}, `${what}: not sent yet, waits for ${awaited.join(", ") || "the node"}.`);
}

function lingering({ type, names, count, revision, until }) {
  const what = `${listed(names.map((name) => `${type}/${name}`), count)}: removed by revision ${revision}`;
  const end = until ? ["goes ", when(until)] : "goes once the node has ACKed all that may refer to it";
  return element("p", {}, what, ", kept for connections that may use it, ", end, ".");
}

function notShown(node) {
  const more = node.lingering_total - node.lingering.reduce((sum, each) => sum + each.count, 0);
  return more > 0 && element("p", {}, `And ${plural(more, "resource")} more.`);
}

function stream({ service, variant, api, peer, principal, load, linkerd, opened }) {
  const parts = [
    `${[service, variant, api].filter(Boolean).join(" ")} from ${peer}`,
    principal && `as ${principal}`,
    load && plural(load.reports, "report"),
    linkerd && `${linkerd.method} of ${linkerd.authority}: ${linkerd.source}`,
    linkerd?.skipped.length > 0 && `cannot be expressed: ${linkerd.skipped.join(", ")}`,
  ];
  return element("p", {}, parts.filter(Boolean).join(", "), ", opened ", when(opened));
}

// What happened: a push in step stands once for the group, the rest is of the node alone.
const HAPPENED = {
  sent: () => "was sent",
  pushed: () => "pushed, not sent then",
  line: ({ line }) => (line === "head" ? "got into the wave" : "left the wave"),
  acked: ({ late_s: late }) => `ACKed after ${span(late)}`,
  nacked: ({ count }) => state("nacked", count > 1 ? `NACKed ${count} times` : "NACKed"),
  resolved: () => state("synced", "NACK resolved"),
  moved: ({ previous, group }) => `moved from ${previous || "no group"} to ${group || "no group"}`,
  orphaned: () => state("orphaned", "no group matches"),
};

function moment(each, at) {
  const { time, kind, revision, type, text, by, names, server } = each;
  const detail = [names?.join(", "), text, by && `by ${by}`, server && `at ${server}`].filter(Boolean).join("; ");
  const cells = [
    when(time),
    HAPPENED[kind]?.(each) ?? kind,
    revision ?? "–",
    type ?? "–",
    clipped(detail, kind === "nacked" ? "why" : ""),
  ];
  return { key: `${time} ${kind} ${type ?? ""} ${at}`, cells };
}
