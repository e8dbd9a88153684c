"""Provides the report of one run: a module for each group of its sections."""
