"""Turns what happened in a run into metrics, from the columns that it recorded."""
