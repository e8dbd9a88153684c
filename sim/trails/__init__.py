"""What did each request go through? Read from the tables of a run, simulated or observed."""
