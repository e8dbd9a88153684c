"""Predicts the time of one iteration of one replica, operator by operator: the cost model."""

from sim.cost.deployment import Deployment, missing_format
from sim.cost.iteration import CostModel
from sim.cost.operators import Operator

__all__ = ["CostModel", "Deployment", "Operator", "missing_format"]
