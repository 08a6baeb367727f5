"""What an all-reduce takes under each stack: measured, checked element by element, kept."""
