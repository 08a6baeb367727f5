"""Parity and the sample ledger: what is proved before anything is timed."""
