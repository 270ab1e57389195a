// The way of requests to one service: router, splitter, resolver, targets, and the instances of each target.

import { find, get, pathOf, queryOf } from "../admin_api.js";
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
    const { Chain: chain, problem } = answer;
    const targets = Object.values(chain?.Targets ?? {}).slice(0, TARGETS);
    const found = targets.map(async (target) => [target.ID, await instancesOf(target, chain.Datacenter, signal)]);
    return { chain, problem, catalog, instances: new Map(await Promise.all(found)) };
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

// Null: they are not to be had here.
async function instancesOf({ Service: name, Datacenter: wanted, Peer: peer, Subset: subset = {} }, own, signal) {
  if (peer) return null;
  const found = await find(pathOf("/services", name) + queryOf({ filter: subset.Filter }), signal);
  const isMeant = (each) => (each.datacenter || own) === wanted && (!subset.OnlyPassing || each.health === "passing");
  const instances = found?.instances.filter(isMeant) ?? [];
  return wanted === own || instances.length ? instances : null;
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
  const rows = instances.slice(0, INSTANCES).map((each) => ({
    key: `${each.source} ${each.id}`,
    cells: [
      instanceWords(each), health(each), place(each.locality), each.source, each.node || "–", when(each.since),
    ],
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
