"""Provides the pages: of a run, of decisions, of a profile, of a validation."""
