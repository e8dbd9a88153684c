"""Holds the table of what goes together in a scenario and what does not, by what rows are about."""
