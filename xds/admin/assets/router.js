// The shell of all pages: it finds the page of the address, reads and draws it, and follows links without leaving the
// document. docs/internals/pages.md shows how to add a page. A page is a module in `pages/` with one object:
//
//   title(view)          the heading, and the title of the tab
//   read(view)           what the page shows, read from the API with `view.signal`; again when something happened
//   draw(view, data)     elements for it, in lists of any depth; only what differs is changed (`show` in dom.js)
//   filters(view, data)  optional: fields above the page, from filters.js. Their values are in the address; `data` is
//                        null before the first answer
//   drawn(view, data)    optional: called once it is shown, for an element with `data-own`, such as a chart
//   wants(view, event)   optional: whether an event of the server concerns the page; without it all do
//   above(view)          optional: the address of the list that the page belongs to, for Escape
//
// A view is one address:
//   params               names in the path, decoded: `/ui/nodes/:id` gives `params.id`
//   query                the values in the address: `query.text`; "" where there is none
//   kept                 an object for the page's own use while the address stays; lost with it
//   set(values)          changes values of the address, without an entry in the history, and reads again
//   go(href)             another address, with an entry in the history
//   again()              reads now, such as after a change
//   fail(error)          shows why a change failed

import { calm, tell } from "./admin_api.js";
import { element, link, show } from "./dom.js";
import { drawFilters } from "./filters.js";
import { drawNavigation } from "./navigation.js";
import { Refresh } from "./refresh.js";
import { difference } from "./pages/difference.js";
import { events } from "./pages/events.js";
import { group } from "./pages/group.js";
import { groups } from "./pages/groups.js";
import { load } from "./pages/load.js";
import { loads } from "./pages/loads.js";
import { node } from "./pages/node.js";
import { nodes } from "./pages/nodes.js";
import { overview } from "./pages/overview.js";
import { service } from "./pages/service.js";
import { services } from "./pages/services.js";

const PAGES = [
  ["/", overview],
  ["/ui/nodes", nodes],
  ["/ui/nodes/:id", node],
  ["/ui/groups", groups],
  ["/ui/groups/:group", group],
  ["/ui/groups/:group/diff", difference],
  ["/ui/load", loads],
  ["/ui/load/:cluster", load],
  ["/ui/services", services],
  ["/ui/services/:service", service],
  ["/ui/events", events],
];

const NOWHERE = {
  title: () => "No such page",
  read: async () => ({}),
  draw: () => element("p", {}, "There is no page at this address. ", link("/", "Overview")),
};

const byId = (id) => document.getElementById(id);
let view, page, turn;

function matched(pattern, path) {
  const [wanted, given] = [pattern.split("/"), path.split("/")];
  const params = {};
  const fits = wanted.length === given.length && wanted.every((part, at) => {
    if (!part.startsWith(":")) return part === given[at];
    try {
      params[part.slice(1)] = decodeURIComponent(given[at]);
    } catch {
      return false; // not UTF-8
    }
    return given[at] !== "";
  });
  return fits ? params : null;
}

function pageAt(path) {
  for (const [pattern, found] of PAGES) {
    const params = matched(pattern, path);
    if (params) return [found, params];
  }
  return [NOWHERE, {}];
}

const valueOf = { get: (values, name) => values.get(name) ?? "" };

function viewAt(params) {
  const abort = new AbortController();
  return {
    params,
    query: new Proxy(new URLSearchParams(location.search), valueOf),
    kept: {},
    signal: abort.signal,
    abort,
    set,
    go,
    again: () => refresh.begin(),
    fail: (error) => tell(error, () => refresh.begin()),
  };
}

// Reads and draws the view; whether it may be read again.
async function read() {
  const of = view, ours = (turn = Symbol("turn"));
  try {
    const data = await page.read(of);
    if (ours !== turn) return true; // another read has begun meanwhile, of this view or another
    calm();
    drawFilters(byId("filters"), of, page.filters?.(of, data) ?? []);
    show(byId("content"), page.draw(of, data));
    name(of);
    page.drawn?.(of, data);
    return true;
  } catch (error) {
    if (ours !== turn || error.name === "AbortError") return true;
    tell(error, () => refresh.begin());
    if (error.asks) show(byId("content")); // what it showed may no longer be read
    document.querySelector("#content > .hint")?.remove(); // nothing was read
    if (error.asks) show(byId("filters"));
    return !error.asks;
  }
}

const refresh = new Refresh(read, (event) => page.wants?.(view, event) ?? true);

function name(of) {
  const title = page.title(of);
  byId("title").textContent = title;
  document.title = `${title} · xds-server`;
}

// Shows the page of the address.
function open() {
  view?.abort.abort();
  const [found, params] = pageAt(location.pathname);
  page = found;
  view = viewAt(params);
  calm();
  drawNavigation(location.pathname);
  name(view);
  byId("filters").replaceChildren();
  drawFilters(byId("filters"), view, page.filters?.(view, null) ?? []);
  byId("content").replaceChildren(element("p", { class: "hint" }, "Reading …"));
  return refresh.begin();
}

// Values that change are replaced in place: the field that has the focus keeps it.
function set(values) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(values)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  history.replaceState(history.state, "", query.size ? `?${query}` : location.pathname);
  const kept = view;
  kept.abort.abort();
  view = viewAt(kept.params);
  refresh.begin();
}

async function go(href) {
  history.replaceState({ ...history.state, scroll: scrollY }, "");
  history.pushState({ from: location.pathname }, "", href);
  scrollTo(0, 0);
  byId("title").focus({ preventScroll: true });
  await open();
}

// -- links, keys and the history --------------------------------------------------------------------------------------

document.addEventListener("click", (event) => {
  const anchor = event.target.closest?.("a[href]");
  if (!anchor || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const isOurs = anchor.origin === location.origin && pageAt(anchor.pathname)[0] !== NOWHERE;
  const isInPage = anchor.getAttribute("href").startsWith("#");
  if (!isOurs || isInPage || anchor.target || anchor.hasAttribute("download")) return;
  event.preventDefault();
  go(anchor.href);
});

history.scrollRestoration = "manual";
window.addEventListener("popstate", async (event) => {
  await open();
  scrollTo(0, event.state?.scroll ?? 0);
});

document.addEventListener("keydown", (event) => {
  const isTyping = ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement.tagName);
  const field = byId("filters").querySelector("input");
  if (event.key === "/" && !isTyping && field) {
    event.preventDefault();
    field.focus();
  } else if (event.key === "Escape" && document.activeElement.form === byId("filters")) {
    document.activeElement.blur();
  } else if (event.key === "Escape" && !isTyping && page.above && !document.querySelector("dialog[open]")) {
    leave(page.above(view));
  }
});

// To the list above the page, as it was where the reader comes from there.
function leave(above) {
  if (history.state?.from === above) history.back();
  else go(above);
}

document.addEventListener("submit", (event) => event.preventDefault());
open();
