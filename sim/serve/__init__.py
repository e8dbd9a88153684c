"""Serves real clients with the timing of a simulated fleet, behind an OpenAI-compatible API."""
