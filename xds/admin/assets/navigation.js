// The links to the pages, for the shell and for the documentation of the API.

const SECTIONS = [
  ["Overview", "/"],
  ["Nodes", "/ui/nodes"],
  ["Groups", "/ui/groups"],
  ["Load", "/ui/load"],
  ["Services", "/ui/services"],
  ["Events", "/ui/events"],
  ["API", "/docs"],
];

// Draws the links, and marks the one that the page at `path` belongs to.
export function drawNavigation(path) {
  const links = SECTIONS.map(([name, href]) => {
    const made = document.createElement("a");
    made.href = href;
    made.textContent = name;
    if (href === path) made.setAttribute("aria-current", "page");
    else if (href !== "/" && path.startsWith(`${href}/`)) made.setAttribute("aria-current", "true");
    return made;
  });
  document.querySelector("nav").replaceChildren(...links);
}
