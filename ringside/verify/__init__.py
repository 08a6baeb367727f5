"""Parity, sample ledger, negative controls: what is proved before anything is timed."""
