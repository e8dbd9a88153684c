"""Compares what arrives with what the fleet serves, and says what the fleet does with it."""
