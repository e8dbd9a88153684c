"""Provides ``infersim ui``: a page on this machine that asks one run by hand."""

from __future__ import annotations

import webbrowser
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.commands.exits import plain_errors
from sim.errors import UsageError

if TYPE_CHECKING:
    from sim.ui.job import Step, Window


def ui(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="TCP port; 0 picks a free one.")
    ] = 8765,
    open_page: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in the browser.")
    ] = True,
) -> None:
    """Ask by hand: a page on this machine whose answers follow each change of the question."""
    with plain_errors():
        if find_spec("aiohttp") is None:
            raise UsageError(
                "the page needs more packages; in the checkout: pip install '.[serve]'"
            )
        import asyncio

        from reports.pages.asked.page import page
        from sim.ui.question import GROUPS, LISTS, MOST_REQUESTS, helps
        from sim.ui.server import serve
        from sim.version import version

        form = page(GROUPS, LISTS, helps(), MOST_REQUESTS, version())

        def ready(where: str) -> None:
            typer.echo(f"Listening at {where}, for this machine alone. Ctrl-C stops.", err=True)
            if open_page:
                webbrowser.open(where)

        asyncio.run(serve(form, draw, port, ready))


def draw(contents: Mapping[str, Any], window: Window | None) -> Step:
    """What the page shows of a run; plotly is imported by the process that draws alone."""
    from reports.pages.asked.page import answer

    return answer(contents, window)
