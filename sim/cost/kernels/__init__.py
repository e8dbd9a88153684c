"""Provides the forms of kernel times, one an operator, that prediction and calibration share."""

from sim.cost.kernels.form import Ceilings, Form, Parameter, inside

__all__ = ["Ceilings", "Form", "Parameter", "inside"]
