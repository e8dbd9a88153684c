// Lays the latencies of another run, from the page of that run, over the figures of this one.
(() => {
  "use strict";
  const MS = { "µs": 0.001, ms: 1, s: 1000, min: 60000, h: 3600000 };
  const ARRAYS = { f4: Float32Array, f8: Float64Array, i1: Int8Array, u1: Uint8Array, i2: Int16Array };
  Object.assign(ARRAYS, { u2: Uint16Array, i4: Int32Array, u4: Uint32Array });
  const figures = globalThis.pageFigures;
  const mine = figures.plots.filter((plot) => /^(cdf|course)-/.test(plot.dataset.name));
  if (!mine.length || typeof DecompressionStream === "undefined") return;

  // Numbers come as a list, or as the bytes of an array in base64.
  function numbers(values) {
    if (Array.isArray(values)) return values.map(Number);
    const bytes = Uint8Array.from(atob(values.bdata), (char) => char.charCodeAt(0));
    return Array.from(new ARRAYS[values.dtype](bytes.buffer));
  }

  function unitOf(axis) {
    return /\((µs|ms|s|min|h)\)$/.exec(axis?.title?.text ?? "")?.[1] ?? (axis?.ticksuffix ?? "").trim();
  }

  // The curves of another figure in the units of this one.
  function curves(theirs, own, name) {
    const factor = (axis) => (MS[unitOf(theirs.layout[axis])] ?? 1) / (MS[unitOf(own.layout[axis])] ?? 1);
    const [wide, high] = [factor("xaxis"), factor("yaxis")];
    const ink = getComputedStyle(document.documentElement).getPropertyValue("--muted").trim();
    const plain = name.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
    return theirs.data
      .filter((each) => each.mode === "lines")
      .map((each) => ({
        type: "scatter",
        mode: "lines",
        name: each.name ? `${plain}, ${each.name}` : plain,
        x: numbers(each.x).map((value) => value * wide),
        y: numbers(each.y).map((value) => value * high),
        line: { color: ink, width: 1.8, dash: "dot", shape: each.line?.shape ?? "linear" },
        opacity: each.opacity ?? 1,
        hovertemplate: `%{y:,.3~g} at %{x:,.4~g}<extra>${plain}</extra>`,
      }));
  }

  const place = document.querySelector(".top-row");
  const [button, chooser, told] = ["button", "input", "p"].map((tag) => document.createElement(tag));
  Object.assign(button, { type: "button", className: "quiet", id: "other-run", textContent: "lay another run over it" });
  Object.assign(chooser, { type: "file", accept: ".html", hidden: true });
  Object.assign(told, { className: "note", id: "other-told" });
  told.setAttribute("role", "status");
  place.insertBefore(button, place.lastElementChild);
  place.append(chooser);

  function show(text) {
    told.textContent = text;
    place.after(told);
  }

  async function lay(text) {
    const page = new DOMParser().parseFromString(text, "text/html");
    const name = page.querySelector("h1")?.textContent.trim() ?? "";
    const asked = page.querySelector(".asked")?.textContent.trim() ?? "";
    const found = mine.flatMap((plot) => {
      const spec = page.getElementById(plot.dataset.spec);
      if (!spec) return [];
      const own = JSON.parse(document.getElementById(plot.dataset.spec).textContent);
      return [[plot.dataset.name, curves(JSON.parse(spec.textContent), own, `other: ${name}`)]];
    });
    if (!found.length) {
      show("That file is not the report.html of a run: it has no latencies.");
      return;
    }
    figures.extras.clear();
    found.forEach(([key, traces]) => figures.extras.set(key, traces));
    show(`Dotted in the figures of latency: ${[name, asked].filter(Boolean).join(", ")}`);
    button.textContent = "take the other run away";
    await figures.redraw(mine);
  }

  button.addEventListener("click", async () => {
    if (!figures.extras.size) {
      chooser.click();
      return;
    }
    figures.extras.clear();
    told.remove();
    button.textContent = "lay another run over it";
    await figures.redraw(mine);
  });
  chooser.addEventListener("change", async () => {
    const [file] = chooser.files;
    chooser.value = "";
    if (!file) return;
    try {
      await lay(await file.text());
    } catch (error) {
      show(`That page cannot be read: ${error.message}`);
    }
  });
})();
