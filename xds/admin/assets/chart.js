// Stacked areas over time, drawn by uPlot in the colors of the page. The page has the same figures as a table.

import { element } from "./dom.js";

const HEIGHT = 220;
const STYLE = element("link", { rel: "stylesheet", href: "/ui/assets/vendor/uPlot.min.css" });

// `times` are seconds within the last `windowS`; `series` have a `name` and `values`, the first at the bottom. `holder`
// has `data-own`; it keeps its chart, which only gets other data while names and window stay the same.
export async function drawChart(holder, unit, windowS, times, series) {
  const { default: UPlot } = await import("./vendor/uPlot.esm.js");
  if (!holder.isConnected) return;
  const names = [windowS, ...series.map(({ name }) => name)].join("\n");
  const data = stacked(times, series);
  if (holder.chart && holder.dataset.names === names) return void holder.chart.setData(data);
  document.head.append(STYLE);
  holder.redraw?.disconnect();
  holder.dataset.names = names;
  const items = series.map(({ name }, at) => element("li", { class: `series-${at}` }, name));
  const legend = element("ul", { class: "legend" }, items);
  const area = element("div", { role: "img", "aria-label": `${unit} over time; the table below has the figures` });
  holder.replaceChildren(element("p", { class: "hint" }, unit), area, legend);
  const draw = () => {
    holder.chart?.destroy();
    holder.chart = new UPlot(optionsOf(area, legend, windowS), holder.chart?.data ?? data, area);
    holder.chart.ctx.canvas.ariaHidden = "true"; // the area around it has the words
  };
  draw();
  holder.redraw = new Redraw(holder, area, draw);
}

// The chart follows the width of the page and its colors.
class Redraw {
  constructor(holder, area, draw) {
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.scheme.addEventListener("change", draw);
    this.draw = draw;
    const resize = () => (holder.isConnected ? holder.chart.setSize(sizeOf(area)) : this.disconnect());
    this.sizes = new ResizeObserver(resize);
    this.sizes.observe(area);
  }

  disconnect() {
    this.sizes.disconnect();
    this.scheme.removeEventListener("change", this.draw);
  }
}

const sizeOf = (area) => ({ width: Math.max(area.clientWidth, 200), height: HEIGHT });

function optionsOf(area, legend, windowS) {
  const style = getComputedStyle(legend);
  const axis = { stroke: style.color, grid: { stroke: style.borderTopColor }, ticks: { stroke: style.borderTopColor } };
  const colors = [...legend.children].map((item) => getComputedStyle(item).borderLeftColor);
  const lines = colors.map((color) => ({ stroke: color, fill: color, width: 1, points: { show: false } }));
  return {
    ...sizeOf(area),
    legend: { show: false },
    cursor: { show: false },
    scales: {
      x: { range: (chart, first, last) => [last - windowS, last] },
      y: { range: (chart, low, high) => [0, Math.max(high * 1.05, 0.1)] },
    },
    axes: [{ ...axis, space: 80, values: (chart, times) => times.map(clock) }, { ...axis, size: 55 }],
    series: [{}, ...lines.reverse()], // the highest sum is drawn first, the lower ones upon it
  };
}

// In UTC, as the API and the command line.
export const clock = (time) => new Date(time * 1000).toISOString().slice(11, 19);

function stacked(times, series) {
  const sums = times.map(() => 0);
  const layers = series.map(({ values }) => values.map((value, at) => (sums[at] += value)));
  return [times, ...layers.reverse()];
}
