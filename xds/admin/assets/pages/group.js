// One group: what it is served, how far its nodes are, its rollout, and its revisions.

import { find, get, pathOf, queryOf } from "../admin_api.js";
import { choiceFilter } from "../filters.js";
import { clipped, commands, element, facts, link, plural, section, state, table, when } from "../dom.js";
import { hint, joined, LINES, missing, pagesOf, who } from "../words.js";
import { drawRollout, planWords } from "../rollout.js";

const REVISIONS = 25;
const NACKS = 20;
const NAMES = 200;
const EXAMPLES = 3;
const COMMANDS = ["status", "history", "undo"];
const HINT = "Leave out those that changed only endpoints";
const CHANGES = [["", "all"], ["false", "of configuration"]];

export const group = {
  title: ({ params }) => `Group ${params.group}`,
  above: () => "/ui/groups",
  wants: ({ params }, event) => !event.group || event.group === params.group,
  filters: () => [choiceFilter("endpoints", "Revisions", CHANGES, { hint: HINT })],

  async read({ params, query, signal }) {
    const path = pathOf("/groups", params.group);
    const asked = queryOf({ limit: REVISIONS, page_token: query.page_token, endpoints: query.endpoints });
    const [present, progress, history, nacks, nodes, caller] = await Promise.all([
      find(path, signal),
      find(`${path}/rollout`, signal),
      find(`${path}/revisions${asked}`, signal),
      get(`/nacks${queryOf({ group: params.group, state: "open", by: "message", limit: NACKS })}`, signal),
      get(`/nodes${queryOf({ group: params.group, limit: 1, counts: "true" })}`, signal), // those of all servers
      get("/whoami", signal),
    ]);
    const names = query.type && present?.revision ? await namesOf(path, present.revision, query.type, signal) : null;
    return { present, progress, history, nacks, nodes, caller, names };
  },

  draw(view, { present, progress, history, nacks, nodes, caller, names }) {
    const { group } = view.params;
    const revisions = history?.items ?? [];
    if (!present && !revisions.length) {
      return element("p", {}, "There is no such group. ", link("/ui/groups", "All groups"));
    }
    return [
      !present && element("p", {}, "The group is deleted. Its revisions stay, and a roll-back brings it back."),
      present && presentFacts({ ...present, nodes: nodes.counts.connected }),
      missing("Nodes and NACKs", nodes.partial),
      progress?.state && drawRollout(view, group, progress, caller),
      nacks.items.length > 0 && nackTable(nacks.items),
      present?.revision > 0 && resourceTable(view, present, progress),
      names && nameList(group, view.query.type, names),
      revisionTable(view, present?.revision ?? revisions[0].revision, history),
      section("On the command line", commands(...COMMANDS.map((verb) => `xds rollout ${verb} ${group}`))),
    ];
  },
};

function presentFacts({ group, revision, nodes, selector, priority, rollout, ...last }) {
  return facts([
    ["revision", revision || "none: the group has settings alone"],
    ["changed", revision > 0 && [when(last.time), " by ", who(last), last.message && `: ${last.message}`]],
    ["nodes", link(`/ui/nodes${queryOf({ group })}`, `${plural(nodes, "node")} connected`)],
    ["selector", selector && [element("code", {}, selector), priority ? `, priority ${priority}` : ""]],
    ["pushes go to", rollout ? planWords(rollout) : "all nodes at once"],
  ].filter(([, said]) => said));
}

function nackTable(items) {
  const rows = items.map(({ id, message, type, guilty, names, nodes = [], nodes_total: total, first }) => ({
    key: `nack-${id}`,
    cells: [
      element("span", { class: "message", title: message }, message || "no message"),
      type,
      clipped((guilty.length ? guilty : names).slice(0, EXAMPLES).join(", ")),
      [joined(nodes.slice(0, EXAMPLES).map(nodeLink)), total > EXAMPLES && ` and ${total - EXAMPLES} more`],
      when(first),
    ],
  }));
  return table("Open NACKs", ["message", "type", "resources", "nodes", "since"], rows, 1);
}

