"""The sections of a report, in any order."""
