// The fields above a page. Their values are in the address, so that a view can be shared, reloaded and gone back to.

import { element, show } from "./dom.js";

const TYPING_MS = 250;

// A text: read again when the reader stops typing. `known` are values to choose from.
export function textFilter(name, label, { hint = "", placeholder = "", size = 20, known = [] } = {}) {
  const list = `${name}-known`;
  return (view) => {
    const value = view.query[name];
    const values = { type: "search", name, size, placeholder, title: hint, value, list: known.length > 0 && list };
    const field = element("input", values);
    let timer = 0;
    field.oninput = (event) => {
      const typed = event.target;
      clearTimeout(timer);
      timer = setTimeout(() => typed.isConnected && view.change({ [name]: typed.value.trim() }), TYPING_MS);
    };
    const options = known.map((each) => element("option", { value: each }));
    const shown = known.length > 0 && element("datalist", { id: list }, options);
    return [element("label", { "data-key": name }, label, " ", field), shown];
  };
}

// One of some values: `[value, word]` each; "" for any.
export function choiceFilter(name, label, values, { hint = "" } = {}) {
  return (view) => {
    const chosen = view.query[name];
    const isKnown = values.some(([value]) => value === chosen);
    const shown = isKnown ? values : [...values, [chosen, chosen]];
    const options = shown.map(([value, word]) => element("option", { value, selected: value === chosen }, word));
    const onchange = (event) => view.change({ [name]: event.target.value });
    const field = element("select", { name, title: hint, onchange }, options);
    return element("label", { "data-key": name }, label, " ", field);
  };
}

// Changes the fields where they differ. A change begins at the first page of a list.
export function drawFilters(form, view, filters) {
  form.hidden = filters.length === 0;
  const change = (values) => view.set({ page_token: "", ...values });
  show(form, filters.map((filter) => filter({ query: view.query, change })));
}
