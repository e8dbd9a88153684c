"""Defines the metrics by key: title, unit, definition."""
