"""Words what a summary says: verdict, SLO, headroom, notes."""
