"""Microbenchmarks and roofline fits: what a device really does.

Only this package imports torch.
"""
