"""The experiment: which arms, in which order, how many rounds."""
