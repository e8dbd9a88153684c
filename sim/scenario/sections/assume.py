"""Describes factors on what is known of hardware, engine and traffic; 1 changes nothing.

So a run can show what twice the memory bandwidth would bring, or how much depends on an overhead
that was never measured, without a GPU of that kind in the catalogue.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sim.scenario.sections.support import Section
from sim.scenario.values.fields import Factor, Nonnegative, at_most

LARGEST = 1e6
"""No factor is more."""


class Assume(Section):
    """Factors. They change no price: the catalogue's stands, since no such part is sold."""

    memory: Factor = Field(
        default=1.0,
        description="Memory of each GPU. For this and all other factors, 1 changes nothing.",
    )
    bandwidth: Factor = Field(default=1.0, description="Bandwidth of that memory.")
    compute: Factor = Field(default=1.0, description="Peak arithmetic, in every precision.")
    link: Factor = Field(default=1.0, description="Bandwidth of the links between GPUs.")
    kernel_time: Factor = Field(
        default=1.0,
        description="Time of every kernel, to try how far off the kernel timings may be.",
    )
    host_time: Annotated[Nonnegative, at_most(LARGEST)] = Field(
        default=1.0,
        description="All times of the engine: host, launches, gaps between layers, front end. 0 "
        "removes them.",
    )
    kv_blocks: Factor = Field(
        default=1.0,
        description="KV blocks of a replica, whether their number was given or computed.",
    )
    prompt_tokens: Factor = Field(
        default=1.0, description="Length of every prompt, up to what max_model_len leaves."
    )
    output_tokens: Factor = Field(
        default=1.0, description="Length of every answer, likewise; at least one token."
    )

    def told(self) -> str | None:
        """The difference from the truth, in a sentence; None if there is none."""
        changed = [f"{name.replace('_', ' ')} x {value:g}" for name, value in self if value != 1.0]
        return f"Assumed: {', '.join(changed)}." if changed else None
