"""The experiment: what is proved, measured, compared and reported."""
