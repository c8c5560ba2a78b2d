// What a sandbox uses, as small charts that grow while one looks.
import { events, sandboxPath } from "./api.js";
import { bytes, h, show, svg } from "./ui.js";

const WIDTH = 320, HEIGHT = 64;
const perSecond = (count) => `${bytes(count)}/s`;

// One line from left to right over the sandbox's life; the top is the limit, or the largest value.
function chart(label, samples, value, format, limit) {
  const largest = Math.max(limit || 0, ...samples.map(value), 1);
  const from = samples[0].at, all = Math.max(1, samples.at(-1).at - from);
  const points = samples.map((s) => `${((s.at - from) / all) * WIDTH},${HEIGHT - (value(s) / largest) * HEIGHT}`).join(" ");
  const now = format(value(samples.at(-1))) + (limit ? ` of ${format(limit)}` : "");
  return h("figure", { class: "chart" }, h("figcaption", {}, `${label}: `, h("strong", {}, now)),
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${label} over time, now ${now}`, preserveAspectRatio: "none" },
      svg("polyline", { points, fill: "none", stroke: "currentColor", "stroke-width": "2" })));
}

export function usageTab(pane, box) {
  const samples = [];
  let limits = {}, due = 0;

  function draw() {
    due = 0;
    if (!samples.length) return show(pane, h("p", {}, "The first figures come within five seconds."));
    return show(pane, h("div", { class: "charts" },
      chart("Cpu", samples, (s) => s.cpuPercent, (n) => `${n.toFixed(1)} %`),
      chart("Memory", samples, (s) => s.memoryBytes, bytes, limits.memoryBytes),
      chart("Disk", samples, (s) => s.diskBytes, bytes, limits.diskBytes),
      chart("Network, received", samples, (s) => s.receivedBytesPerSecond, perSecond),
      chart("Network, sent", samples, (s) => s.sentBytesPerSecond, perSecond)));
  }

  draw();
  const stop = events(sandboxPath(box.id, "/usage"), {
    limits: (value) => { limits = value; samples.length = 0; },
    usage: (sample) => { samples.push({ ...sample, at: Date.parse(sample.time) }); due ||= setTimeout(draw, 50); },
  });
  return () => { stop(); clearTimeout(due); };
}
