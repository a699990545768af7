// Charts from plain data: lines, bars and maps, with a legend, hover, zoom and keys. No library: a report stays small,
// follows the reader's colours by CSS, and prints as vectors. Every text is set as text, never as HTML.
"use strict";
const charts = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const SHAPES = ["circle", "square", "triangle", "diamond", "cross"];
  const DASHES = ["", "6 3", "2 3", "8 3 2 3"];
  const COLOURS = 7;
  const colour = (n) => `var(--c${n % COLOURS})`;

  const make = (tag, attributes = {}, ...children) => {
    const known = ["svg", "g", "path", "line", "rect", "text", "title", "clipPath"].includes(tag);
    const node = known ? document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) if (value != null) node.setAttribute(name, value);
    node.append(...children.filter((child) => child != null));
    return node;
  };

  const show = (value) => {
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e7 || size < 1e-3) return value.toExponential(1).replace("e+", "e");
    return Number(value.toPrecision(4)).toLocaleString("en");
  };

  // --- scales: a value to a share of the axis and back

  const scaleOf = (low, high, log) => {
    const forth = log ? Math.log10 : (v) => v;
    const back = log ? (v) => 10 ** v : (v) => v;
    const a = forth(low), b = forth(high), span = b - a || 1;
    return { low, high, log, share: (v) => (forth(v) - a) / span, value: (s) => back(a + s * span) };
  };

  const ticks = (scale, wanted) => {
    if (scale.log) {
      const first = Math.ceil(Math.log10(scale.low) - 1e-9), last = Math.floor(Math.log10(scale.high) + 1e-9);
      if (last - first >= 1) {
        const step = Math.ceil((last - first + 1) / wanted);
        return Array.from({ length: Math.floor((last - first) / step) + 1 }, (_, i) => 10 ** (first + i * step));
      }
    }
    const span = scale.high - scale.low || 1;
    const rough = span / wanted, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
    const found = [];
    for (let v = Math.ceil(scale.low / step - 1e-9) * step; v <= scale.high + step * 1e-9; v += step) found.push(Number(v.toPrecision(12)));
    return found;
  };

  const marker = (shape, x, y, r) => ({
    circle: `M${x - r},${y}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0`,
    square: `M${x - r},${y - r}h${2 * r}v${2 * r}h${-2 * r}z`,
    triangle: `M${x},${y - r * 1.2}L${x + r * 1.1},${y + r}H${x - r * 1.1}z`,
    diamond: `M${x},${y - r * 1.3}L${x + r * 1.3},${y}L${x},${y + r * 1.3}L${x - r * 1.3},${y}z`,
    cross: `M${x - r},${y - r}L${x + r},${y + r}M${x + r},${y - r}L${x - r},${y + r}`,
  })[shape];

  const extent = (values, log) => {
    const some = log ? values.filter((v) => v > 0) : values;
    if (!some.length) return [log ? 1 : 0, log ? 10 : 1];
    const low = some.reduce((a, b) => Math.min(a, b)), high = some.reduce((a, b) => Math.max(a, b));
    if (low === high) return log ? [low / 2, high * 2] : [low - Math.abs(low || 1) * 0.1, high + Math.abs(high || 1) * 0.1];
    const pad = (high - low) * 0.04;
    return log ? [low * 0.8, high * 1.25] : [low - pad, high + pad];
  };

  // --- the frame that every chart shares: a box, a legend, tools, a tip

  const frame = (host, spec, draw) => {
    const state = { hidden: new Set(), window: null, near: null };
    const box = make("div", { class: "chart", tabindex: "0", role: "img" });
    box.setAttribute("aria-label", host.dataset.label || "chart");
    const tip = make("div", { class: "tip", hidden: "" });
    const legend = make("div", { class: "legend", role: "group", "aria-label": "lines and colours; press to hide or show" });
    host.replaceChildren(box, legend);
    const redraw = () => { draw(box, state); box.append(tip); };
    spec.series.forEach((each, number) => {
      const sample = make("svg", { viewBox: "0 0 22 12", "aria-hidden": "true" });
      if (spec.kind === "lines") sample.append(make("path", { d: "M0,6H22", stroke: colour(number), "stroke-width": 2, "stroke-dasharray": DASHES[Math.floor(number / COLOURS) % DASHES.length] }));
      sample.append(make("path", { d: marker(spec.kind === "lines" ? SHAPES[number % SHAPES.length] : "square", 11, 6, spec.kind === "lines" ? 3.2 : 5), fill: colour(number), stroke: colour(number) }));
      const button = make("button", { type: "button", "aria-pressed": "true" }, sample, each.name);
      button.addEventListener("click", () => {
        state.hidden.has(number) ? state.hidden.delete(number) : state.hidden.add(number);
        button.setAttribute("aria-pressed", String(!state.hidden.has(number)));
        redraw();
      });
      legend.append(button);
    });
    const say = (event, text) => {
      tip.hidden = !text;
      if (!text) return;
      tip.textContent = text;
      const area = box.getBoundingClientRect(), x = event.clientX - area.left, y = event.clientY - area.top;
      tip.style.left = `${Math.max(0, Math.min(x + 12, area.width - tip.offsetWidth))}px`;
      tip.style.top = `${y + 14 + tip.offsetHeight > area.height ? y - tip.offsetHeight - 8 : y + 14}px`;
    };
    box.addEventListener("pointermove", (event) => { if (state.near) say(event, state.near(event)); });
    box.addEventListener("pointerdown", (event) => { if (state.near) say(event, state.near(event)); });
    box.addEventListener("pointerleave", () => { tip.hidden = true; });
    new ResizeObserver(() => { if (box.clientWidth && box.clientWidth !== state.width) { state.width = box.clientWidth; redraw(); } }).observe(box);
    return { box, state, redraw };
  };

  // Zoom by a drawn box, by buttons, by keys; the window is [x0, x1, y0, y1] in shares of the whole.
  const zoomable = (host, { box, state, redraw }, plot) => {
    const set = (w) => {
      const size = Math.max(1e-4, Math.min(1, w[1] - w[0])), tall = Math.max(1e-4, Math.min(1, w[3] - w[2]));
      const x = Math.max(0, Math.min(1 - size, w[0])), y = Math.max(0, Math.min(1 - tall, w[2]));
      state.window = size >= 1 && tall >= 1 ? null : [x, x + size, y, y + tall];
      redraw();
    };
    const current = () => state.window || [0, 1, 0, 1];
    const zoom = (factor, cx = 0.5, cy = 0.5) => {
      const [x0, x1, y0, y1] = current(), w = (x1 - x0) * factor, h = (y1 - y0) * factor;
      const x = x0 + cx * (x1 - x0) - cx * w, y = y0 + cy * (y1 - y0) - cy * h;
      set([x, x + w, y, y + h]);
    };
    const pan = (dx, dy) => { const [x0, x1, y0, y1] = current(), w = x1 - x0, h = y1 - y0; set([x0 + dx * w, x1 + dx * w, y0 + dy * h, y1 + dy * h]); };
    const reset = () => { state.window = null; redraw(); };
    const button = (text, label, act) => { const b = make("button", { type: "button", "aria-label": label, title: label }, text); b.addEventListener("click", act); return b; };
    host.prepend(make("div", { class: "tools" }, button("+", "zoom in", () => zoom(0.5)), button("−", "zoom out", () => zoom(2)), button("reset", "show all", reset)));
    box.addEventListener("keydown", (event) => {
      const act = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: reset, ArrowLeft: () => pan(-0.2, 0), ArrowRight: () => pan(0.2, 0), ArrowUp: () => pan(0, 0.2), ArrowDown: () => pan(0, -0.2) }[event.key];
      if (act) { event.preventDefault(); act(); }
    });
    const at = (event) => {
      const area = box.getBoundingClientRect(), p = plot();
      return [(event.clientX - area.left - p.left) / p.width, 1 - (event.clientY - area.top - p.top) / p.height].map((v) => Math.max(0, Math.min(1, v)));
    };
    box.addEventListener("dblclick", (event) => zoom(0.5, ...at(event)));
    box.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse" || event.button) return;
      const from = at(event), area = box.getBoundingClientRect();
      const rubber = make("div", { class: "select" });
      const move = (e) => {
        if (!rubber.isConnected) box.append(rubber);
        const x0 = event.clientX - area.left, y0 = event.clientY - area.top, x1 = e.clientX - area.left, y1 = e.clientY - area.top;
        Object.assign(rubber.style, { left: `${Math.min(x0, x1)}px`, top: `${Math.min(y0, y1)}px`, width: `${Math.abs(x1 - x0)}px`, height: `${Math.abs(y1 - y0)}px` });
      };
      const up = (e) => {
        window.removeEventListener("pointermove", move);
        window.removeEventListener("pointerup", up);
        rubber.remove();
        const to = at(e);
        if (Math.hypot(e.clientX - event.clientX, e.clientY - event.clientY) < 8) return;
        const [x0, x1, y0, y1] = current(), w = x1 - x0, h = y1 - y0;
        const [a, b] = [from[0], to[0]].sort((p, q) => p - q), [c, d] = [from[1], to[1]].sort((p, q) => p - q);
        set([x0 + a * w, x0 + b * w, y0 + c * h, y0 + d * h]);
      };
      window.addEventListener("pointermove", move);
      window.addEventListener("pointerup", up);
    });
  };

  const axes = (svg, x, y, p, labels) => {
    for (const v of y.ticks) {
      const at = p.top + p.height * (1 - y.scale.share(v));
      svg.append(make("line", { class: "grid-line", x1: p.left, x2: p.left + p.width, y1: at, y2: at }));
      svg.append(make("text", { x: p.left - 6, y: at + 4, "text-anchor": "end" }, show(v * (labels.yScale || 1))));
    }
    for (const v of x ? x.ticks : []) {
      const at = p.left + p.width * x.scale.share(v);
      svg.append(make("line", { class: "grid-line", x1: at, x2: at, y1: p.top, y2: p.top + p.height }));
      svg.append(make("text", { x: at, y: p.top + p.height + 16, "text-anchor": "middle" }, show(v)));
    }
    if (labels.x) svg.append(make("text", { x: p.left + p.width / 2, y: p.top + p.height + 34, "text-anchor": "middle" }, labels.x));
    svg.append(make("text", { x: 4, y: 12 }, labels.y));
  };

  const part = (scale, from, to) => scaleOf(scale.value(from), scale.value(to), scale.log);

  // --- lines

  let clips = 0;
  const lines = (host, spec) => {
    let plot = null;
    const whole = { x: scaleOf(...extent(spec.series.flatMap((s) => s.points.map((q) => q[0])), spec.x.log), spec.x.log), y: scaleOf(...extent(spec.series.flatMap((s) => s.points.map((q) => q[1])), spec.y.log), spec.y.log) };
    const made = frame(host, spec, (box, state) => {
      const width = box.clientWidth || 480, height = Math.round(Math.max(220, Math.min(340, width * 0.62)));
      plot = { left: 52, top: 22, width: width - 64, height: height - 64 };
      const w = state.window || [0, 1, 0, 1];
      const x = part(whole.x, w[0], w[1]), y = part(whole.y, w[2], w[3]);
      const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
      axes(svg, { scale: x, ticks: ticks(x, width / 90) }, { scale: y, ticks: ticks(y, 5) }, plot, { x: spec.x.label, y: spec.y.label, yScale: spec.y.scale });
      const clip = `clip-${++clips}`;
      svg.append(make("clipPath", { id: clip }, make("rect", { x: plot.left - 4, y: plot.top - 4, width: plot.width + 8, height: plot.height + 8 })));
      const inside = make("g", { "clip-path": `url(#${clip})` }), points = [];
      spec.series.forEach((series, number) => {
        if (state.hidden.has(number)) return;
        const places = series.points.filter((q) => (!x.log || q[0] > 0) && (!y.log || q[1] > 0)).map((q) => [plot.left + plot.width * x.share(q[0]), plot.top + plot.height * (1 - y.share(q[1])), q]);
        inside.append(make("path", { d: places.map(([a, b], i) => `${i ? "L" : "M"}${a.toFixed(1)},${b.toFixed(1)}`).join(""), fill: "none", stroke: colour(number), "stroke-width": 2, "stroke-dasharray": DASHES[Math.floor(number / COLOURS) % DASHES.length] }));
        const dots = places.length <= 60 ? places : [];
        inside.append(make("path", { d: dots.map(([a, b]) => marker(SHAPES[number % SHAPES.length], a, b, 3.2)).join(""), fill: colour(number), stroke: colour(number) }));
        for (const [a, b, q] of places) points.push({ a, b, q, series });
      });
      svg.append(inside);
      box.replaceChildren(svg);
      state.near = (event) => {
        const area = box.getBoundingClientRect(), mx = event.clientX - area.left, my = event.clientY - area.top;
        let best = null, far = 40 ** 2;
        for (const each of points) { const d = (each.a - mx) ** 2 + (each.b - my) ** 2; if (d < far) { far = d; best = each; } }
        return best && `${best.series.name}: ${show(best.q[1] * (spec.y.scale || 1))} at ${spec.x.label.split(",")[0]} ${show(best.q[0])}`;
      };
    });
    zoomable(host, made, () => plot);
    made.redraw();
  };

  // --- bars

  const bars = (host, spec) => {
    const made = frame(host, spec, (box, state) => {
      const width = box.clientWidth || 480, height = Math.round(Math.max(220, Math.min(340, width * 0.62)));
      const p = { left: 52, top: 22, width: width - 64, height: height - 52 };
      const shown = spec.series.map((series, number) => ({ series, number })).filter(({ number }) => !state.hidden.has(number));
      const sums = spec.groups.map((_, g) => spec.stacked ? shown.reduce((sum, { series }) => sum + (series.values[g] || 0), 0) : Math.max(0, ...shown.map(({ series }) => series.values[g] || 0)));
      const y = scaleOf(0, Math.max(...sums, 0) * 1.05 || 1, false);
      const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
      axes(svg, null, { scale: y, ticks: ticks(y, 5) }, p, { y: spec.y.label, yScale: spec.y.scale });
      const slot = p.width / spec.groups.length, room = slot * 0.76, found = [];
      spec.groups.forEach((group, g) => {
        let below = 0;
        shown.forEach(({ series, number }, place) => {
          const value = series.values[g];
          if (value == null) return;
          const wide = spec.stacked ? room : room / shown.length;
          const x = p.left + g * slot + (slot - room) / 2 + (spec.stacked ? 0 : place * wide);
          const tall = p.height * y.share(value), base = p.top + p.height * (1 - y.share(below));
          svg.append(make("rect", { x, y: base - tall, width: Math.max(1, wide - 1), height: Math.max(0.5, tall), fill: colour(number) }));
          found.push({ x, w: wide, top: base - tall, bottom: base, text: `${group}, ${series.name}: ${show(value * (spec.y.scale || 1))}` });
          if (spec.stacked) below += value;
        });
        const most = Math.max(3, Math.floor(slot / 7)), short = group.length > most ? `${group.slice(0, most - 1)}…` : group;
        svg.append(make("text", { x: p.left + (g + 0.5) * slot, y: p.top + p.height + 16, "text-anchor": "middle" }, short));
      });
      box.replaceChildren(svg);
      state.near = (event) => {
        const area = box.getBoundingClientRect(), mx = event.clientX - area.left, my = event.clientY - area.top;
        const hit = found.find((b) => mx >= b.x && mx <= b.x + b.w && my >= b.top - 6 && my <= b.bottom + 6);
        return hit && hit.text;
      };
    });
    made.redraw();
  };

  // --- maps: thousands of points, on a canvas

  const unpack = (text) => {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    return new Uint16Array(bytes.buffer);
  };

  const map = (host, spec, options = {}) => {
    const series = spec.series.map((each) => ({ ...each, points: unpack(each.xy) }));
    let plot = null, drawn = [];
    const made = frame(host, spec, (box, state) => {
      const width = box.clientWidth || 480, height = Math.round(Math.min(width, 620)), ratio = window.devicePixelRatio || 1;
      plot = { left: 0, top: 0, width, height };
      const canvas = make("canvas", { width: Math.round(width * ratio), height: Math.round(height * ratio), "aria-hidden": "true" });
      canvas.style.height = `${height}px`;
      const pen = canvas.getContext("2d"), look = getComputedStyle(box), w = state.window || [0, 1, 0, 1];
      const side = Math.min(width, height) - 12, left = (width - side) / 2, top = (height - side) / 2;
      const size = Math.max(1.2, Math.min(4, 1.6 / Math.sqrt(w[1] - w[0]))) * (series.reduce((n, s) => n + s.points.length, 0) < 4000 ? 1.8 : 1);
      pen.scale(ratio, ratio);
      drawn = [];
      const ends = series.map((s) => s.points.length / 2), most = Math.max(0, ...ends);
      for (let i = 0; i < most; i++) series.forEach((each, number) => {  // in turn, so that no client hides the others
        if (i >= ends[number] || state.hidden.has(number)) return;
        const sx = (left + (each.points[2 * i] / 65535) * side) / width, sy = 1 - (top + (1 - each.points[2 * i + 1] / 65535) * side) / height;
        const a = ((sx - w[0]) / (w[1] - w[0])) * width, b = (1 - (sy - w[2]) / (w[3] - w[2])) * height;
        if (a < -4 || b < -4 || a > width + 4 || b > height + 4) return;
        drawn.push({ a, b, i, number });
      });
      const colours = series.map((_, number) => look.getPropertyValue(`--c${number % COLOURS}`));
      pen.globalAlpha = 0.75;
      for (const d of drawn) {
        pen.fillStyle = colours[d.number];
        pen.fillRect(d.a - size / 2, d.b - size / 2, size, size);
      }
      pen.globalAlpha = 1;
      pen.lineWidth = 2.5;
      pen.strokeStyle = look.color;
      for (const d of options.mark ? drawn.filter((each) => options.mark(each.number, each.i)) : []) {
        pen.beginPath();
        pen.arc(d.a, d.b, 8, 0, 2 * Math.PI);
        pen.stroke();
      }
      box.replaceChildren(canvas);
      state.near = (event) => { const d = nearest(event); return d && (series[d.number].labels ? `${series[d.number].labels[d.i]} (${series[d.number].name})` : series[d.number].name); };
    });
    const nearest = (event) => {
      const area = made.box.getBoundingClientRect(), mx = event.clientX - area.left, my = event.clientY - area.top;
      let best = null, far = 14 ** 2;
      for (const d of drawn) { const away = (d.a - mx) ** 2 + (d.b - my) ** 2; if (away < far) { far = away; best = d; } }
      return best;
    };
    if (options.pick) made.box.addEventListener("click", (event) => { const d = nearest(event); if (d) options.pick(series[d.number].name, series[d.number].labels[d.i]); });
    zoomable(host, made, () => plot);
    made.redraw();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", made.redraw);
    window.addEventListener("beforeprint", made.redraw);
    return made;
  };

  const draw = (host, spec, options) => ({ lines, bars, map })[spec.kind](host, spec, options);
  return { draw };
})();
