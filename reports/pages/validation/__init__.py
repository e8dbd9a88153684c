"""Provides the page of a validation."""
