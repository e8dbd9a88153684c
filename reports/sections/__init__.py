"""What stands in each section of the report of one run? One module per group of sections."""
