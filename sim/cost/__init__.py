"""The cost model: what one iteration of one replica takes, operator by operator."""

from sim.cost.deployment import Deployment, missing_format
from sim.cost.iteration import CostModel
from sim.cost.operators import Operator

__all__ = ["CostModel", "Deployment", "Operator", "missing_format"]
