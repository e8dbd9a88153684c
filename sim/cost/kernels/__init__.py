"""Forms of kernel times, one file per operator: what the simulator prices and calibration fits."""

from sim.cost.kernels.form import Ceilings, Form, Parameter, inside

__all__ = ["Ceilings", "Form", "Parameter", "inside"]
