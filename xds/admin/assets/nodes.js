// Nodes by types, live: after an event of the fleet the nodes are read again, at most once per REFRESH_MS.

import { calm, get, lines, tell } from "./admin_api.js";

const PAGE = 500;
const SHOWN_LIMIT = 1000; // nodes that are read; the filters by group and state find the others
const REFRESH_MS = 1000;
const REFRESH_LARGE_MS = 5000; // above LARGE nodes
const LARGE = 200;
const RECONNECT_MS = 2000;
const FILTERS = ["text", "group", "state"];
const KINDS = "push,rollback,group,nack,order,node,stream,ack,assignment,endpoints,config_entries";
const WORDS = { synced: "✓", pending: "…", nacked: "✗ NACK", orphaned: "? orphaned", not_subscribed: "–" };
const MEANINGS = {
  synced: "synced: the node has ACKed everything",
  pending: "pending: the node has not answered yet",
  nacked: "nacked: the node has rejected something",
  orphaned: "orphaned: no group matches the node, so it gets no updates",
  not_subscribed: "not subscribed: the node does not ask for this type",
};
const PILLS = {
  live: ["live", "Click to pause"],
  paused: ["paused", "Click to continue"],
  lost: ["no connection", "The server does not answer. The page tries again every two seconds"],
};

const byId = (id) => document.getElementById(id);
const state = { nodes: [], missing: [], more: false, paused: false, refresh: 0, reading: false, again: false };

function element(tag, text = "", className = "") {
  const made = document.createElement(tag);
  made.textContent = text; // never HTML: nodes choose their own names and messages
  if (className) made.className = className;
  return made;
}

// -- reading --------------------------------------------------------------------------------------------------------

async function readNodes() {
  const wanted = new URLSearchParams({ limit: PAGE });
  for (const name of ["group", "state"]) if (byId(name).value) wanted.set(name, byId(name).value.trim());
  const nodes = [];
  let token, missing;
  do {
    if (token) wanted.set("page_token", token);
    const page = await get(`/nodes?${wanted}`);
    nodes.push(...page.items);
    token = page.next_page_token;
    missing = page.partial ?? [];
  } while (token && nodes.length < SHOWN_LIMIT);
  return { nodes, missing, more: Boolean(token) };
}

async function refresh() {
  if (state.reading) {
    state.again = true;
    return;
  }
  state.reading = true;
  try {
    Object.assign(state, await readNodes());
    calm();
    draw();
  } catch (error) {
    tell(error, start);
  } finally {
    state.reading = false;
    if (state.again) schedule();
    state.again = false;
  }
}

function schedule() {
  if (state.paused || state.refresh || document.hidden) return;
  const wait = state.nodes.length > LARGE ? REFRESH_LARGE_MS : REFRESH_MS;
  state.refresh = setTimeout(() => {
    state.refresh = 0;
    refresh();
  }, wait);
}

async function follow() {
  for (;;) {
    try {
      const events = lines(`/events?kinds=${KINDS}`, undefined);
      for await (const event of events) {
        if (!state.paused) pill("live");
        if (event) schedule();
      }
    } catch (error) {
      if (error.asks) return tell(error, start);
    }
    pill("lost");
    await new Promise((done) => setTimeout(done, RECONNECT_MS));
    refresh();
  }
}

// -- showing --------------------------------------------------------------------------------------------------------

function pill(what) {
  byId("live").dataset.state = what;
  [byId("live").textContent, byId("live").title] = PILLS[what];
}

function shown() {
  const text = byId("text").value.trim().toLowerCase();
  const place = (node) => Object.values(node.locality ?? {}).join("/");
  const words = (node) => [node.id, node.cluster, node.group, place(node), node.user_agent].join(" ").toLowerCase();
  const order = new Intl.Collator("en", { numeric: true });
  return state.nodes.filter((node) => words(node).includes(text)).sort((a, b) => order.compare(a.id, b.id));
}

function typesInUse(nodes) {
  const used = new Set(nodes.flatMap((node) => Object.keys(node.types)));
  const usual = ["clusters", "endpoints", "listeners", "routes", "secrets"].filter((alias) => used.has(alias));
  return [...usual, ...[...used].filter((alias) => !usual.includes(alias)).sort()];
}

