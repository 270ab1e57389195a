// The way of requests to one service: router, splitter, resolver, targets, and the instances of each target.

import { ApiError, find, get, headers, pathOf, queryOf } from "../admin_api.js";
import { drawChain } from "../chain.js";
import { commands, counts, element, facts, link, plural, section, table, when } from "../dom.js";
import { health, instanceWords } from "../instances.js";
import { place, quoted } from "../words.js";

const TARGETS = 50; // whose instances are read
const INSTANCES = 200;

export const service = {
  title: ({ params }) => `Service ${params.service}`,
  above: () => "/ui/services",
  wants: (view, { kind }) => ["endpoints", "config_entries", "source"].includes(kind),

  async read({ params, signal }) {
    const [answer, catalog] = await Promise.all([
      get(pathOf("/discovery-chains", params.service), signal).catch(brokenChain),
      find(pathOf("/services", params.service), signal),
    ]);
    const datacenters = await consul("/catalog/datacenters", signal);
    const targets = Object.values(answer.Chain?.Targets ?? {}).slice(0, TARGETS);
    const found = targets.map(async (target) => [target.ID, await instancesOf(target, datacenters, signal)]);
    return { chain: answer.Chain, problem: answer.problem, catalog, instances: new Map(await Promise.all(found)) };
  },

  draw({ params }, { chain, problem, catalog, instances }) {
    const name = quoted(params.service);
    return [
      problem ? element("p", { role: "alert" }, `The chain is broken: ${problem}`) : chainSection(chain, instances),
      !catalog && element("p", {}, "No source has shown an instance of this service, and none is registered."),
      catalog && catalogTable(catalog),
      catalog?.bindings.length > 0 && bindingTable(catalog.bindings),
      section("On the command line", commands(`xds chain ${name}`, `xds service show ${name}`)),
    ];
  },
};

function brokenChain(error) {
  if (error.status !== 422) throw error;
  return { problem: error.message };
}

// Consul's API selects by the filter of a subset, as the mesh does. Null: they are not to be had here.
async function instancesOf(target, datacenters, signal) {
  const { Datacenter: datacenter, Subset: subset = {} } = target;
  if (target.Peer || !datacenters.includes(datacenter)) return null;
  const asked = queryOf({ dc: datacenter, filter: subset.Filter, passing: subset.OnlyPassing && "1" });
  return consul(pathOf("/health/service", target.Service) + asked, signal);
}

async function consul(path, signal) {
  const answer = await fetch(`/v1${path}`, { headers: headers(), signal });
  if (!answer.ok) throw new ApiError(answer.status, await answer.text(), [401, 403].includes(answer.status));
  return answer.json();
}

function chainSection(chain, instances) {
  const said = [
    ["protocol", chain.Protocol],
    ["datacenter", chain.Datacenter],
    ["config entries", chain.Default && "none changes the way of requests"],
  ];
  const list = element("ul", { class: "chain" }, drawChain(chain, instances));
  return section("Chain", facts(said.filter(([, value]) => value)), list);
}

function catalogTable({ instances }) {
  const rows = instances.slice(0, INSTANCES).map(({ id, address, port, locality, source, node, since, ...each }) => ({
    key: `${source} ${id}`,
    cells: [instanceWords(address, port), health(each.health), place(locality), source, node || "–", when(since)],
  }));
  const rest = instances.length - INSTANCES;
  return [
    counts(plural(instances.length, "instance"), rest > 0 && `, ${INSTANCES} shown`),
    table("Instances", ["address", "health", "locality", "source", "runs on", "since"], rows, 2),
  ];
}

function bindingTable(bindings) {
  const rows = bindings.map(({ group, assignment, lowered }) => ({
    key: `${group} ${assignment}`,
    cells: [link(pathOf("/ui/groups", group), group), assignment, lowered ? "an upstream of the group" : "a binding"],
  }));
  return table("Assignments that follow it", ["group", "assignment", "because of"], rows, 2);
}
