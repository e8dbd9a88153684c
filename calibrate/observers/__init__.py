"""Engines of others, driven in this process and recorded as the reference engine records itself."""
