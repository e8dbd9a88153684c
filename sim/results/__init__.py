"""Provides results: a run's metrics and tables, and the directories that store them."""
