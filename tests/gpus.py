"""GPUs as the data sheet describes them."""

from dataclasses import replace

from sim import catalog
from sim.specs.gpu import GpuSpec


def data_sheet(name: str) -> GpuSpec:
    """The catalogue's GPU of that name without the kernels that were measured on it."""
    return replace(catalog.gpu(name), profile=None)
