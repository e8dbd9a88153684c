// Prices of GPU hours that a reader changes: every cost in proportion to them follows.
(() => {
  "use strict";
  const { made } = globalThis.pageFigures;
  const rows = [...document.querySelectorAll("#table-prices tbody tr")];
  const cards = [...document.querySelectorAll("#table-cards tbody tr")];
  const costs = [...document.querySelectorAll("[data-priced]")].map((cell) => {
    const shown = cell.querySelector(".digits");
    const decimals = (/\.(\d+)/.exec(shown.textContent) ?? ["", ""])[1].length;
    return { cell, shown, text: shown.textContent, decimals, gpu: cell.dataset.priced, usd: Number(cell.dataset.value) };
  });
  const fields = new Map(); // GPU -> its field
  const factor = (gpu) => {
    const field = fields.get(gpu);
    return field && field.value !== "" && field.validity.valid ? Number(field.value) / field.defaultValue : 1;
  };

  const form = made("form", { className: "prices" }, made("strong", {}, "Your prices of a GPU hour (USD)"));
  for (const row of rows) {
    const price = Number(row.querySelector("[data-priced]").dataset.value);
    if (!(price > 0)) continue;
    const gpu = row.cells[0].textContent.trim();
    fields.set(gpu, made("input", { type: "number", min: 0, step: "any", defaultValue: price }));
    form.append(made("label", {}, `${gpu} `, fields.get(gpu)));
  }
  const answer = made("output");
  form.append(made("button", { type: "reset", className: "quiet" }, "reset"), answer);

  // A card's fleet with its cost; a card that no fleet was sized for has the least that one costs.
  function card(row) {
    const cost = row.querySelector("[data-priced]");
    const least = cost.textContent.includes("from");
    const [gpu, fleet] = [row.cells[0], row.cells[1]].map((cell) => cell.textContent.trim());
    return { row, least, usd: Number(cost.dataset.value), text: cost.textContent.trim(), name: least ? gpu : `${fleet} of ${gpu}` };
  }

  function update() {
    for (const { cell, shown, text, decimals, gpu, usd } of costs) {
      if (!usd) continue;
      const moved = usd * factor(gpu);
      const digits = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
      cell.dataset.value = moved;
      shown.textContent = text.replace(/[\d,.]+/, moved.toLocaleString("en-US", digits));
    }
    const known = cards.map(card).filter(({ usd }) => usd > 0).sort((a, b) => a.usd - b.usd);
    const holding = known.filter(({ least }) => !least);
    const [best, next] = holding;
    const below = known.filter(({ least, usd }) => least && usd < best.usd);
    cards.forEach((row) => row.classList.toggle("best", row === best.row));
    answer.textContent = `Cheapest at these prices: ${best.name}, $${best.text} a month`
      + (next ? `; next ${next.name}, $${next.text}.` : ".")
      + below.map(({ name, text }) => ` ${name} could be cheaper, ${text} on.`).join("")
      + (costs.some(({ gpu }) => factor(gpu) !== 1) ? " Headline and figures keep the prices of the plan." : "");
  }

  if (!fields.size || !cards.some((row) => !card(row).least)) return;
  form.addEventListener("input", update);
  form.addEventListener("reset", () => setTimeout(update));
  form.addEventListener("submit", (event) => event.preventDefault());
  document.querySelector("#table-cards .bar").after(form);
  update();
})();
