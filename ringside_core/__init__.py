"""What every roof shares: nouns, workloads, readings of a machine."""
