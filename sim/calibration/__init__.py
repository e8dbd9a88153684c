"""What is in a profile: for a terminal, for a page, and beside another profile."""
