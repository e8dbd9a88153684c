"""Provides the microbenchmarks of a device and the roofline fits to their results.

Only this package imports torch.
"""
