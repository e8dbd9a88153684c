"""The sections of the report of one run: one module per group of sections."""
