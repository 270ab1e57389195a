// What is wrong with the page as it is shown; `legible` is the least contrast.
(legible) => {
  const found = [];
  const isShown = (element) => element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const shown = [...document.querySelectorAll("body *")].filter(isShown);
  const of = (...names) => shown.filter((element) => names.includes(element.localName));
  const tell = (element, what) => found.push(`${what}: ${element.outerHTML.slice(0, 120)}`);
  const hasText = (element) => [...element.childNodes].some((each) => each.nodeType === Node.TEXT_NODE && each.data.trim());

  if (document.documentElement.scrollWidth > innerWidth) {
    const wide = shown.filter((element) => element.getBoundingClientRect().right > innerWidth + 1);
    found.push(`scrolls sideways: ${document.documentElement.scrollWidth} > ${innerWidth}`);
    wide.slice(-3).forEach((element) => tell(element, "too wide"));
  }
  if (!document.documentElement.lang || !document.title) found.push("no language or title");
  if (of("main").length !== 1 || of("h1").length !== 1) found.push("not one main and one h1");
  const ids = shown.map((element) => element.id).filter(Boolean);
  if (new Set(ids).size !== ids.length) found.push(`an id occurs twice: ${ids}`);

  for (const control of of("a", "button", "summary")) {
    const name = control.innerText.trim() || control.getAttribute("aria-label");
    if (!name) tell(control, "no name");
  }
  for (const field of of("input", "select", "textarea", "progress", "meter")) {
    const labels = [...(field.labels ?? [])].map((label) => label.innerText.trim()).join("");
    if (!labels && !field.getAttribute("aria-label")) tell(field, "no label");
  }
  for (const image of of("img", "svg", "canvas")) {
    if (!image.getAttribute("alt") && !image.getAttribute("aria-label") && !image.ariaHidden) tell(image, "no text");
  }
  for (const table of of("table")) {
    const beyond = table.getBoundingClientRect().right - table.parentElement.getBoundingClientRect().right;
    if (beyond > 1) tell(table, `sticks out by ${beyond.toFixed()} px`);
    if (!table.caption?.innerText.trim()) tell(table, "no caption");
    for (const head of table.querySelectorAll("th")) {
      if (!["row", "col"].includes(head.scope)) tell(head, "no scope");
      if (!head.textContent.trim()) tell(head, "no text");
    }
  }
  const places = of("h1", "h2", "h3", "h4").map((heading) => Number(heading.localName[1]));
  if (places.some((place, at) => place > (places[at - 1] ?? 0) + 1)) found.push(`headings skip a level: ${places}`);
  for (const element of shown) {
    const scrolls = ["auto", "scroll"].includes(getComputedStyle(element).overflowX);
    const isCut = scrolls && element.scrollWidth > element.clientWidth + 1;
    if (isCut && element.tabIndex < 0 && !element.querySelector("a, button")) tell(element, "no key scrolls it");
  }

  // Between an element's text and what is behind it (https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio).
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const channels = (color) => [...color.match(/[\d.]+/g).map(Number), 1].slice(0, 4);
  const over = ([r, g, b, a], under) => [r, g, b].map((channel, at) => channel * a + under[at] * (1 - a));
  const behind = (element) => {
    if (!element) return isDark ? [18, 18, 18] : [255, 255, 255];
    return over(channels(getComputedStyle(element).backgroundColor), behind(element.parentElement));
  };
  const luminance = (color) => {
    const [r, g, b] = color.map((c) => (c > 10 ? ((c / 255 + .055) / 1.055) ** 2.4 : c / 255 / 12.92));
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const contrast = (element) => {
    const back = behind(element);
    const text = over(channels(getComputedStyle(element).color), back);
    const [dark, light] = [text, back].map(luminance).sort((a, b) => a - b);
    return (light + .05) / (dark + .05);
  };
  for (const element of shown) {
    if (hasText(element) && !element.disabled && contrast(element) < legible) {
      tell(element, `contrast ${contrast(element).toFixed(2)}`);
    }
  }
  return found;
}
