"""Other machines: reach them over ssh, ask them first, keep them while a run goes on."""
