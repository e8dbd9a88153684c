"""Decides whether a run is long enough: doubts about its SLO, the precision of its percentiles."""
