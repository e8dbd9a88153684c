"""Reads how a server of a real engine was started, and writes the scenario of it."""

from sim.servers.imported import Imported, imported
from sim.servers.sources import servers_of, sources_of

__all__ = ["Imported", "imported", "servers_of", "sources_of"]
