"""Draws a Plotly figure as a picture, in a browser, as the reports' pages draw it.

The whole page is one local file and nothing is fetched.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from notebooks.palette import smaller

BROWSERS = ("chromium", "chromium-browser", "google-chrome")

WIDTH, HEIGHT = 800, 380
"""Of a picture, in pixels as a page counts them; a figure that names its own height has that."""

SCALE = 2
"""Dots per pixel, so that text is sharp on the screens that most people have now."""

FLAGS = (
    *("--headless", "--disable-gpu", "--no-first-run", "--disable-sync", "--disable-quic"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    *("--virtual-time-budget=20000", "--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom"),
)

PAGE = """<!doctype html><meta charset="utf-8"><script>{library}</script><body><script>
(async () => {{
  const drawn = [];
  for (const figure of {figures}) {{
    const layout = {{...figure.layout, paper_bgcolor: "#ffffff", width: {width}}};
    layout.height = layout.height || {height};
    const options = {{format: "png", width: {width}, height: layout.height, scale: {scale}}};
    drawn.push(await Plotly.toImage({{data: figure.data, layout}}, options));
  }}
  document.querySelectorAll("script").forEach((script) => script.remove());
  const box = document.createElement("pre");
  box.id = "drawn";
  box.textContent = drawn.join("\\n");
  document.body.append(box);
}})();
</script>"""


class NoBrowserError(Exception):
    """There is no browser to draw with, or it did not."""


def pictures(figures: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each figure (``data`` and ``layout``) as a PNG in base64.

    NoBrowserError if they cannot be drawn; without figures no browser is asked for.
    """
    if not figures:
        return []
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise NoBrowserError(f"none of {', '.join(BROWSERS)} is installed to draw the figures")
    page = PAGE.format(
        library=get_plotlyjs().replace("</script>", "<\\/script>"),
        figures=json.dumps(figures).replace("</", "<\\/"),
        width=WIDTH,
        height=HEIGHT,
        scale=SCALE,
    )
    root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures.html"
        path.write_text(page, encoding="utf-8")
        profile = f"--user-data-dir={folder}/profile"
        command = [browser, *FLAGS, *root, profile, path.as_uri()]
        done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    box = re.search(r'<pre id="drawn">(.*?)</pre>', done.stdout.decode(), re.DOTALL)
    drawn = box[1].split() if box else []
    if len(drawn) != len(figures):
        told = done.stderr.decode(errors="replace").strip()[-400:]
        raise NoBrowserError(f"{browser} drew {len(drawn)} of {len(figures)} figures: {told}")
    whole = [base64.b64decode(picture.removeprefix("data:image/png;base64,")) for picture in drawn]
    return [base64.b64encode(smaller(picture)).decode() for picture in whole]
