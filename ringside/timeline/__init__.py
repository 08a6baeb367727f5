"""Traces of runs: which operation of which process ran when."""
