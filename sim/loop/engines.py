"""Names what a router sends requests to: a replica, one of data ranks, or one of stages."""

from sim.loop.lockstep import LockStep
from sim.loop.pipeline import Pipeline
from sim.loop.replica import Replica

Engine = Replica | LockStep | Pipeline