function draw() {
  const nodes = shown();
  const types = typesInUse(nodes);
  byId("columns").replaceChildren(...["node", "group", "revision", ...types, "user agent"].map((name) => element("th", name)));
  byId("rows").replaceChildren(...nodes.map((node) => row(node, types)));
  const connected = nodes.filter((node) => node.connected).length;
  const more = state.more ? `; only the first ${SHOWN_LIMIT} are shown: filter by group or state to see others` : "";
  const silent = state.missing.length ? `; without the nodes of servers that do not answer: ${state.missing.join(", ")}` : "";
  byId("count").textContent = `${connected} connected, ${nodes.length} in total${more}${silent}`;
  byId("empty").hidden = nodes.length > 0;
  byId("empty").textContent = FILTERS.some((name) => byId(name).value)
    ? "No node matches the filters."
    : "No node is connected. The command xds bootstrap prints a configuration that connects one.";
  remember();
}

function row(node, types) {
  const made = element("tr", "", node.connected ? "" : "gone");
  const name = element("button", node.id);
  name.type = "button";
  const first = element("td");
  first.append(name);
  const revisions = Object.values(node.types).map((type) => type.revision ?? 0);
  made.append(first, element("td", node.group || "–"), element("td", String(Math.max(0, ...revisions) || "–")));
  for (const alias of types) made.append(cell(node, node.types[alias]));
  made.append(element("td", node.user_agent));
  made.onclick = () => describe(node);
  return made;
}

function cell(node, type) {
  const what = !type ? "not_subscribed" : type.state;
  const made = element("td", WORDS[what] ?? what, what);
  made.title = type?.error ?? MEANINGS[what] ?? what;
  return made;
}

function describe(node) {
  byId("details-title").textContent = node.id;
  const body = byId("details-body");
  const place = ["region", "zone", "sub_zone"].map((part) => node.locality?.[part]).filter(Boolean).join("/");
  body.replaceChildren(
    facts({
      group: node.group || "none: no group matches",
      server: node.server,
      cluster: node.cluster,
      locality: place,
      "user agent": node.user_agent,
      connected: node.connected ? "yes" : `no; last seen ${node.last_seen}`,
      "first seen": node.first_seen,
      "last poll": node.polls?.last,
      streams: node.streams.map((stream) => `${stream.service} ${stream.variant} from ${stream.peer}`).join(", "),
    }),
    ...Object.entries(node.types).flatMap(([alias, type]) => describeType(alias, type)),
  );
  if (!byId("details").open) byId("details").showModal();
}

function describeType(alias, type) {
  const parts = [
    element("h2", `${alias}: ${type.state}`, type.state),
    facts({
      "version ACKed": type.version_acked,
      "version sent": type.version_sent === type.version_acked ? "" : type.version_sent,
      subscribed: type.subscribed_total > type.subscribed.length
        ? `${type.subscribed.join(", ")} and ${type.subscribed_total - type.subscribed.length} more`
        : type.subscribed.join(", "),
      missing: type.missing.join(", "),
      rejected: (type.guilty ?? []).join(", "),
      "in this state since": type.since,
    }),
  ];
  if (type.error) parts.push(element("pre", type.error));
  return parts;
}

function facts(values) {
  const list = element("dl");
  for (const [name, value] of Object.entries(values)) if (value) list.append(element("dt", name), element("dd", value));
  return list;
}

// -- the page -------------------------------------------------------------------------------------------------------

// The filters are part of the address, so that the page can be shared.
function remember() {
  const query = new URLSearchParams();
  for (const name of FILTERS) if (byId(name).value) query.set(name, byId(name).value);
  history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
}

function recall() {
  const query = new URLSearchParams(location.search);
  for (const name of FILTERS) byId(name).value = query.get(name) ?? "";
}

function start() {
  refresh();
  if (!state.following) state.following = follow().finally(() => { state.following = null; });
}

recall();
byId("filters").onsubmit = (event) => event.preventDefault();
byId("text").oninput = draw;
byId("group").onchange = refresh;
byId("state").onchange = refresh;
byId("live").onclick = () => {
  state.paused = !state.paused;
  pill(state.paused ? "paused" : "live");
  if (!state.paused) refresh();
};
document.addEventListener("visibilitychange", schedule);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !["INPUT", "SELECT"].includes(document.activeElement.tagName)) {
    event.preventDefault();
    byId("text").focus();
  }
});
start();
