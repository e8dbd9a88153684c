// What a reader looks at in a figure: the stretch that is enlarged, and labels within its edges.
(() => {
  "use strict";
  const views = new Map(); // figure -> the ranges that its reader chose, by axis

  // A stretch that is looked at is kept in the address, "#figure-cdf-ttft&xaxis=10,20", as the first
  // view of whoever opens it.
  const VIEW = /^([xy]axis\d*)=([^,]+),([^,]+)$/;

  function asked() {
    const [id, ...parts] = location.hash.slice(1).split("&");
    const ranges = parts.map((part) => VIEW.exec(part)).filter(Boolean);
    const view = ranges.map(([, axis, from, to]) => [axis, [Number(from), Number(to)]]);
    return { id, view: view.filter(([, range]) => range.every(Number.isFinite)) };
  }

  function keepView(plot) {
    const { layout } = JSON.parse(document.getElementById(plot.dataset.spec).textContent);
    plot.on("plotly_relayout", (change) => {
      if (!Object.keys(change).some((key) => /^[xy]axis/.test(key))) return; // another width, not another view
      const kept = new Map(views.get(plot) ?? []);
      for (const key of Object.keys(change)) {
        const axis = key.split(".")[0];
        if (!/^[xy]axis\d*$/.test(axis)) continue;
        if (key.endsWith(".autorange")) kept.delete(axis);
        else if (key.includes(".range")) kept.set(axis, plot.layout[axis].range.map(Number));
      }
      for (const [axis, range] of kept) {
        if (layout[axis]?.range?.every((end, i) => Math.abs(end - range[i]) < 1e-6 * (1 + Math.abs(end)))) kept.delete(axis);
      }
      views.set(plot, kept);
      const told = [...kept].map(([axis, range]) => `&${axis}=${range.map((end) => Number(end.toPrecision(6))).join(",")}`);
      history.replaceState(null, "", `#${plot.closest("figure").id}${told.join("")}`);
    });
  }

  // A label at the edge of a narrow figure moves inwards instead of being cut.
  function keepInside(plot) {
    const box = plot.querySelector(".main-svg").getBoundingClientRect(); // on paper wider than the window
    const labels = plot.querySelectorAll(".textpoint text, .bartext, .annotation-text-g");
    labels.forEach((label) => (label.style.translate = ""));
    const places = [...labels].map((label) => label.getBoundingClientRect());
    labels.forEach((label, i) => {
      const { left, right } = places[i];
      const shift = right > box.right ? box.right - right - 1 : Math.max(0, box.left - left);
      if (shift) label.style.translate = `${shift}px`;
    });
    if (/^(slots|pareto)/.test(plot.dataset.name)) apart(labels);
  }

  // Of two labels that lie on each other the later one is left out.
  function apart(labels) {
    const kept = [];
    labels.forEach((label) => {
      if (label.matches(".bartext")) return;
      const { left, right, top, bottom } = label.getBoundingClientRect();
      const hidden = kept.some((other) => left < other.right && right > other.left && top < other.bottom && bottom > other.top);
      label.style.visibility = hidden ? "hidden" : "";
      if (!hidden) kept.push({ left, right, top, bottom });
    });
  }

  // A legend above a figure keeps the place that it had when the figure was narrower and it took more
  // lines: it then lies on the curves until it is laid again.
  function liftLegend(plot) {
    const legend = plot.querySelector(".legend");
    const { y, yanchor } = plot._fullLayout.legend ?? {};
    if (!legend || yanchor !== "bottom") return;
    const { t, h } = plot._fullLayout._size;
    const wanted = plot.getBoundingClientRect().top + t + h * (1 - y);
    if (legend.getBoundingClientRect().bottom > wanted + 2) Plotly.relayout(plot, { "legend.y": y });
  }

  globalThis.pageViews = { views, asked, keepView, keepInside, liftLegend };
})();
