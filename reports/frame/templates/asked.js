// Asks the page's server what the form says, at each change, and shows the answer step by step.
(() => {
  "use strict";
  const root = document.documentElement;
  const $ = (id) => document.getElementById(id);
  const form = $("form");
  const inputs = [...form.querySelectorAll("[name]")];
  const { plots, redraw, made, addCopy, unbroken } = globalThis.pageFigures;
  const { views } = globalThis.pageViews;
  const PAUSE = 150; // ms after the last key before what is typed is asked
  const MOTION = 12000; // ms in which the slots of a run pass
  const EMPTY = { data: [], layout: { height: 120, xaxis: { visible: false }, yaxis: { visible: false } } };
  let trace = { id: "", name: "" };
  let kept = null; // the question and the answer that the next ones are compared with
  let answer = {};
  let asking = null;
  let timer = 0;

  // ---- the question: the form, and the address ---------------------------------------------

  function question() {
    const asked = Object.fromEntries(inputs.map((each) => [each.name, each.value]));
    return { ...asked, trace: trace.id };
  }

  // A link holds every field that is not as the page has it at first.
  function toParams(asked) {
    const changed = inputs.filter((each) => asked[each.name] !== each.dataset.default);
    const pairs = changed.map((each) => [each.name, asked[each.name]]);
    if (asked.trace) pairs.push(["trace", asked.trace], ["trace-name", asked === kept?.question ? kept.trace : trace.name]);
    return new URLSearchParams(pairs);
  }

  function hash() {
    const params = toParams(question());
    if (kept) params.set("compared", toParams(kept.question).toString());
    return `#=&${params}`;
  }

  function writeLink() {
    history.replaceState(null, "", hash());
  }

  function fill(params) {
    inputs.forEach((each) => (each.value = params.get(each.name) ?? each.dataset.default));
    trace = { id: params.get("trace") ?? "", name: params.get("trace-name") ?? "" };
    arrange();
  }

  // Fields that do not count are not shown.
  function arrange() {
    const now = question();
    const counts = ({ dataset }) => {
      if (!dataset.when) return true;
      const [name, values] = dataset.when.split("=");
      return values.split(",").includes(now[name]) && counts(form.querySelector(`[data-field="${name}"]`));
    };
    form.querySelectorAll("[data-field]").forEach((each) => (each.hidden = !counts(each)));
    $("trace-kept").hidden = !trace.id;
    $("trace-kept").firstElementChild.textContent = trace.name;
    $("f-trace").hidden = Boolean(trace.id);
  }

  // ---- asking ------------------------------------------------------------------------------

  async function* steps(asked, signal) {
    const headers = { "Content-Type": "application/json" };
    const response = await fetch("/ask", { method: "POST", headers, body: JSON.stringify(asked), signal });
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      const lines = (text + (done ? "\n" : decoder.decode(value, { stream: true }))).split("\n");
      text = lines.pop();
      for (const line of lines.filter(Boolean)) yield JSON.parse(line);
      if (done) return;
    }
  }

  async function ask() {
    clearTimeout(timer);
    asking?.abort();
    const mine = (asking = new AbortController());
    const begin = performance.now();
    const asked = { question: question(), window: kept?.answer.slots.window ?? null };
    arrange();
    writeLink();
    $("answer").setAttribute("aria-busy", "true");
    $("took").textContent = "Computing\u2026";
    $("keep").disabled = true;
    try {
      let found = {};
      for await (const step of steps(asked, mine.signal)) {
        if (mine.signal.aborted) return;
        fail(step.errors ?? {});
        if (step.errors) {
          $("said").textContent = $("bar").textContent = Object.values(step.errors).join(" ");
          $("keep").disabled = true;
          $("took").textContent = `No answer: what stands below was asked before. ${Object.entries(step.errors).map(([name, text]) => (name ? `${name}: ${text}` : "")).join(" ")}`;
          break;
        }
        found = { ...found, ...step };
        answer = { ...found, question: asked.question };
        await show("now", found, step);
        if (mine.signal.aborted) return;
        const took = Math.round(performance.now() - begin);
        if (step.figures) root.dataset.first = took;
        $("took").textContent = `Answered in ${(took / 1000).toFixed(1)} s.`;
        $("keep").disabled = !found.slots;
        $("bar").textContent = found.said;
        if (found.slots) $("said").textContent = found.said;
        differ();
      }
      asking = null;
      root.dataset.took = Math.round(performance.now() - begin);
      root.dataset.answered = Number(root.dataset.answered ?? 0) + 1;
      $("answer").setAttribute("aria-busy", "false");
    } catch (error) {
      if (mine.signal.aborted) return;
      fail({ "": `The server does not answer: ${error.message}. Is infersim ui still running?` });
      $("took").textContent = "";
      $("answer").setAttribute("aria-busy", "false");
    }
  }

  function later() {
    clearTimeout(timer);
    timer = setTimeout(ask, PAUSE);
  }

  // ---- showing -----------------------------------------------------------------------------

  function fail(errors) {
    let rest = errors[""] ?? "";
    form.querySelectorAll("[data-field]").forEach((place) => {
      const name = place.dataset.field;
      const text = errors[name] ?? "";
      if (place.hidden && text) rest = `${rest}\n${name}: ${text}`.trim();
      $(`e-${name}`).textContent = text;
      if (text) $(`f-${name}`).setAttribute("aria-invalid", "true");
      else $(`f-${name}`).removeAttribute("aria-invalid");
    });
    $("error").textContent = rest;
    $("error").hidden = !rest;
    $("now").classList.toggle("stale", Object.keys(errors).length > 0);
  }

  // Puts what a step brings into a side; the figures it brings are drawn.
  async function show(side, found, step) {
    const place = $(side);
    place.hidden = false;
    if (step.html) place.querySelector(".told").innerHTML = step.html; // escaped by the server
    $(`${side}-title`).textContent = found.title;
    if (side === "now") {
      $("yaml").textContent = found.yaml;
      for (const name of ["command", "plan", "cheapest"]) $(name).replaceChildren(...unbroken(found[name]));
      $("planning").hidden = $("ask-cheapest").hidden = !found.plan;
    }
    const specs = Object.entries({ ...step.figures, ...(step.slots && { slots: step.slots.spec }) });
    if (step.slots) place.querySelector("figure:last-of-type .caption").textContent = step.slots.caption;
    await library;
    const drawn = specs.map(([name, spec]) => {
      const plot = place.querySelector(`[data-name="${name}"]`);
      $(plot.dataset.spec).textContent = spec ?? JSON.stringify(EMPTY);
      halt(plot);
      views.delete(plot);
      if (!heard.has(plot)) { // drawn while it had no width
        Plotly.purge(plot);
        delete plot.dataset.drawn;
      }
      return plot;
    });
    await redraw(drawn);
    drawn.filter((plot) => plot.on && !heard.has(plot)).forEach((plot) => {
      heard.add(plot);
      plot.on("plotly_relayout", writeLink); // the address holds the question, no stretch of a figure
    });
  }

  const heard = new Set();

  // page.js loads the drawing library while the first answer is computed.
  const library = new Promise((there) => {
    const look = () => (root.dataset.figures === undefined ? setTimeout(look, 20) : there());
    look();
  });

  // ---- two variants ------------------------------------------------------------------------

  function differ() {
    const place = $("differences");
    place.hidden = !kept || !answer.compared;
    if (place.hidden) return;
    const row = (cells, tag) => made("tr", {}, ...cells.map((text, i) => made(i ? tag : "th", { className: i ? "num" : "" }, text)));
    const rows = answer.compared.flatMap((mine) => {
      const other = kept.answer.compared.find((each) => each.name === mine.name);
      return other ? [row([mine.name, other.text, mine.text, change(other.value, mine.value)], "td")] : [];
    });
    const head = made("thead", {}, row(["Difference", "A", "B", "B against A"], "th"));
    const changed = inputs.filter((each) => kept.question[each.name] !== each.value);
    const words = changed.map((each) => `${each.labels[0].textContent} ${kept.question[each.name] || "default"} \u2192 ${each.value || "default"}`);
    const told = words.length ? `A \u2192 B: ${words.join(", ")}` : "A and B are the same so far: change the question for B.";
    place.replaceChildren(made("p", { className: "note" }, told), made("table", {}, head, made("tbody", {}, ...rows)));
  }

  function change(a, b) {
    if (a === null || b === null) return "\u2013";
    if (a === b) return "same";
    if (!a) return "";
    const ratio = b / a;
    if (ratio >= 2 || ratio <= 0.5) {
      const times = Number(Math.max(ratio, 1 / ratio).toPrecision(2)).toLocaleString("en");
      return ratio > 1 ? `${times} times` : `1/${times}`;
    }
    const percent = 100 * (ratio - 1);
    return `${percent > 0 ? "+" : "\u2212"}${Math.abs(percent).toFixed(Math.abs(percent) < 10 ? 1 : 0)}\u202f%`;
  }

  async function compare() {
    const found = answer;
    kept = { question: found.question, answer: found, trace: trace.name };
    root.classList.add("two");
    $("single").hidden = $("play-both").hidden = false;
    $("keep").textContent = "keep B as A";
    writeLink();
    await show("kept", found, found);
    resize();
    differ();
  }

  $("keep").addEventListener("click", compare);
  $("single").addEventListener("click", async () => {
    kept = null;
    root.classList.remove("two");
    $("kept").hidden = $("single").hidden = $("play-both").hidden = true;
    $("keep").textContent = "compare with this";
    $("keep").focus();
    differ();
    writeLink();
    resize();
  });

  // Figures follow the width of their column.
  function resize() {
    plots.filter((plot) => plot.offsetWidth && plot.dataset.drawn).forEach((plot) => Plotly.Plots.resize(plot));
  }

  // ---- slots in motion ---------------------------------------------------------------------

  const moving = new Map(); // figure -> how to stop it

  function halt(plot) {
    moving.get(plot)?.();
    moving.delete(plot);
  }

  // What has not happened yet is covered; the cover recedes as time passes.
  function play(plot, begin) {
    const button = plot.closest("figure").querySelector(".play");
    halt(plot);
    if (!plot.layout?.xaxis?.range) return;
    const [from, to] = plot.layout.xaxis.range.map(Number);
    const shapes = plot.layout.shapes ?? [];
    const color = getComputedStyle(root).getPropertyValue("--surface").trim();
    const line = getComputedStyle(root).getPropertyValue("--link").trim();
    let frame = 0;
    const stop = () => {
      cancelAnimationFrame(frame);
      button.textContent = "play";
      button.setAttribute("aria-pressed", "false");
      Plotly.relayout(plot, { shapes });
    };
    const step = async (now) => {
      const passed = Math.min(1, Math.max(0, now - begin) / MOTION);
      if (passed >= 1) return halt(plot);
      const at = from + passed * (to - from);
      const place = { xref: "x", yref: "paper", y0: 0, y1: 1, layer: "above" };
      const cover = { ...place, type: "rect", x0: at, x1: to, fillcolor: color, opacity: 0.92, line: { width: 0 } };
      await Plotly.relayout(plot, { shapes: [...shapes, cover, { ...place, type: "line", x0: at, x1: at, line: { color: line, width: 2 } }] });
      if (moving.has(plot)) frame = requestAnimationFrame(step);
    };
    moving.set(plot, stop);
    button.textContent = "stop";
    button.setAttribute("aria-pressed", "true");
    frame = requestAnimationFrame(step);
  }

  const slots = plots.filter((plot) => plot.dataset.name === "slots");
  slots.forEach((plot) => {
    plot.closest("figure").querySelector(".play").addEventListener("click", () => (moving.has(plot) ? halt(plot) : play(plot, performance.now())));
  });
  $("play-both").addEventListener("click", () => {
    slots[0].scrollIntoView({ block: "center" });
    const begin = performance.now(); // one clock for both
    slots.forEach((plot) => play(plot, begin));
  });

  // ---- what a reader does ------------------------------------------------------------------

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
  form.addEventListener("input", (event) => event.target.name && later());

  $("f-trace").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    event.target.value = "";
    if (!file) return;
    const headers = { "Content-Type": "text/csv" };
    try {
      const response = await fetch(`/trace?name=${encodeURIComponent(file.name)}`, { method: "POST", headers, body: file });
      const found = await response.json();
      if (found.errors) throw new Error(found.errors[""]);
      trace = { id: found.trace, name: file.name };
      await ask();
    } catch (error) {
      fail({ trace: error.message });
    }
  });
  $("trace-kept").querySelector("button").addEventListener("click", () => {
    trace = { id: "", name: "" };
    ask();
    $("f-trace").focus();
  });

  addCopy($("ask-cheapest"), "which card is cheapest? copy the command", () => $("cheapest").textContent);
  addCopy($("take"), "copy link", () => location.href);
  addCopy($("take"), "copy YAML", () => $("yaml").textContent);
  addCopy($("take"), "copy command", () => $("command").textContent);

  async function restore() {
    const params = new URLSearchParams(location.hash.slice(1));
    const compared = params.get("compared");
    if (compared !== null) {
      fill(new URLSearchParams(compared));
      const link = location.hash;
      await ask();
      if (answer.slots) await compare();
      history.replaceState(null, "", link);
    }
    fill(params);
    await ask();
  }

  addEventListener("hashchange", () => {
    if (location.hash.startsWith("#=")) restore();
    else writeLink(); // a section was looked up: the address goes on holding the question
  });
  restore();
})();
