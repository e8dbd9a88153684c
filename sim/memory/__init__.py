"""Models KV-cache memory: how much there is (``capacity``) and who holds it (the allocators)."""

from sim.memory.allocator import Allocator
from sim.memory.contiguous import ContiguousAllocator
from sim.memory.paged import PagedAllocator
from sim.registry import Registry

__all__ = ["ALLOCATORS", "Allocator", "ContiguousAllocator", "PagedAllocator"]

ALLOCATORS: Registry[Allocator] = Registry(
    "allocator", Allocator, PagedAllocator, ContiguousAllocator
)
