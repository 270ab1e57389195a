// What the forms of pages share: why something is changed, and what a caller may not change.

import { element } from "./dom.js";
import { writeScope } from "./scopes.js";

const MESSAGE_LIMIT = 2000; // of the server

// A field for the message of a change. What is typed is kept while the page is drawn again.
export function whyField(kept, id, disabled) {
  const field = element("input", { id, size: 30, maxlength: MESSAGE_LIMIT, value: kept.message ?? "", disabled });
  field.oninput = (event) => (kept.message = event.target.value);
  return element("label", {}, "Why ", field);
}

// The scope that the caller lacks, for controls that are `aria-describedby` it.
export function neededScope(what, group) {
  const scope = element("code", {}, writeScope(group));
  return element("p", { id: "needed-scope", class: "hint" }, what, " the scope ", scope, ".");
}