const nodeLink = (node) => link(pathOf("/ui/nodes", node), node);

// -- resources --------------------------------------------------------------------------------------------------------

function resourceTable({ query }, { group, resources, versions }, progress) {
  const aliases = Object.keys(resources).sort();
  const rows = aliases.map((alias) => {
    const href = pathOf("/ui/groups", group) + queryOf({ type: query.type === alias ? "" : alias });
    const toggle = link(href, alias, { "aria-expanded": String(query.type === alias) });
    const count = plural(resources[alias], "resource");
    const acked = ackWords(progress?.types[alias], progress?.base);
    return { key: alias, cells: [toggle, count, acked, versions[alias] ?? "–"] };
  });
  return table("Resources", ["type", "resources", "nodes", "version"], rows, 3);
}

function ackWords(counts, base) {
  if (!counts) return "–";
  const { synced, pending, nacked, at_base: outside } = counts;
  const all = synced + pending + nacked;
  if (!all) return state("not_subscribed", "no node asks for it");
  const worst = nacked ? "nacked" : pending ? "pending" : "synced";
  const others = outside > 0 && `${outside} of them the version of revision ${base}`;
  const more = [others, nacked && `${nacked} NACKed`, pending && `${pending} pending`].filter(Boolean).join(", ");
  return state(worst, `${synced}/${all} ACKed${more && `, ${more}`}`);
}

// The comparison with nothing has the names without the contents.
async function namesOf(path, revision, type, signal) {
  const found = await get(`${path}/revisions/${revision}/diff?from=0&contents=false`, signal);
  return found.changes[type]?.added ?? [];
}

function nameList(group, type, names) {
  const rest = names.length - NAMES;
  const all = rest > 0 && hint(`and ${rest.toLocaleString("en")} more: `, `xds get ${type} -g ${group}`);
  const items = names.slice(0, NAMES).map((name) => element("li", {}, name));
  return section(`Names of ${type}`, element("ul", { class: "names" }, items), all);
}

// -- revisions --------------------------------------------------------------------------------------------------------

const KINDS = {
  push: () => "push",
  rollback: ({ content_of: of }) => `roll-back to ${of}`,
  restore: () => "restored",
  delete: () => "deleted",
  lowered: () => "lowered",
};

function revisionTable({ params, query }, present, history) {
  const row = (each) => ({ key: `revision-${each.revision}`, cells: revisionCells(params.group, each, present) });
  const rows = (history?.items ?? []).map(row);
  const kept = { endpoints: query.endpoints, page_token: query.page_token };
  return [
    table("Revisions", ["revision", "what", "when", "who", "why", "outcome", "compare"], rows, 3),
    pagesOf(pathOf("/ui/groups", params.group), kept, history?.next_page_token, `${REVISIONS} revisions`),
  ];
}

function revisionCells(group, each, present) {
  const { revision, endpoints_only: isEndpoints, content } = each;
  const compare = (from, text, label) =>
    link(pathOf("/ui/groups", group, "diff") + queryOf({ from, to: revision }), text, { "aria-label": label });
  const before = String(revision - 1); // also where it is 0
  const back = revision !== present && content;
  return [
    revision,
    [(KINDS[each.kind] ?? (() => each.kind))(each), isEndpoints && ", endpoints only"],
    when(each.time),
    who(each),
    element("span", { class: "message", title: each.message }, each.message || "–"),
    outcome(each, present),
    [
      compare(before, "changes", `changes of revision ${revision}`),
      back && [" · ", compare(present, "roll back …", `roll back to revision ${revision} …`)],
    ],
  ];
}

function outcome({ revision, line, undone_by: undone, refused, nodes, content, deleted }, present) {
  const said = [
    revision === present && state("connected", "newest"),
    line === "head" && state("running", "being rolled out"),
    line === "base" && state("connected", `served ${LINES.base}`),
    refused > 0 && state("nacked", `rejected by ${refused} of ${plural(nodes, "node")}`),
    undone > 0 && state("rolled_back", `undone by ${undone}`),
    !content && !deleted && "content deleted",
  ].filter(Boolean);
  return said.length ? joined(said) : "–";
}
