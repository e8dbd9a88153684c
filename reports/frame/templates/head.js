document.documentElement.classList.add("js");
try {
  const kept = localStorage.getItem("infersim-theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
} catch {
  // Storage may be forbidden; the system's preference then decides.
}
