"""Calibrate, run the reference engine, calibrate again: how far off are the predictions here?

``README.md`` of ``calibrate`` says how it is used, ``VALIDATION-cpu.md`` what came of it.
"""
