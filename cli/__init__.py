"""The `ringside` command; thin."""
