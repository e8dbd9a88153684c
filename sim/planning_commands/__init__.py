"""The commands that decide: thin shells over ``sim.planning``, one file each."""
