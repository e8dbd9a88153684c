"""The pages of decisions: sweeps, comparisons and what else is asked of many runs of a scenario."""
