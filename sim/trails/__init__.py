"""Reconstructs what each request went through from the tables of a run, simulated or observed."""
