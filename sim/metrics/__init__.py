"""What happened, as columns while the run goes on (``recorder``) and as figures afterwards."""
