"""What one collective takes under each stack: measured, checked element by element, kept."""
