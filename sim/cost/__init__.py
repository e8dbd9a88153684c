"""Predicts the time of one iteration of one replica, operator by operator: the cost model."""

from sim.cost.batches import Batches, TimedPasses
from sim.cost.model import CostModel
from sim.cost.operators import Operator
from sim.specs.deployment import Deployment, missing_format

__all__ = ["Batches", "CostModel", "Deployment", "Operator", "TimedPasses", "missing_format"]
