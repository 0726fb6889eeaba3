// A plot over time. uPlot is loaded when the first one is shown.

import { html, useEffect, useRef, useState } from "../lib/ui.js";
import { language, number } from "../lib/i18n.js";

const HEIGHT = 160; // CSS pixels

// `times` are Unix seconds; `series` are { label, values, bars, dots }.
export function Plot({ name, times, series, format = number }) {
  const place = useRef(null);
  const key = JSON.stringify([times.length, times.at(-1), series.map((each) => each.label)]);
  const isDark = useDark();
  useEffect(() => {
    const drawn = { plot: null, isLeft: false };
    draw(place.current, { times, series, format }, drawn);
    const watch = new ResizeObserver(([entry]) => {
      drawn.plot?.setSize({ width: entry.contentRect.width, height: HEIGHT });
    });
    watch.observe(place.current);
    return () => {
      drawn.isLeft = true;
      watch.disconnect();
      drawn.plot?.destroy();
    };
  }, [key, isDark, language.value]);
  return html`<div class="plot" ref=${place} role="img" aria-label=${name}></div>`;
}

// True in the dark scheme. A canvas does not follow it by itself.
function useDark() {
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const [isDark, setDark] = useState(scheme.matches);
  useEffect(() => {
    const changed = () => setDark(scheme.matches);
    scheme.addEventListener("change", changed);
    return () => scheme.removeEventListener("change", changed);
  }, []);
  return isDark;
}

async function draw(place, { times, series, format }, drawn) {
  const { default: UPlot } = await import("uplot");
  await loadStyle();
  if (drawn.isLeft) return;
  const colour = (name) => {
    place.style.color = `var(${name})`; // resolves light-dark(), which the property's own text does not
    return getComputedStyle(place).color;
  };
  const isBars = series.some(({ bars }) => bars);
  const step = (times.at(-1) - times[0]) / Math.max(1, times.length - 1);
  const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  const dates = (form) => (_, splits) => splits.map((at) => new Intl.DateTimeFormat(language.value, form).format(at * 1000));
  const isLong = times.at(-1) - times[0] > 2 * 86400;
  const form = isLong ? { day: "numeric", month: "numeric" } : { timeStyle: "short" };
  const options = {
    width: place.clientWidth,
    height: HEIGHT,
    cursor: { y: false },
    legend: { show: series.length > 1 },
    scales: {
      x: { range: (_, low, high) => (isBars ? [low - step / 2, high + step / 2] : [low, high]) },
      y: { range: (_, low, high) => [Math.min(0, low ?? 0), high ? high * 1.1 : 1] },
    },
    axes: [
      { ...axis, size: 28, values: dates(form) },
      { ...axis, size: 64, values: (_, splits) => splits.map((value) => format(value)) },
    ],
    series: [
      { value: (_, at) => (at === null ? "" : dates(form)(null, [at])[0]) },
      ...series.map((each) => ({
        label: each.label,
        stroke: colour("--link"),
        fill: each.bars ? colour("--link") : undefined,
        width: each.bars ? 0 : 2,
        paths: each.bars ? UPlot.paths.bars({ size: [0.7, 40] }) : undefined,
        points: { show: Boolean(each.dots), size: 5, fill: colour("--link") },
        value: (_, value) => (value === null ? "–" : format(value)),
      })),
    ],
  };
  drawn.plot = new UPlot(options, [times, ...series.map((each) => each.values)], place);
}

let style = null;

function loadStyle() {
  style ??= new Promise((settle) => {
    const link = document.createElement("link");
    link.rel = "stylesheet";
    link.href = new URL("../vendor/uplot/uPlot.min.css", import.meta.url).href;
    link.onload = link.onerror = settle;
    document.head.append(link);
  });
  return style;
}
