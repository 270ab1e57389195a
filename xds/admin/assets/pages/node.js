// One node: what it is, what it runs and since when, what it waits for, and what happened to it.

import { find, pathOf } from "../admin_api.js";
import { commands, counts, element, facts, link, missing, plural, section, state, table, when } from "../dom.js";
import { place } from "../words.js";
import { revisionOf } from "./nodes.js";

const TYPES = ["type", "state", "since", "revision", "version ACKed", "subscribed"];
const TIMELINE = ["when", "what", "type", "revision", "detail"];

export const node = {
  title: ({ params }) => params.id,
  above: () => "/ui/nodes",
  wants: ({ params, kept }, event) => event.node === params.id || (!event.node && event.group === kept.group),

  async read({ params, kept, signal }) {
    const found = await find(pathOf("/nodes", params.id), signal);
    kept.group = found?.group;
    return { found, timeline: null };
  },

  draw: ({ params }, { found, timeline }) => (found ? describe(found, timeline) : gone(params.id)),
};

function gone(id) {
  return [
    element("p", {}, `No node ${id} is connected, and none was recently. The server forgets a node an hour after its last stream.`),
    element("p", {}, link("/ui/nodes", "All nodes"), " · ", link(`/ui/events?node=${encodeURIComponent(id)}&since=24h`, "Its events")),
  ];
}

function describe(node, timeline) {
  return [
    counts(state(node.connected ? "connected" : "disconnected"), node.connected ? "" : [" since ", when(node.last_seen)]),
    missing(node.partial),
    facts([
      ["group", node.group || "none: no group matches the node"],
      ["revision", revisionOf(node) || ""],
      ["rollout", { head: "in the wave", base: "outside of the wave" }[node.line] ?? ""],
      ["cluster", node.cluster],
      ["locality", place(node.locality)],
      ["client", node.user_agent],
      ["server", node.server],
      ["admin port", node.admin],
      ["first seen", when(node.first_seen)],
      ["last poll", node.polls && when(node.polls.last)],
    ]),
    Object.entries(node.types).filter(([, type]) => type.error).map(refused),
    Object.keys(node.types).length > 0 && table("Types", TYPES, Object.entries(node.types).map(typeRow)),
    section("Waiting", node.held.map(held)),
    section("Lingering", node.lingering.map(lingering), notShown(node)),
    section("Streams", node.streams.map(stream)),
    timeline && table("Timeline", TIMELINE, timeline.items.map(timelineRow)),
    section("On the command line", commands(
      `xds describe node ${quoted(node.id)}`,
      `xds explain ${quoted(node.id)} TYPE/NAME`,
      `xds config diff ${quoted(node.id)}`,
    )),
  ];
}

// As a shell takes it.
function quoted(text) {
  return /^[\w.,:@/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

function refused([alias, type]) {
  const names = (type.guilty ?? []).join(", ");
  return section(`${alias}: NACKed`, element("p", {}, when(type.since), names && `, rejects ${names}`), element("pre", { tabindex: 0, "aria-label": "NACK" }, type.error));
}

function typeRow([alias, type]) {
  const more = type.subscribed_total - type.subscribed.filter((name) => name !== "*").length;
  const missing = type.missing.length ? `; missing: ${type.missing.join(", ")}` : "";
  const names = type.subscribed.map((name) => (name === "*" ? "all" : name)).join(", ");
  return {
    key: alias,
    cells: [alias, state(type.state), when(type.since), type.revision ?? "–", type.version_acked || "–",
      `${names}${more > 0 ? ` and ${more} more` : ""}${missing}`],
  };
}

const named = ({ type, name }) => `${type}/${name}`;

function held(each) {
  const more = each.count - each.resources.length;
  const clusters = each.any_cluster ? ["all new clusters"] : each.waits_for.map((name) => `cluster ${name}`);
  const others = [...clusters, ...each.waits_for_others.map(named)];
  const what = `${each.resources.map(named).join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
  return element("p", {}, `${what}: not sent yet, waits for ${others.join(", ") || "the node"}.`);
}

function lingering(each) {
  const more = each.count - each.names.length;
  const what = `${each.type}/${each.names.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
  const until = each.until ? ["; it is removed ", when(each.until)] : "; it is removed once the node has ACKed all that may use it";
  return element("p", {}, `${what}: removed by revision ${each.revision}, kept for connections that may use it`, until, ".");
}

function notShown(node) {
  const more = node.lingering_total - node.lingering.reduce((sum, each) => sum + each.count, 0);
  return more > 0 && element("p", {}, `And ${plural(more, "resource")} more.`);
}

function stream(each) {
  const what = [each.service, each.variant, each.api].filter(Boolean).join(" ");
  const reports = each.load && `, ${plural(each.load.reports, "report")} of load`;
  const linkerd = each.linkerd && `, ${each.linkerd.method} ${each.linkerd.authority}: ${each.linkerd.source}`;
  return element("p", {}, `${what} from ${each.peer}`, each.principal && ` as ${each.principal}`, reports, linkerd, ", opened ", when(each.opened));
}

function timelineRow({ time, kind, group, type, revision, text }, at) {
  return { key: `${time} ${at}`, cells: [when(time), kind, type ?? "–", revision ?? "–", [group, text].filter(Boolean).join(": ") || "–"] };
}
