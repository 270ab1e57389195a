// A compiled discovery chain as a nested list. The input is Consul's JSON, so its fields have Consul's names.

import { pathOf } from "./admin_api.js";
import { element, link, plural } from "./dom.js";
import { health, instanceWords } from "./instances.js";

const INSTANCES = 20; // of one target
const DEFAULT_TIMEOUT = "5s";
const PATHS = { PathExact: "is", PathPrefix: "begins with", PathRegex: "matches" };
const VALUES = { Exact: "is", Prefix: "begins with", Suffix: "ends with", Regex: "matches" };

// The items of the list, from the first node on. `instances` are those of the catalog, by target; null where they are
// not known.
export function drawChain(chain, instances) {
  return nodeItem({ chain, instances, shown: new Set() }, chain.StartNode, "");
}

function nodeItem(of, key, before) {
  const node = of.chain.Nodes[key];
  const title = [before, element("strong", {}, node.Type), ` ${node.Name}`];
  if (of.shown.has(key)) return item(title, " (as above)");
  of.shown.add(key);
  if (node.Type === "router") return item(title, list(node.Routes.map((route, at) => routeItem(of, route, at))));
  if (node.Type === "splitter") return item(title, list(node.Splits.map((split) => splitItem(of, split))));
  return item(title, resolverWords(node), list(targetItems(of, node.Resolver)));
}

const item = (...content) => element("li", {}, content);
const list = (items) => items.length > 0 && element("ul", {}, items);

function routeItem(of, { Definition: definition = {}, NextNode: next }, at) {
  const destination = definition.Destination ?? {};
  const words = [
    destination.PrefixRewrite && `rewrites the path to ${destination.PrefixRewrite}`,
    destination.RequestTimeout && `timeout ${destination.RequestTimeout}`,
    destination.NumRetries && plural(destination.NumRetries, "retry", "retries"),
    ...headerWords(destination),
  ].filter(Boolean);
  const more = words.length > 0 && `: ${words.join(", ")}`;
  return item(`route ${at + 1}, ${matchWords(definition.Match?.HTTP ?? {})}`, more, list([nodeItem(of, next, "")]));
}

function matchWords({ PathPrefix: prefix, ...others }) {
  const http = prefix === "/" ? others : { PathPrefix: prefix, ...others }; // each path begins with it
  const said = [
    ...Object.entries(PATHS).map(([field, verb]) => http[field] && `path ${verb} ${http[field]}`),
    ...(http.Header ?? []).map((header) => `header ${header.Name} ${valueWords(header)}`),
    http.Methods?.length && `method ${http.Methods.join(" or ")}`,
    ...(http.QueryParam ?? []).map((parameter) => `query parameter ${parameter.Name} ${valueWords(parameter)}`),
  ];
  return said.filter(Boolean).join(" and ") || "any request";
}

function valueWords(match) {
  const found = Object.entries(VALUES).find(([field]) => match[field]);
  const words = found ? `${found[1]} ${match[found[0]]}` : "is there";
  return match.Invert ? `not: ${words}` : words;
}

function headerWords({ RequestHeaders: request, ResponseHeaders: response }) {
  return [request && "changes request headers", response && "changes response headers"].filter(Boolean);
}

function splitItem(of, { Weight: weight = 0, Definition: definition = {}, NextNode: next }) {
  const words = headerWords(definition);
  return nodeItem(of, next, `${weight} %${words.length ? ` (${words.join(", ")})` : ""}: `);
}

function resolverWords({ Resolver: { ConnectTimeout: timeout, RequestTimeout: requestNs }, LoadBalancer: balancer }) {
  const words = [
    timeout && timeout !== DEFAULT_TIMEOUT && `connect timeout ${timeout}`,
    requestNs && `request timeout ${requestNs / 1e9} s`,
    balancer?.Policy && `load balancer ${balancer.Policy}`,
  ].filter(Boolean);
  return words.length > 0 && `: ${words.join(", ")}`;
}

function targetItems(of, resolver) {
  const failover = resolver.Failover?.Targets ?? [];
  const others = failover.map((id, at) => targetItem(of, id, `failover ${at + 1},`));
  return [targetItem(of, resolver.Target, "target"), ...others];
}

function targetItem({ chain, instances }, id, what) {
  const target = chain.Targets[id];
  const subset = target.Subset ?? {};
  const words = [
    target.ServiceSubset && `subset ${target.ServiceSubset}${subset.Filter ? ` (${subset.Filter})` : ""}`,
    subset.OnlyPassing && "only passing instances",
    target.External && `external, SNI ${target.SNI}`,
    target.Peer && `peer ${target.Peer}`,
    target.MeshGateway?.Mode && `mesh gateway ${target.MeshGateway.Mode}`,
  ].filter(Boolean);
  const found = instances.get(id);
  return item(
    `${what} `,
    target.Service === chain.ServiceName ? id : link(pathOf("/ui/services", target.Service), id),
    words.length > 0 && `: ${words.join(", ")}`,
    found ? instanceList(found) : " (instances not known here)",
  );
}

function instanceList(found) {
  if (!found.length) return " (no instance)";
  const items = found.slice(0, INSTANCES).map((each) => item("instance ", instanceWords(each), " ", health(each)));
  const rest = found.length - INSTANCES;
  return list([...items, rest > 0 ? item(`and ${plural(rest, "more instance")}`) : ""].filter(Boolean));
}
