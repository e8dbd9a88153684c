// The page's behaviour: light and dark, figures, sortable tables. Everything also reads well without.
(() => {
  "use strict";
  const root = document.documentElement;
  const darkTwins = new Map(Object.entries(readJson("dark-twins")));
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const plots = [...document.querySelectorAll(".plot")];
  const extras = new Map(); // name of a figure -> what else is drawn in it
  const { views, asked, keepView, keepInside, liftLegend } = globalThis.pageViews;
  const PAPER = 670; // pixels across a page of A4 within its margins
  const LEGIBLE = 0.86; // how much smaller a table may be made on paper: its words then have 7 pt
  const LOW = 180; // pixels that a figure needs for its axes and words
  const SMALL = 9.5; // pixels, 7 pt
  const TALL = 900; // pixels of a sheet that a figure with many panels may take
  // Of its height on the screen a figure has so much on paper, where it cannot be cut in two: the
  // many figures of a run leave little blank paper as they are, the few of other pages much.
  const ofRun = document.getElementById("key-figures") !== null;
  const SMALLER = ofRun ? 1 : 0.72;
  const heights = new Map(); // figure -> its height on the screen
  let printing = false;

  function readJson(id) {
    return JSON.parse(document.getElementById(id).textContent);
  }

  function isDark() {
    if (printing) return false;
    return root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches;
  }

  // ---- figures -----------------------------------------------------------------------------

  const config = { responsive: true, displayModeBar: false, showTips: false };

  async function loadPlotly() {
    if (typeof DecompressionStream === "undefined") {
      throw new Error("this browser is too old to unpack them");
    }
    const packed = atob(document.getElementById("plotly-js").textContent.trim());
    const bytes = new Uint8Array(packed.length);
    for (let i = 0; i < packed.length; i += 1) bytes[i] = packed.charCodeAt(i); // no call for each byte
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    script.remove();
    if (typeof Plotly === "undefined") throw new Error("the drawing library did not start");
  }

  function figureOf(plot, dark) {
    const text = document.getElementById(plot.dataset.spec).textContent;
    const figure = JSON.parse(text, (key, value) =>
      dark && typeof value === "string" && darkTwins.has(value) ? darkTwins.get(value) : value,
    );
    if (plot.dataset.axis) Object.assign(figure.layout.xaxis, axisOf(plot, figure.layout));
    if (plot.dataset.shares === "on") asShares(figure);
    lay(figure, extras.get(plot.dataset.name) ?? []);
    if (!printing) {
      for (const [axis, range] of views.get(plot) ?? []) {
        Object.assign(figure.layout[axis] ?? {}, { range: [...range], autorange: false });
      }
    }
    if (matchMedia("(pointer: coarse)").matches) figure.layout.dragmode = false;
    if (printing) {
      figure.layout.width = widthOnPaper(plot);
      const many = figure.layout.yaxis3 !== undefined || plot.matches(".plot-slots"); // low enough already
      const full = figure.layout.height ?? heights.get(plot);
      figure.layout.height = many ? Math.min(full, TALL) : Math.min(Math.max(SMALLER * full, Math.min(full, LOW)), 640);
      if (figure.layout.width < PAPER) { // names side by side leave the curves their room
        const font = { ...figure.layout.legend?.font, size: SMALL };
        figure.layout.legend = { ...figure.layout.legend, font };
      }
      if (figure.layout.width < 300) narrow(figure.layout);
    }
    return figure;
  }

  // On a third of the paper the words of axes are smaller, and long titles take two lines.
  function narrow(layout) {
    for (const axis of [layout.xaxis, layout.yaxis]) {
      axis.tickfont = { ...axis.tickfont, size: SMALL };
      if (!axis.title?.text) continue;
      const text = axis.title.text.length > 24 ? axis.title.text.replace(", ", ",<br>") : axis.title.text;
      axis.title = { ...axis.title, text, font: { size: SMALL } };
    }
  }

  // A logarithmic axis comes with labels of its own; without them Plotly writes "2 5 10 2 5".
  function axisOf(plot, layout) {
    const log = layout.meta?.log ?? { type: "log", autorange: true };
    const { type, range } = layout.xaxis;
    const linear = type === "log" || !range ? { autorange: true } : { range };
    return plot.dataset.axis === "log"
      ? { ...log, tickmode: "array" }
      : { type: "linear", tickmode: "auto", tickvals: null, ticktext: null, ...linear };
  }

  // What else is drawn in a figure, with room for it.
  function lay({ data, layout }, more) {
    if (!more.length) return;
    data.push(...more);
    layout.showlegend = true;
    data.forEach((trace) => (trace.showlegend = Boolean(trace.name) && trace.mode === "lines"));
    if (layout.xaxis.type !== "log") Object.assign(layout.xaxis, { autorange: true });
  }

  // Pages of decisions print their thirds as pairs, of which an odd last one has the whole width.
  function widthOnPaper(plot) {
    const thirds = plot.closest(".plots-thirds");
    if (thirds && ofRun) return 215;
    const alone = plot.closest("figure").matches(":last-child:nth-child(odd):not(:first-child)");
    return (thirds || plot.closest(".plots-pair")) && !alone ? 330 : PAPER;
  }

  // Of the whole with every part, so that a part which the legend hides leaves a gap.
  function asShares({ data, layout }) {
    const whole = new Map();
    for (const { x, y } of data) x.forEach((at, i) => whole.set(at, (whole.get(at) || 0) + (y[i] || 0)));
    for (const part of data) part.y = part.y.map((value, i) => (100 * value) / (whole.get(part.x[i]) || 1));
    Object.assign(layout.yaxis, { ticksuffix: " %", range: [0, 100] });
    layout.yaxis.title.text = "share of the whole";
  }

  async function draw(plot) {
    try {
      const { data, layout } = figureOf(plot, isDark());
      plot.style.height = layout.height ? `${layout.height}px` : ""; // it outlasts a change of width
      // on paper the width is another: what was measured for the screen must not be kept
      const anew = printing || !plot.dataset.drawn;
      plot.querySelectorAll(".hatch").forEach((lines) => lines.remove());
      await (anew ? Plotly.newPlot : Plotly.react)(plot, data, layout, config);
      if (anew) { // a new plot has no listeners
        plot.on("plotly_afterplot", () => keepInside(plot));
        plot.on("plotly_relayout", (change) => change.autosize && liftLegend(plot));
        keepView(plot);
        keepInside(plot);
      }
      if (printing) hatchByLines(plot);
      plot.dataset.drawn = "yes";
      performance.mark("figure");
    } catch (error) {
      explain(plot, error);
    }
  }

  // On paper a browser makes a picture of 100 kB of every bar that a pattern fills: the lines of the
  // pattern, each where x + y is a multiple of its width, are drawn one by one instead.
  function hatchByLines(plot) {
    for (const bar of plot.querySelectorAll('path[style*="url("]')) {
      const pattern = document.getElementById(/#([^")]+)/.exec(bar.style.fill)?.[1]);
      const line = pattern?.querySelector("path");
      if (!line) continue;
      const { x, y, width, height } = bar.getBBox();
      const apart = parseFloat(pattern.getAttribute("width"));
      let d = "";
      for (let at = Math.ceil((x + y) / apart) * apart - x - y; at < width + height; at += apart) {
        const [right, low] = [Math.min(at, width), Math.min(at, height)];
        d += `M${x + right},${y + at - right}L${x + at - low},${y + low}`;
      }
      const lines = document.createElementNS(bar.namespaceURI, "path");
      const look = { class: "hatch", d, fill: "none", transform: bar.getAttribute("transform") ?? "" };
      for (const name of ["stroke", "stroke-width"]) look[name] = line.getAttribute(name);
      for (const [name, value] of Object.entries(look)) lines.setAttribute(name, value);
      bar.style.fill = "none"; // until the figure is drawn for the screen again
      bar.after(lines);
    }
  }

  function explain(plot, error) {
    plot.classList.add("plot-failed");
    plot.textContent = `This figure could not be drawn: ${error.message}.`;
    plot.dataset.drawn = "no";
  }

  function fromView(plot) {
    const { top, bottom } = plot.getBoundingClientRect();
    return Math.max(0, top - innerHeight, -bottom);
  }

  // A figure that is folded away has no width yet: it is drawn when it is opened.
  function folded(plot) {
    return plot.closest("details:not([open])") !== null;
  }

  // The figure nearest to what is read comes next; the page paints and scrolls between any two.
  async function drawAll() {
    const waiting = new Set(plots.filter((plot) => !folded(plot)));
    while (waiting.size) {
      let next = null;
      for (const plot of waiting) if (!next || fromView(plot) < fromView(next)) next = plot;
      waiting.delete(next);
      await draw(next);
      await new Promise((paint) => setTimeout(paint));
    }
    root.dataset.figures = plots.filter((plot) => plot.dataset.drawn === "yes").length;
  }

  function made(tag, given = {}, ...children) {
    const element = Object.assign(document.createElement(tag), given);
    element.append(...children);
    return element;
  }

  function addTool(place, text, action) {
    const button = made("button", { type: "button", className: "quiet", textContent: text });
    button.addEventListener("click", () => action(button));
    place.querySelector(".tools").append(button);
  }

  function addFigureTools(plot) {
    const figure = plot.closest("figure");
    const other = () => (plot.dataset.axis === "log" ? "linear" : "log");
    if (plot.dataset.axis) {
      addTool(figure, `${other()} axis`, async (button) => {
        plot.dataset.axis = other();
        button.textContent = `${other()} axis`;
        const { layout } = JSON.parse(document.getElementById(plot.dataset.spec).textContent);
        const axis = Object.entries(axisOf(plot, layout));
        views.delete(plot);
        await Plotly.relayout(plot, Object.fromEntries(axis.map(([key, value]) => [`xaxis.${key}`, value])));
      });
    }
    if (plot.dataset.shares) {
      addTool(figure, "as shares", async (button) => {
        plot.dataset.shares = plot.dataset.shares === "on" ? "off" : "on";
        button.textContent = plot.dataset.shares === "on" ? "as times" : "as shares";
        await draw(plot);
      });
    }
    addTool(figure, "save image", async () => {
      const image = pictureOf(plot, figure.querySelector("h3").textContent.trim());
      const { width, height } = image.layout;
      const filename = `${root.dataset.run.split(" \u00b7 ")[0]}-${plot.dataset.name}`;
      await Plotly.downloadImage(image, { width, height, format: "png", scale: 2, filename });
    });
  }

  // Name, model, GPUs and load of what the page shows, for pictures that leave it.
  function whatRan() {
    const setup = [...document.querySelectorAll(".setup > div")]
      .filter((each) => ["Model", "GPU", "GPUs", "Setup"].includes(each.querySelector("dt").textContent))
      .map((each) => each.querySelector("dd").textContent);
    const asked = [...document.querySelectorAll(".asked")].map((each) => each.textContent);
    return [document.querySelector("h1").textContent, ...setup, ...asked].map((text) => text.trim()).join(" \u00b7 ");
  }

  function lines(text, longest) {
    const made = [""];
    for (const word of text.split(" ")) {
      if (made.at(-1).length + word.length > longest) made.push("");
      made[made.length - 1] += `${word} `;
    }
    return made;
  }

  // The figure as a picture: under its title and what was run, above it all that it has.
  function pictureOf(plot, title) {
    const { data, layout } = figureOf(plot, false);
    const width = plot.clientWidth;
    const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
    const under = lines(root.dataset.run, width / 6).map(plain);
    const top = 34 + 15 * under.length;
    const text = `${plain(title)}<br><span style="font-size:11px;font-weight:400">${under.join("<br>")}</span>`;
    const margin = { ...layout.margin, t: (layout.margin?.t ?? 16) + top };
    const corner = { x: 0.015, y: 1, xref: "container", yref: "container", xanchor: "left", yanchor: "top" };
    const head = { text, font: { size: 14, weight: 600 }, pad: { t: 26 }, ...corner };
    return {
      data,
      layout: { ...layout, width, height: plot.clientHeight + top, margin, title: head, paper_bgcolor: "#ffffff" },
    };
  }

  async function start() {
    if (!plots.length) {
      root.dataset.figures = 0;
      return;
    }
    try {
      await loadPlotly();
    } catch (error) {
      plots.forEach((plot) => explain(plot, error));
      return;
    }
    plots.forEach(addFigureTools);
    document.querySelectorAll("details").forEach((each) => {
      each.addEventListener("toggle", () => {
        if (!each.open) return;
        plots.filter((plot) => each.contains(plot) && !plot.dataset.drawn && !folded(plot)).forEach(draw);
      });
    });
    await drawAll();
  }

  // ---- light and dark, paper ---------------------------------------------------------------

  const toggle = document.getElementById("theme-toggle");

  function restyle() {
    toggle.setAttribute("aria-pressed", String(isDark()));
    if (typeof Plotly !== "undefined") plots.filter((plot) => !folded(plot)).forEach(draw);
  }

  toggle.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("infersim-theme", root.dataset.theme);
    } catch {
      // The choice then lasts as long as the page.
    }
    restyle();
  });
  prefersDark.addEventListener("change", restyle);
  toggle.setAttribute("aria-pressed", String(isDark()));

  // A table that is wider than the paper is made smaller, whatever the screen's width, as long as it
  // is legible; columns of a still wider one go on below, after those that name the row.
  function fitTables() {
    document.querySelectorAll("table.part").forEach((part) => part.remove());
    document.querySelectorAll(".scroll > table").forEach((table) => {
      table.style.zoom = "";
      showColumns(table, () => true);
      if (!printing) return;
      table.classList.add("on-paper");
      const widths = [...table.tHead.rows[0].cells].map((cell) => cell.offsetWidth);
      table.classList.remove("on-paper");
      const names = Number(table.dataset.keys ?? (widths[0] < 30 ? 2 : 1)); // a number names no row
      const first = widths.slice(0, names).reduce((sum, width) => sum + width, 0);
      const others = widths.slice(names).reduce((sum, width) => sum + width, 0);
      const parts = Math.ceil(others / Math.max(1, PAPER / LEGIBLE - first));
      if (parts > 1 && parts < widths.length) {
        divide(table, widths, names, others / parts);
      } else if (first + others > PAPER) {
        table.style.zoom = PAPER / (first + others);
      }
    });
  }

  function divide(table, widths, names, most) {
    let [part, sum] = [0, 0];
    const place = widths.map((width, i) => {
      if (i < names) return -1;
      if (sum + width / 2 > most) [part, sum] = [part + 1, 0];
      sum += width;
      return part;
    });
    for (let n = part; n >= 0; n -= 1) {
      const shown = n ? table.cloneNode(true) : table;
      if (n) table.after(shown);
      shown.classList.toggle("part", n > 0);
      showColumns(shown, (i) => place[i] < 0 || place[i] === n);
      const width = widths.reduce((all, each, i) => all + (place[i] < 0 || place[i] === n ? each : 0), 0);
      shown.style.zoom = Math.min(1, PAPER / width);
    }
  }

  function showColumns(table, shown) {
    for (const row of table.rows) [...row.cells].forEach((cell, i) => (cell.hidden = !shown(i)));
  }

  addEventListener("beforeprint", () => {
    document.querySelectorAll("details").forEach((each) => (each.open = true));
    if (!printing) plots.forEach((plot) => heights.set(plot, plot.offsetHeight));
    printing = true;
    fitTables();
    restyle();
  });
  addEventListener("afterprint", () => {
    printing = false;
    plots.forEach((plot) => delete plot.dataset.drawn); // else they keep the width of the paper
    fitTables();
    restyle();
  });

  // ---- tables ------------------------------------------------------------------------------

  const cellValue = (row, index) => {
    const cell = row.cells[index];
    return cell.dataset.value === undefined ? cell.textContent.trim() : cell.dataset.value;
  };

  function compare(a, b, sign) {
    if (a === "" || b === "") return (a === "") - (b === "");
    const [x, y] = [Number(a), Number(b)];
    return sign * (Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y);
  }

  function makeSortable(table) {
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, index) => {
      const name = heading.querySelector(".name");
      const about = heading.querySelector("a.about");
      const title = about ? about.title : `sort by ${name.textContent.trim()}`;
      const button = made("button", { type: "button", className: "sort", title });
      name.replaceWith(button);
      button.append(name);
      button.addEventListener("click", () => {
        const now = heading.getAttribute("aria-sort"); // figures begin with the largest
        const up = heading.classList.contains("num") ? now === "descending" : now !== "ascending";
        headings.forEach((each) => each.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", up ? "ascending" : "descending");
        const rows = [...table.tBodies[0].rows];
        const sign = up ? 1 : -1;
        rows.sort((a, b) => compare(cellValue(a, index), cellValue(b, index), sign));
        table.tBodies[0].append(...rows);
      });
    });
  }

  function csv(table) {
    const quote = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const heading = [...table.tHead.rows[0].cells].map((cell) => {
      const name = cell.querySelector(".name");
      return name.textContent.trim() + (name.dataset.unit ? ` (${name.dataset.unit})` : "");
    });
    const body = [...table.tBodies[0].rows].map((row) =>
      [...row.cells].map((cell, index) => cellValue(row, index)),
    );
    return [heading, ...body].map((row) => row.map(quote).join(",")).join("\n") + "\n";
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = made("textarea", { value: text });
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  }

  // The words of a command, no option of which is broken at the end of a line.
  function unbroken(text) {
    return text.split(" ").flatMap((word, i) => {
      const whole = made("span", { textContent: word });
      return i ? [" ", whole] : [whole];
    });
  }

  function addCopy(place, name, text) {
    addTool(place, name, async (button) => {
      await copy(text());
      button.textContent = "copied";
      setTimeout(() => (button.textContent = name), 1500);
    });
  }

  // A definition that is folded away opens when something leads to it.
  function unfold() {
    const { id, view } = asked();
    const wanted = id && document.getElementById(id);
    const hidden = wanted && wanted.closest("details:not([open])");
    if (hidden) hidden.open = true;
    const plot = view.length && wanted && wanted.querySelector(".plot");
    if (plot) views.set(plot, new Map(view));
    if (plot && plot.dataset.drawn) draw(plot);
    if (hidden || plot) wanted.scrollIntoView();
  }
  addEventListener("hashchange", unfold);
  unfold();

  globalThis.pageFigures = { plots, extras, made, addCopy, unbroken, redraw: (some) => Promise.all(some.filter((plot) => !folded(plot)).map(draw)) };

  root.dataset.run = whatRan();
  start(); // the library is inflated while the tables are prepared
  document.querySelectorAll(".table table").forEach((table) => {
    addCopy(table.closest(".table"), "copy as CSV", () => csv(table));
    makeSortable(table);
  });
  document.querySelectorAll(".command").forEach((place) => {
    const code = place.querySelector("code");
    code.replaceChildren(...unbroken(code.textContent));
    addCopy(place, "copy", () => code.textContent);
  });
})();
