"""Compares predictions with the reference engine on this machine, between calibrations.

``README.md`` of ``calibrate`` says how it is used, ``VALIDATION-cpu.md`` what came of it.
"""
