"""Words what a scenario asks of which fleet."""
