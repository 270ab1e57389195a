// The careful rollout of a group: its waves, and what a person may do with it.

import { pathOf, send } from "./admin_api.js";
import { button, element, facts, progress, section, state, when } from "./dom.js";
import { neededScope, whyField } from "./forms.js";
import { mayWrite } from "./scopes.js";
import { LINES, percent } from "./words.js";

const OPEN = ["running", "paused", "held"];
const ACTIONS = [
  ["pause", "Pause", ["running"]],
  ["resume", "Resume", ["paused", "held"]],
  ["promote", "Promote", OPEN, ({ head }) => `Give revision ${head} to all nodes now?`],
  ["abort", "Abort", OPEN, ({ head, base }) => `Take revision ${head} back, and serve ${base} to all nodes again?`],
];

function sizeWords(size) {
  if (size === "named") return "the named nodes";
  if (size === "100%") return "all nodes";
  return size.endsWith("%") ? `${size.slice(0, -1)} % of the nodes` : size === "1" ? "1 node" : `${size} nodes`;
}

function steps({ waves, selector, nodes }) {
  return [...(selector || nodes?.length ? ["named"] : []), ...waves.filter((size) => size !== "100%"), "100%"];
}

export function planWords(plan) {
  return `${steps(plan).map(sizeWords).join(", then ")}; each wave holds for ${plan.hold_s} s`;
}

// `progress` is the answer of `/groups/G/rollout`, `caller` that of `/whoami`.
export function drawRollout(view, group, progress, caller) {
  const { head, base, reason, unknown, by, why, errors } = progress;
  const isOpen = OPEN.includes(progress.state);
  return section(
    "Rollout",
    facts([
      ["state", [state(progress.state), isOpen && `, wave ${progress.wave} of ${progress.waves}`]],
      ["revision", `${head}, in place of ${base}`],
      ["reason", reason],
      ["cannot be judged yet", unknown],
      ["by", by && `${by}${why ? `: ${why}` : ""}`],
      ["began", when(progress.began)],
      ["deadline of the wave", isOpen && when(progress.deadline)],
      ["failed requests above the others", errors !== undefined && percent(errors)],
      ["ended", when(progress.ended)],
    ].filter(([, said]) => said)),
    isOpen && waveList(progress),
    isOpen && actionForm(view, group, progress, caller),
    element("p", { role: "status", "data-key": "told" }, view.kept.told),
    view.kept.refused && element("p", { role: "alert", "data-key": "refused" }, view.kept.refused),
  );
}

function waveList({ plan, wave, nodes }) {
  const items = steps(plan).map((size, at) => {
    const place = at + 1 < wave ? "done" : at + 1 === wave ? "now" : "later";
    const sign = { done: "✓", now: "▶", later: "·" }[place];
    const counts = place === "now" && nodes ? [": ", waveWords(nodes)] : "";
    return element(
      "li",
      { class: place, "aria-current": place === "now" && "step" },
      element("span", { "aria-hidden": "true" }, `${sign} `),
      sizeWords(size),
      place !== "later" && ` (${place})`,
      counts,
    );
  });
  return [element("ol", { class: "waves", "aria-label": "Waves" }, items), waveBar(nodes)];
}

// How many of all nodes have the new revision.
export function waveBar(nodes) {
  const all = nodes ? nodes.wave + nodes.outside : 0;
  return all > 0 && progress(nodes.acked, all, "nodes that have ACKed the new revision");
}

export function waveWords({ wave, acked, nacked, outside }) {
  const worst = nacked ? "nacked" : wave && acked === wave ? "synced" : "pending";
  const more = nacked ? `, ${nacked} NACKed` : "";
  return [state(worst, `${acked}/${wave} ACKed${more}`), `, ${outside} ${LINES.base}`];
}

// -- actions ----------------------------------------------------------------------------------------------------------

function actionForm(view, group, progress, caller) {
  const { kept } = view;
  const isAllowed = mayWrite(caller, group);
  const buttons = ACTIONS.map(([action, word, states, question]) =>
    button(word, () => (question ? ask(view, action, progress.head) : act(view, group, action, progress)), {
      "data-key": action,
      disabled: !isAllowed || Boolean(kept.isBusy) || !states.includes(progress.state),
      "aria-describedby": !isAllowed && "needed-scope",
    }),
  );
  const why = whyField(kept, "rollout-message", !isAllowed);
  return [
    element("div", { class: "actions", "data-key": "actions" }, why, buttons),
    kept.asked && kept.askedOf === progress.head && confirmation(view, group, progress),
    !isAllowed && neededScope("These actions need", group),
  ];
}

function confirmation(view, group, progress) {
  const [action, word, , question] = ACTIONS.find(([name]) => name === view.kept.asked);
  return element(
    "div",
    { class: "actions", role: "group", "aria-label": "Confirm", "data-key": "confirm" },
    element("strong", {}, question(progress)),
    button(`Yes, ${word.toLowerCase()}`, () => act(view, group, action, progress), { id: "confirm-action" }),
    button("No", () => ask(view, "")),
  );
}

async function ask(view, action, head) {
  Object.assign(view.kept, { asked: action, askedOf: head, told: "", refused: "" });
  await view.again();
  document.getElementById("confirm-action")?.focus();
}

// `head` is the revision that was shown: another one, whose rollout has begun since, is left alone.
async function act(view, group, action, { head }) {
  const { kept } = view;
  Object.assign(kept, { asked: "", told: "", refused: "", isBusy: true });
  try {
    const wanted = { action, head, message: kept.message ?? "" };
    const after = await send("POST", `${pathOf("/groups", group)}/rollout`, wanted);
    Object.assign(kept, { message: "", told: `Done: ${action}. The rollout is ${after.state.replace("_", " ")}.` });
  } catch (error) {
    kept.refused = `Nothing was changed: ${error.message}`;
  }
  kept.isBusy = false;
  await view.again();
}
